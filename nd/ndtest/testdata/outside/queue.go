package tiny

import (
	"context"

	"github.com/softnd/softnd/nd"
)

// queue is a completion queue.
type queue struct {
	nd.UnsupportedCompletionQueue
	adapter *adapter
	depth   int
	entries []entry
	users   []*endpoint
	broken  bool
	closed  bool

	waiting   line          // calls of Wait
	notifying line          // calls of Notify
	armed     nd.NotifyType // the widest of theirs
	serial    uint64        // of the latest entry
	trigger   uint64        // the latest entry that ended a Notify
}

// entry is a result, and the slot in its endpoint's queue that is freed when the program takes the result.
type entry struct {
	nd.Result
	serial    uint64
	solicited bool
	slot      *int
}

func (e *entry) satisfies(t nd.NotifyType) bool {
	return t == nd.NotifyAny || e.Status != nd.Success || t == nd.NotifySolicited && e.solicited
}

// add stores an entry. The queue has twice the depth that the program asked for.
func (q *queue) add(e entry) {
	switch {
	case q.closed || q.broken:
		return
	case len(q.entries) >= 2*q.depth:
		q.broken = true
		for _, user := range append([]*endpoint(nil), q.users...) {
			user.fail(nd.BufferOverflow, nd.ConnectionAborted)
		}
		return
	}
	q.serial++
	e.serial = q.serial
	q.entries = append(q.entries, e)
	q.wake()
}

// wake ends all calls of Notify if there is an entry for them.
func (q *queue) wake() {
	if len(q.notifying) == 0 {
		return
	}
	for _, e := range q.entries {
		if e.serial > q.trigger && e.satisfies(q.armed) {
			for _, n := range q.notifying {
				n.served = true
			}
			q.notifying, q.trigger = nil, e.serial
		}
	}
}

// fault returns the reason for which the queue is unusable.
func (q *queue) fault(op string) error {
	switch {
	case q.closed:
		return refuse(op, nd.InvalidHandle, "the queue is closed")
	case q.broken:
		return refuse(op, nd.BufferOverflow, "the queue has overrun")
	}
	return nil
}

func (q *queue) Poll(results []nd.Result) int {
	defer q.adapter.lock()()
	return q.take(results)
}

func (q *queue) take(results []nd.Result) int {
	n := min(len(results), len(q.entries))
	for i, e := range q.entries[:n] {
		results[i] = e.Result
		*e.slot--
	}
	q.entries = q.entries[n:]
	return n
}

func (q *queue) Wait(ctx context.Context, results []nd.Result) (int, error) {
	const op = "wait"
	defer q.adapter.lock()()
	if len(results) == 0 {
		return 0, refuse(op, nd.InvalidParameter, "no room for results")
	}
	if q.closed {
		return 0, q.fault(op)
	}
	t := q.waiting.join()
	defer q.waiting.leave(t)
	if !q.adapter.wait(ctx, func() bool { return len(q.entries) > 0 || q.broken || q.closed && q.waiting[0] == t }) {
		return 0, nd.CanceledError(ctx, op, "completion queue")
	}
	switch {
	case q.closed:
		return 0, refuse(op, nd.Canceled, "the queue was closed")
	case len(q.entries) == 0:
		return 0, q.fault(op)
	}
	return q.take(results), nil
}

func (q *queue) Notify(ctx context.Context, t nd.NotifyType) error {
	const op = "notify"
	defer q.adapter.lock()()
	if t > nd.NotifySolicited {
		return refuse(op, nd.InvalidParameter, t.String())
	}
	if err := q.fault(op); err != nil {
		return err
	}
	if len(q.notifying) == 0 {
		q.armed = t
	}
	q.armed = q.armed.Combine(t)
	n := q.notifying.join()
	defer q.notifying.leave(n)
	q.wake()
	if !q.adapter.wait(ctx, func() bool { return n.served || q.broken || q.closed && q.notifying[0] == n }) {
		return nd.CanceledError(ctx, op, "completion queue")
	}
	switch {
	case n.served:
		return nil
	case q.closed:
		return refuse(op, nd.Canceled, "the queue was closed")
	}
	return q.fault(op)
}

func (q *queue) Resize(depth int) error {
	const op = "resize"
	defer q.adapter.lock()()
	switch {
	case q.closed:
		return q.fault(op)
	case depth < 1 || depth > maxEvents:
		return refuse(op, nd.InvalidParameter, "depth")
	case len(q.entries) > depth:
		return refuse(op, nd.BufferOverflow, "more entries are stored")
	}
	q.depth = depth
	return nil
}

func (q *queue) Close() error {
	defer q.adapter.lock()()
	q.closed, q.entries = true, nil
	return nil
}
