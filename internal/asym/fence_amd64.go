//go:build !race

package asym

import (
	"sync/atomic"

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

// Current returns the name of the running goroutine.
func Current() Goroutine
