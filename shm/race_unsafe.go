//go:build race

package shm

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// fence keeps the caller's atomic stores before its later loads. The race
// detector's stores are mere releases, which lets a processor do later loads
// first; an addition is more.
func fence(word *atomic.Uint32) { word.Add(0) }

// The race detector cannot follow a hand-over through mapped memory. Where both
// sides are in one process (loopback, tests), the rings tell it: what happened
// before a message was published, or given back, happens before the other
// side sees that.
var handedOver uint64

func handOver() { runtime.RaceReleaseMerge(unsafe.Pointer(&handedOver)) }
func takeOver() { runtime.RaceAcquire(unsafe.Pointer(&handedOver)) }
