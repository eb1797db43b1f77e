package endpoint

// TWIN c/src/endpoint/cq_notify.c.

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/endpoint/internal/progress"
	"github.com/softnd/softnd/nd"
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

// moderator delays the events of a completion queue so that one event covers many results. The
// engine checks the interval about every millisecond. The queue's lock guards it.
type moderator struct {
	moderated bool
	interval  time.Duration // negative: only the count ends a delay
	count     int           // negative: only the interval ends a delay
	due       time.Time     // when the oldest delayed result reaches interval
	hasTimer  bool          // timer is in the deferred work
	timer     progress.Work // checkModeration as a value, made once so that delaying an event does not allocate
}

// unannounced returns the number of queued results for which no event was raised.
func (q *completionQueue) unannounced() uint64 {
	return q.tail.Load() - max(q.eventsByType()[nd.NotifyAny], q.head.Load())
}

// delayEvent reports whether moderation delays the event of the result that was just added.
func (q *completionQueue) delayEvent() bool {
	if q.count >= 0 && q.unannounced() >= uint64(q.count) {
		return false
	}
	if q.unannounced() == 1 {
		q.due = time.Now().Add(q.interval)
	}
	if q.interval > 0 && !q.hasTimer {
		q.hasTimer = true
		q.provider.deferWork(q.timer)
	}
	return true
}

// checkModeration raises the delayed event when its time has come. It is deferred work while
// results are delayed. If the oldest result was taken meanwhile, the event of the others is
// slightly early.
func (q *completionQueue) checkModeration() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unannounced() > 0 && q.interval >= 0 {
		if time.Now().Before(q.due) {
			q.provider.deferred.KeepRecent() // the time of the event is known: keep checking often
			return false
		}
		q.raiseEvent()
	}
	q.hasTimer = false
	return true
}

// eventDescriptor lets a program wait for results in poll or epoll. It is created on the first
// call of EventFD. The queue's lock guards it, so that nothing writes to a closed descriptor.
type eventDescriptor struct {
	fd int
	// signaled: written, and the queue was not empty since. A program reads the descriptor and
	// then polls until the queue is empty. It needs no further write before that.
	signaled bool
}

const noDescriptor = -1

// eventIncrement is the value that a write adds to an event descriptor.
var eventIncrement = binary.NativeEndian.AppendUint64(nil, 1)

// signal makes the descriptor readable if it exists and is not readable yet.
func (q *completionQueue) signal() {
	if q.fd != noDescriptor && (!q.signaled || q.hasOverrun) {
		q.signaled = true
		_, _ = unix.Write(q.fd, eventIncrement) // fails only at the maximal count, when the descriptor is readable
	}
}

// closeDescriptor closes the descriptor if the queue is closed and no endpoint uses it.
func (q *completionQueue) closeDescriptor() {
	if q.closed && len(*q.endpoints.Load()) == 0 && q.fd != noDescriptor {
		_ = unix.Close(q.fd)
		q.fd = noDescriptor
		q.provider.engine.eventLoops.Add(-1)
	}
}
