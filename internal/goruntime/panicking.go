package goruntime

import (
	"runtime"
	"time"
)

// A deferred Close of a goroutine that panics waits until the panic has been printed. Otherwise the peers learn of the end first,
// fail at it, and their launcher ends the process before it has said why.

// delay is more time than the runtime needs to print a panic and end the process.
const delay = time.Second

// depth is how many calls may lie between PostponeIfPanicking and the panic.
const depth = 32

// PostponeIfPanicking reports whether the calling goroutine panics. If it does, PostponeIfPanicking arranges for
// release to be called a second later, in a process that still lives because the panic was
// recovered. A deferred function that has recovered from the panic itself counts as
// panicking until it returns.
func PostponeIfPanicking(release func()) bool {
	if !now() {
		return false
	}
	time.AfterFunc(delay, release)
	return true
}

// now reports whether the goroutine runs functions that were deferred before a panic.
func now() bool {
	var pcs [depth]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.Function == "runtime.gopanic" {
			return true
		}
	}
	return false
}
