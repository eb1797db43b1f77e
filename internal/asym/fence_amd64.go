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

// available reports whether the kernel has all membarrier commands that the package uses; Linux before 4.16 has only some
// of them. It is false until Register.
var available bool

// canBias reports whether a [BiasedMutex] can have a bias: membarrier is available, and the runtime keeps stacks as
// LockBiased relies on. It is false until Register.
var canBias bool

var register = sync.OnceFunc(func() { available, canBias = detect(stacksAreAsExpected) })

// detect returns the values of available and canBias. stacksAreAsExpected is the check of the runtime.
func detect(stacksAreAsExpected func() bool) (fences, bias bool) {
	fences = membarrier(membarrierRegisterPrivateExpedited) &&
		membarrier(membarrierRegisterGlobalExpedited) && membarrier(membarrierGlobalExpedited)
	return fences, fences && stacksAreAsExpected()
}

// Register registers the process for membarrier and checks what [BiasedMutex] assumes about the runtime. Call it before
// anything else of this package is used; further calls do nothing. It takes tens of milliseconds, in which the kernel
// waits for all cores, so a process that shares no arena should not call it. Without Register, Light is a full fence and
// BiasedMutex has no bias.
func Register() { register() }

func membarrier(command uintptr) bool {
	for {
		// Not RawSyscall: the kernel may block, on a mutex of the whole machine (since Linux 6.8) or, to register,
		// until all cores have passed a fence. Other goroutines must be able to run meanwhile.
		_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
		if errno != unix.ENOMEM { // ENOMEM is temporary
			return errno == 0
		}
		runtime.Gosched()
	}
}

// Light is the frequent side's fence, between its store and its load.
func Light() {
	if !available {
		fenceWord.Add(1)
	}
}

var fenceWord atomic.Uint32

// refusedLate is no error that a program could ignore: peers and locks already rely on the system call. Without it no lock and no
// handshake of this process is safe.
const refusedLate = "softnd: membarrier(2) is refused after it has worked: install seccomp filters before the first call of softnd, or let them allow membarrier"

// Heavy is the rare side's fence, between its store and its load.
func Heavy() {
	if available && !membarrier(membarrierPrivateExpedited) {
		panic(refusedLate)
	}
}

// HasHeavyGlobal reports whether [HeavyGlobal] works in this process, and reaches this process when another calls it.
func HasHeavyGlobal() bool { return available }

// HeavyGlobal is Heavy for all processes in which HasHeavyGlobal is true. It works only if that is true in this process.
// A frequent side in another process must know that; else it uses a full fence of its own.
func HeavyGlobal() {
	if available && !membarrier(membarrierGlobalExpedited) {
		panic(refusedLate)
	}
}
