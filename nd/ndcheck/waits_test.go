package ndcheck

import (
	"sync"
	"testing"
)

// Waits for two peers that begin at the same time are none for the journal: other goroutines run.
func TestWaitsBeginTogether(t *testing.T) {
	c := newChecker(Options{})
	c.journal.enter(0, addressAt(0))
	for range 20000 {
		var calls sync.WaitGroup
		var done [2]func()
		for i := range done {
			calls.Go(func() { done[i] = c.waitFor(addressAt(1+i), "", true) })
		}
		calls.Wait()
		if to := [16]byte(c.journal.rankSlot(0)[20:36]); to != [16]byte{} {
			t.Fatalf("the rank waits for %v", to)
		}
		done[0]()
		done[1]()
	}
}
