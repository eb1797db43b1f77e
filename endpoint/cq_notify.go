package endpoint

// TWIN c/src/endpoint/cq_notify.c.

import (
	"context"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cq"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Notify blocks until a result satisfies t that has not ended another Notify and has not been
// taken. A result that was taken needs no notification.
func (q *completionQueue) Notify(ctx context.Context, t nd.NotifyType) error {
	const op = "notify"
	if t > nd.NotifySolicited {
		return argument("t", q.opError(op, nd.InvalidParameter, t.String(), "ask for NotifyAny, NotifySolicited or NotifyErrors"))
	}
	if err := q.provider.ask(ctx, mode.Call{Op: op, Object: "completion queue", Peer: shm.NoRank}); err != nil {
		return err
	}
	w := &cq.Call{Type: t}
	err := q.addNotify(op, w)
	if err != nil {
		return err
	}
	defer q.removeNotify(w)
	werr := q.provider.wait(ctx, statuspage.Call{Op: op, Object: t.String(), Queue: q.number}, func() { q.countPoll(); q.progressAll() }, func() (ended bool) {
		ended, err = q.notifyResult(op, w)
		return ended
	})
	if werr != nil && !q.removeNotify(w) {
		return Canceled(ctx, werr, op, "completion queue")
	}
	if q.provider.calls != nil {
		q.provider.calls.Return()
	}
	return err
}

// addNotify adds a call. An earlier result may release it at once.
func (q *completionQueue) addNotify(op string, w *cq.Call) error {
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.failureLocked(op); err != nil {
		return err
	}
	q.events.Add(w)
	return nil
}

// removeNotify removes a call that returns. It reports whether a result has released it: the call must say so, even if it has been canceled
// meanwhile, since the result releases no other.
func (q *completionQueue) removeNotify(w *cq.Call) (released bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events.Remove(w)
	return w.Released
}

// notifyResult reports whether a call is over, and its error.
func (q *completionQueue) notifyResult(op string, w *cq.Call) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.Released || q.closed && !w.MayReturn {
		return w.Released, nil
	}
	err := q.failureLocked(op)
	return err != nil, err
}

// NotifyAffinity returns the processors that this process may run on.
func (q *completionQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	return notifyAffinity("completion queue")
}

// ModerateInterrupts delays Notify and the event descriptor until count results are queued or
// the oldest of them is older than interval. An interval of 0, or a count of
// 0 or 1, ends moderation. A negative interval or count leaves the decision to the other.
func (q *completionQueue) ModerateInterrupts(interval time.Duration, count int) error {
	if interval < 0 && count < 0 {
		return q.opError("moderate interrupts", nd.InvalidParameterMix, "neither an interval nor a count", "pass at least one of them")
	}
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events.Moderate(interval, count)
	return nil
}

// EventFD returns a descriptor that becomes readable when a result is queued and when the queue
// overruns.
func (q *completionQueue) EventFD() (int, error) {
	const op = "get event descriptor"
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.provider.waiters.IsClosed() {
		return cq.NoDescriptor, q.opError(op, nd.InvalidHandle, "the queue or its provider is closed", "create another")
	}
	fd, err := q.events.Descriptor()
	if err != nil {
		return cq.NoDescriptor, &nd.OpError{Op: op, Object: "completion queue", Status: nd.InsufficientResources, Err: err, Next: "raise ulimit -n or use Wait"}
	}
	return fd, nil
}
