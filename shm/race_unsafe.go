//go:build race

package shm

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// raceFence keeps the caller's atomic stores before its later loads. In a program built with the
// race detector an atomic store is only a release, so the processor may do a later load first. An
// atomic addition is a full barrier.
func raceFence(word *atomic.Uint32) { word.Add(0) }

// The race detector does not see synchronisation through mapped memory. If both sides are in one
// process (loopback, tests), raceRelease and raceAcquire tell it: what happened before an entry
// was published or released happens before the other side sees that.
var raceSync uint64

func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceSync)) }
func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceSync)) }
