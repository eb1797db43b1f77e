package endpoint

// TWIN c/src/endpoint/cq_notify.c.

import (
	"context"

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

// NotifyAffinity returns the processors that this process may run on.
func (q *completionQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	return notifyAffinity("completion queue")
}
