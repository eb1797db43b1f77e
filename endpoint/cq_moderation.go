package endpoint

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// moderator delays the events of a completion queue so that one event covers many results. The
// engine checks the interval about every millisecond. The queue's lock guards it.
type moderator struct {
	moderated bool
	interval  time.Duration // negative: only the count ends a delay
	count     int           // negative: only the interval ends a delay
	due       time.Time     // when the oldest delayed result reaches interval
	hasTimer  bool          // timer is in the deferred work
	timer     deferredWork  // checkModeration as a value, made once so that delaying an event does not allocate
}

// ModerateInterrupts delays Notify and the event descriptor until count results are queued or
// the oldest of them is older than interval. An interval of 0 or a count below 2 ends
// moderation. A negative interval or count leaves the decision to the other.
func (q *completionQueue) ModerateInterrupts(interval time.Duration, count int) error {
	if interval < 0 && count < 0 {
		return q.opError("moderate interrupts", nd.InvalidParameterMix, "neither an interval nor a count", "pass at least one of them")
	}
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unannounced() > 0 {
		q.raiseEvent() // the new settings start with the next result
	}
	q.interval, q.count = interval, count
	q.moderated = interval != 0 && (count < 0 || count > 1)
	q.announced = q.latest
	return nil
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
			q.provider.keepDeferredRecent() // the time of the event is known: keep checking often
			return false
		}
		q.raiseEvent()
	}
	q.hasTimer = false
	return true
}
