//go:build amd64 && !race

package asym

import (
	"runtime"
	"unsafe"
)

// Go does not promise that the record which mine returns begins with the bounds of the goroutine's stack. A process checks
// it once, in Register, on goroutines of its own; if the runtime is built differently, no goroutine becomes an owner, and
// every Mutex is a sync.Mutex.

// sighting is what a goroutine sees of its stack in one place: its record, the bounds in it, and the address of a variable
// that lies on the stack.
type sighting struct {
	record *stack
	bounds stack
	local  uintptr
}

//go:noinline
func sight() sighting {
	var local byte
	record := mine()
	return sighting{record, *record, uintptr(unsafe.Pointer(&local))}
}

// stacksAreAsExpected reports whether two goroutines that live at the same time, and one that makes its stack grow, have
// records with the right bounds.
func stacksAreAsExpected() bool {
	seen := make(chan [2]sighting)
	leave := make(chan struct{})
	look := func() {
		first := sight()
		var second sighting
		descend(growthFrames, func() { second = sight() })
		seen <- [2]sighting{first, second}
		<-leave // so that both stacks exist at the same time
	}
	go look()
	go look()
	a, b := <-seen, <-seen
	close(leave)
	return areAsExpected(a, b)
}

// growthFrames of descend take some 80 KiB; the stack of a new goroutine has 2 KiB, or what its predecessors needed on average.
const growthFrames = 256

// descend calls f below a number of frames of 256 bytes.
//
//go:noinline
func descend(frames int, f func()) {
	var room [256]byte
	if frames > 0 {
		descend(frames-1, f)
	} else {
		f()
	}
	runtime.KeepAlive(&room)
}

// areAsExpected judges what two goroutines have seen, each before and after its stack had to grow.
func areAsExpected(a, b [2]sighting) bool {
	for _, s := range [...]sighting{a[0], a[1], b[0], b[1]} {
		if !s.isSound() {
			return false
		}
	}
	apart := a[1].bounds.hi <= b[1].bounds.lo || b[1].bounds.hi <= a[1].bounds.lo
	return apart && a[0].record == a[1].record && b[0].record == b[1].record && a[0].record != b[0].record
}

// largestStack is what the runtime allows on 64-bit systems by default.
const largestStack = 1_000_000_000

func (s sighting) isSound() bool {
	return s.bounds.lo <= s.local && s.local < s.bounds.hi && s.bounds.hi-s.bounds.lo <= largestStack
}
