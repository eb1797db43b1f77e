//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// available tells whether the kernel lets this process use membarrier.
var available = membarrier(membarrierRegisterPrivateExpedited)

func membarrier(command uintptr) bool {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, command, 0, 0) // raw: it never blocks
	return errno == 0
}

// Light is the frequent side's barrier between its store and its load.
func Light() {
	if !available {
		dear.Add(1)
	}
}

var dear atomic.Uint32

// Heavy is the rare side's barrier between its store and its load.
func Heavy() {
	if available && !membarrier(membarrierPrivateExpedited) {
		panic("asym: the kernel has taken membarrier back") // every promise of this package would be void
	}
}

// storeBetween stores a word after everything before it, and before every later store. It does not keep later loads
// behind it, as the exchange does that package atomic makes of a store.
func storeBetween(w *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(w)) = v }

// Current returns the name of the running goroutine.
func Current() Goroutine
