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
// process (tests), raceRelease and raceAcquire tell it. The accesses of a rank before it arrives at a
// barrier happen before another rank passes the barrier.
var raceSync uint64

func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceSync)) }
func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceSync)) }
