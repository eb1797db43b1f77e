//go:build !race

package asym

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
	membarrierGlobalExpedited          = 1 << 1
	membarrierRegisterGlobalExpedited  = 1 << 2
)

// available tells whether the kernel lets this process do all that the package is about. A kernel that has but a part of
// it, one before Linux 4.16, does not count. It is false until Register.
var available bool

// ownable reports whether a goroutine can become the owner of a [Mutex]: the kernel helps, and the runtime keeps stacks as
// Enter relies on. It is false until Register.
var ownable bool

var register = sync.OnceFunc(func() {
	available = membarrier(membarrierRegisterPrivateExpedited) &&
		membarrier(membarrierRegisterGlobalExpedited) && membarrier(membarrierGlobalExpedited)
	ownable = available && stacksAreAsExpected()
})

// Register asks the kernel for its help, once for the process, before anything else of this package is used. It takes
// tens of milliseconds, in which the kernel waits for all cores; that is why a process that shares nothing does not.
// Without it everything works the ordinary way.
func Register() { register() }

func membarrier(command uintptr) bool {
	for {
		// Not RawSyscall: the kernel may block, on a mutex of the whole machine (since Linux 6.8) or, to register,
		// until all cores have passed a barrier. The goroutines of this thread's processor must be able to run meanwhile.
		_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
		if errno != unix.ENOMEM { // which passes
			return errno == 0
		}
		runtime.Gosched()
	}
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

// ForAll tells whether [HeavyForAll] does what it says, and reaches this process when another calls it.
func ForAll() bool { return available }

// HeavyForAll is Heavy for all processes in which ForAll is true, if it is in this one. The frequent side, in another
// process, must have been told so, and else pay itself.
func HeavyForAll() {
	if available && !membarrier(membarrierGlobalExpedited) {
		panic("asym: the kernel has taken membarrier back")
	}
}
