package endpoint

// TWIN c/src/endpoint/cq_notify.c.

import (
	"time"

	"github.com/softnd/softnd/nd"
)

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
