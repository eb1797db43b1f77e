package endpoint

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// moderator delays the events of a completion queue, so that one of them
// stands for many results. The engine looks at the clock, about every
// millisecond. The queue's lock guards it.
type moderator struct {
	moderated bool
	interval  time.Duration // negative: events wait for the count alone
	count     int           // negative: for the interval alone
	timed     bool          // the engine has been asked to look at the clock
}

// ModerateInterrupts makes Notify and the event descriptor wait until count
// results are there or the oldest is as old as interval. An interval of 0, or
// a count below 2, ends the delays.
func (q *CompletionQueue) ModerateInterrupts(interval time.Duration, count int) error {
	if interval < 0 && count < 0 {
		return q.fail("moderate interrupts", nd.InvalidParameterMix, "neither an interval nor a count", "pass one of the two")
	}
	q.mu.Lock()
	q.interval, q.count = interval, count
	q.moderated = interval != 0 && (count < 0 || count > 1)
	if q.held() > 0 {
		q.raise()
	}
	q.mu.Unlock()
	q.provider.sleep.wake()
	return nil
}

// held counts the results that have made no event yet and are still there.
func (q *CompletionQueue) held() uint64 { return q.tail - max(q.announced[nd.NotifyAny], q.head) }

// hold tells whether the result that has just been added makes no event yet.
func (q *CompletionQueue) hold() bool {
	if !q.moderated || q.count >= 0 && q.held() >= uint64(q.count) {
		return false
	}
	if q.interval > 0 && !q.timed {
		q.timed = true
		q.provider.postpone(q.awaitAge(time.Now().Add(q.interval)))
	}
	return true
}

// awaitAge returns the chore that ends a delay. Whatever came after the oldest
// result, and has not been taken with it, makes its event with it.
func (q *CompletionQueue) awaitAge(at time.Time) chore {
	return func() bool {
		if time.Now().Before(at) {
			return false
		}
		q.mu.Lock()
		q.timed = false
		if q.held() > 0 {
			q.raise()
		}
		q.mu.Unlock()
		q.provider.sleep.wake()
		return true
	}
}
