package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A goroutine that yields and does nothing else can be stopped by the runtime: the
// collector would wait for it, and everybody for the collector.
func TestYieldCanBeStopped(t *testing.T) {
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
