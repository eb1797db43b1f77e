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
	due       time.Time     // when the oldest result that is held becomes as old as that
	timed     bool          // the engine looks at the clock
	look      chore         // lookAtClock, made once: a held result is no reason to allocate
}

// ModerateInterrupts makes Notify and the event descriptor wait until count
// results are there or the oldest is as old as interval. An interval of 0, or
// a count below 2, ends the delays.
func (q *CompletionQueue) ModerateInterrupts(interval time.Duration, count int) error {
	if interval < 0 && count < 0 {
		return q.fail("moderate interrupts", nd.InvalidParameterMix, "neither an interval nor a count", "pass one of the two")
	}
	q.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held() > 0 {
		q.raise() // so the new terms begin with the next result
	}
	q.interval, q.count = interval, count
	q.moderated = interval != 0 && (count < 0 || count > 1)
	q.announced = q.newest
	return nil
}

// held counts the results that have made no event yet and are still there.
func (q *CompletionQueue) held() uint64 {
	return q.tail.Load() - max(q.events()[nd.NotifyAny], q.head.Load())
}

// hold tells whether the result that has just been added makes no event yet,
// under moderation.
func (q *CompletionQueue) hold() bool {
	if q.count >= 0 && q.held() >= uint64(q.count) {
		return false
	}
	if q.held() == 1 {
		q.due = time.Now().Add(q.interval)
	}
	if q.interval > 0 && !q.timed {
		q.timed = true
		q.provider.postpone(q.look)
	}
	return true
}

// lookAtClock is a chore for as long as results are held. If the oldest has
// been taken, those behind it make their event a little early.
func (q *CompletionQueue) lookAtClock() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held() > 0 && q.interval >= 0 {
		if time.Now().Before(q.due) {
			q.provider.refresh() // the moment is known to come
			return false
		}
		q.raise()
	}
	q.timed = false
	return true
}
