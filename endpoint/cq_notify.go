package endpoint

import (
	"context"
	"sync"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// notifier is the state of a completion queue for calls of Notify. It names a result by its
// number plus one, the value of tail after the result was added; 0 means none. The queue's lock
// guards it.
type notifier struct {
	calls        []*notifyCall // pending calls of Notify, the oldest first
	callEnded    sync.Cond     // broadcast when a call has returned
	latest       latestByType  // latest results; without those that soleEndpoint added, until makeShared
	announced    latestByType  // with moderation: latest results that can release a Notify
	lastReleased uint64        // the latest result that released a Notify
}

// latestByType holds the latest result that satisfies each nd.NotifyType.
type latestByType [3]uint64

// notifyCall is one pending call of Notify.
type notifyCall struct {
	kind      nd.NotifyType
	released  bool // an event ended the call
	mayReturn bool // the queue is closed and this is the oldest call: it returns now
}

// Notify blocks until a result satisfies t that has not ended another Notify and has not been
// taken. A result that was taken needs no notification.
func (q *completionQueue) Notify(ctx context.Context, t nd.NotifyType) error {
	const op = "notify"
	if t > nd.NotifySolicited {
		return q.opError(op, nd.InvalidParameter1, t.String(), "ask for NotifyAny, NotifySolicited or NotifyErrors")
	}
	if err := q.provider.ask(ctx, mode.Call{Op: op, Object: "completion queue", Peer: shm.NoRank}); err != nil {
		return err
	}
	w := &notifyCall{kind: t}
	err := q.addNotify(op, w)
	if err != nil {
		return err
	}
	defer q.removeNotify(w)
	werr := q.provider.wait(ctx, statuspage.Call{Op: op, Object: t.String(), Queue: q.number}, func() { q.countPoll(); q.progressAll() }, func() (ended bool) {
		ended, err = q.notifyResult(op, w)
		return ended
	})
	if werr != nil {
		return Canceled(ctx, werr, op, "completion queue")
	}
	if q.provider.calls != nil {
		q.provider.calls.Return()
	}
	return err
}

// addNotify adds a call. An earlier result may release it at once.
func (q *completionQueue) addNotify(op string, w *notifyCall) error {
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.failureLocked(op); err != nil {
		return err
	}
	q.calls = append(q.calls, w)
	q.releaseNotifyCalls()
	return nil
}

func (q *completionQueue) removeNotify(w *notifyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = *without(&q.calls, w)
	q.callEnded.Broadcast()
}

// endNotifyCalls ends the pending calls one after the other. Each call has returned before the
// next one is released, so that an observer is likely to see them return in order.
func (q *completionQueue) endNotifyCalls() {
	for len(q.calls) > 0 {
		oldest := q.calls[0]
		oldest.mayReturn = true
		q.provider.waiters.Wake()
		for len(q.calls) > 0 && q.calls[0] == oldest {
			q.callEnded.Wait()
		}
	}
}

// notifyResult reports whether a call is over, and its error.
func (q *completionQueue) notifyResult(op string, w *notifyCall) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.released || q.closed && !w.mayReturn {
		return w.released, nil
	}
	err := q.failureLocked(op)
	return err != nil, err
}

// noteResult notes the result that was just added. It raises the event now or, with moderation,
// later.
func (q *completionQueue) noteResult(failed, solicited bool) {
	tail := q.tail.Load()
	q.latest[nd.NotifyAny] = tail
	if failed {
		q.latest[nd.NotifyErrors] = tail
	}
	if failed || solicited {
		q.latest[nd.NotifySolicited] = tail
	}
	if q.moderated && !failed && q.delayEvent() { // not for a failure: no more results may follow, and the count may never be reached
		return
	}
	q.raiseEvent()
}

// raiseEvent raises an event for all results so far.
func (q *completionQueue) raiseEvent() {
	if q.moderated {
		q.announced = q.latest
	}
	if len(q.calls) > 0 {
		q.releaseNotifyCalls()
	}
	if q.fd != noDescriptor {
		q.signal()
	}
}

// eventsByType returns the latest results that can release a Notify.
func (q *completionQueue) eventsByType() *latestByType {
	if q.moderated {
		return &q.announced
	}
	return &q.latest
}

// releaseNotifyCalls releases all pending calls if there is a new result of their widest type.
func (q *completionQueue) releaseNotifyCalls() {
	if len(q.calls) == 0 {
		return
	}
	widest := nd.NotifyErrors
	for _, w := range q.calls {
		widest = widest.Combine(w.kind)
	}
	if at := q.eventsByType()[widest]; at > max(q.lastReleased, q.head.Load()) {
		q.lastReleased = at
		for _, w := range q.calls {
			w.released = true
		}
		q.calls = nil
		q.provider.waiters.Wake()
	}
}

// NotifyAffinity returns the processors that this process may run on, because goroutines of this
// process serve the notifications.
func (q *completionQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	if group, mask, err = processAffinity(); err != nil {
		return 0, 0, &nd.OpError{Op: "get notify affinity", Object: "completion queue", Status: nd.NotSupported, Err: err}
	}
	return group, mask, nil
}
