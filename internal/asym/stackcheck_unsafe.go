//go:build amd64 && !race

package asym

import (
	"runtime"
	"unsafe"
)

// Go does not promise that the record which currentStack returns begins with the bounds of the goroutine's stack. Each
// process checks it once, in Register, on goroutines of its own. If the runtime is built differently, no BiasedMutex ever
// has a bias, and each is a sync.Mutex with a few more instructions.

// sighting is what a goroutine sees of its stack at one moment: its record, the bounds in it, and the address of a variable
// on the stack.
type sighting struct {
	record *stack
	bounds stack
	local  uintptr
}

//go:noinline
func sight() (s sighting) {
	var local byte
	if s.record = currentStack(); s.record != nil {
		s.bounds = *s.record
	}
	s.local = uintptr(unsafe.Pointer(&local))
	return s
}

// stacksAreAsExpected reports whether the records of two goroutines that exist at the same time have the right bounds,
// before and after their stacks have grown.
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

// growthFrames of descend take some 80 KiB. The stack of a new goroutine has 2 KiB, or the average that earlier ones used.
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

// areAsExpected checks what two goroutines have seen, each before and after its stack had to grow.
func areAsExpected(a, b [2]sighting) bool {
	for _, s := range [...]sighting{a[0], a[1], b[0], b[1]} {
		if !s.isSound() {
			return false
		}
	}
	apart := a[1].bounds.hi <= b[1].bounds.lo || b[1].bounds.hi <= a[1].bounds.lo
	return apart && a[0].record == a[1].record && b[0].record == b[1].record && a[0].record != b[0].record
}

// largestStack is the runtime's default limit on 64-bit systems.
const largestStack = 1_000_000_000

func (s sighting) isSound() bool {
	return s.record != nil && s.bounds.lo <= s.local && s.local < s.bounds.hi && s.bounds.hi-s.bounds.lo <= largestStack
}
