package linux

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// The runtime can preempt a goroutine that only yields. Otherwise the garbage collector would wait for
// it, and all goroutines for the collector.
func TestYieldIsPreemptible(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	var over atomic.Bool
	var yielders sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		yielders.Go(func() {
			for !over.Load() {
				Yield()
			}
		})
	}
	for range 20 {
		runtime.GC()
	}
	over.Store(true)
	yielders.Wait()
}
