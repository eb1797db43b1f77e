//go:build race

package shm

import (
	"runtime"
	"unsafe"
)

// The race detector does not see synchronisation through mapped memory. If both sides are in one
// process (tests), raceRelease and raceAcquire tell it. The accesses of a rank before it arrives at a
// barrier happen before another rank passes the barrier.
var raceSync uint64

func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceSync)) }
func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceSync)) }
