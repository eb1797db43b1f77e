package endpoint

import (
	"context"
	"sync"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
)

// notifier is what a completion queue keeps for calls of Notify. Results are
// named by their number plus one, which is what tail was when they had been
// added; 0 is none. The queue's lock guards it.
type notifier struct {
	waiters   []*waiter // the oldest first
	left      sync.Cond // one of them has gone
	newest    newest    // of the results so far; not of those that a sole endpoint has added, until share
	announced newest    // under moderation: of those that may end a Notify
	marker    uint64    // the last result that ended one
}

// newest has for each nd.NotifyType the latest result that satisfies it.
type newest [3]uint64

// waiter is one call of Notify.
type waiter struct {
	kind   nd.NotifyType
	done   bool // an event has released it
	called bool // the queue is closed, and this is the oldest waiter
}

// Notify blocks until there is a result that satisfies t, has ended no Notify
// before, and has not been taken: whoever took it needs no news of it.
func (q *CompletionQueue) Notify(ctx context.Context, t nd.NotifyType) error {
	const op = "notify"
	if t > nd.NotifySolicited {
		return q.fail(op, nd.InvalidParameter1, t.String(), "ask for NotifyAny, NotifySolicited or NotifyErrors")
	}
	w := &waiter{kind: t}
	err := q.join(op, w)
	if err != nil {
		return err
	}
	defer q.leave(w)
	werr := q.provider.wait(ctx, testimony.Call{Op: op, Object: t.String(), Queue: q.number}, func() { q.countPoll(); q.driveUsers() }, func() (ended bool) {
		ended, err = q.released(op, w)
		return ended
	})
	if werr != nil {
		return canceled(ctx, werr, op, "completion queue")
	}
	return err
}

// join adds a waiter, which an earlier result may release at once.
func (q *CompletionQueue) join(op string, w *waiter) error {
	q.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.broken(op); err != nil {
		return err
	}
	q.waiters = append(q.waiters, w)
	q.trigger()
	return nil
}

func (q *CompletionQueue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters = *without(&q.waiters, w)
	q.left.Broadcast()
}

// dismiss ends the calls one after the other. Each has left before the next is
// called, so that whoever watches them return is likely to see their order.
func (q *CompletionQueue) dismiss() {
	for len(q.waiters) > 0 {
		oldest := q.waiters[0]
		oldest.called = true
		q.provider.sleep.wake()
		for len(q.waiters) > 0 && q.waiters[0] == oldest {
			q.left.Wait()
		}
	}
}

// released tells whether a waiter's call is over, and how.
func (q *CompletionQueue) released(op string, w *waiter) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.done || q.closed && !w.called {
		return w.done, nil
	}
	err := q.broken(op)
	return err != nil, err
}

// announce notes the result that has been added, and makes it an event now or,
// under moderation, later.
func (q *CompletionQueue) announce(failed, solicited bool) {
	tail := q.tail.Load()
	q.newest[nd.NotifyAny] = tail
	if failed {
		q.newest[nd.NotifyErrors] = tail
	}
	if failed || solicited {
		q.newest[nd.NotifySolicited] = tail
	}
	if q.moderated && !failed && q.hold() { // after a failure no more may come, and the count may never be reached
		return
	}
	q.raise()
}

// raise makes events of all results so far.
func (q *CompletionQueue) raise() {
	if q.moderated {
		q.announced = q.newest
	}
	if len(q.waiters) > 0 {
		q.trigger()
	}
	if q.fd != noDescriptor {
		q.signal()
	}
}

// events are the results that may end a Notify.
func (q *CompletionQueue) events() *newest {
	if q.moderated {
		return &q.announced
	}
	return &q.newest
}

// trigger releases all waiters if there is a result for the widest of their types.
func (q *CompletionQueue) trigger() {
	if len(q.waiters) == 0 {
		return
	}
	widest := nd.NotifyErrors
	for _, w := range q.waiters {
		widest = widest.Combine(w.kind)
	}
	if at := q.events()[widest]; at > max(q.marker, q.head.Load()) {
		q.marker = at
		for _, w := range q.waiters {
			w.done = true
		}
		q.waiters = nil
		q.provider.sleep.wake()
	}
}

// NotifyAffinity returns the processors that this process may run on: it is its
// own goroutines that serve notifications.
func (q *CompletionQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	if group, mask, err = processAffinity(); err != nil {
		return 0, 0, &nd.OpError{Op: "get notify affinity", Object: "completion queue", Status: nd.NotSupported, Err: err}
	}
	return group, mask, nil
}
