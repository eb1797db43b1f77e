package proctest

import (
	"iter"
	"testing"
	"time"
)

// Limits yields three time limits, each of them four times the one before. A test whose limit has to expire after its
// processes have reached a state runs them with each limit, until that is so, and then breaks the loop. Only then it
// checks what it is about. Limits fails the test if the state was not reached within the last limit.
//
// So a busy machine makes the test slower, and a defect in what it checks is not repeated.
func Limits(t testing.TB, state string, first time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		t.Helper()
		limit := first
		for range 3 {
			if !yield(limit) {
				return
			}
			limit *= 4
		}
		t.Fatalf("not within %v: %s", limit/4, state)
	}
}
