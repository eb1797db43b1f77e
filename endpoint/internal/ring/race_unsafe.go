//go:build race

package ring

import (
	"runtime"
	"unsafe"
)

// The race detector does not see synchronisation through mapped memory. If both sides are in one
// process (loopback, tests), raceRelease and raceAcquire tell it: what happened before an entry was
// published or released happens before the other side sees that.
var raceSync uint64

func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceSync)) }
func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceSync)) }
