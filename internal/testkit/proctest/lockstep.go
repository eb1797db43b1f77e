package proctest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Lockstep runs first and second at the same moment, repeatedly, and between two rounds runs between
// alone. It returns the number of rounds: on a busy machine fewer, but at least 10.
func Lockstep(rounds uint64, first, second, between func(round uint64)) uint64 {
	var at [2]atomic.Uint64
	var over atomic.Bool
	meet := func(self int, i uint64) {
		at[self].Store(i)
		for k := 1; at[1-self].Load() < i; k++ {
			if k%200 == 0 {
				runtime.Gosched()
			}
			if k%5000 == 0 {
				Yield()
			}
		}
	}
	var done sync.WaitGroup
	done.Go(func() {
		for i := uint64(0); ; i++ {
			meet(1, 2*i+1)
			if over.Load() {
				return
			}
			second(i + 1)
			meet(1, 2*i+2)
		}
	})
	end := time.Now().Add(time.Second)
	i := uint64(0)
	for ; ; i++ {
		over.Store(i == rounds || i >= 10 && time.Now().After(end))
		meet(0, 2*i+1)
		if over.Load() {
			break
		}
		first(i + 1)
		meet(0, 2*i+2)
		between(i + 1) // the other goroutine waits for the next step
	}
	done.Wait()
	return i
}
