package doorbell

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0 // without FUTEX_PRIVATE_FLAG: processes share the word
	futexWake = 1
)

// futexSleep blocks until the word has another value than seen, a wake arrives, or timeout has passed
// (0: no timeout). It may return early.
func futexSleep(word *atomic.Uint32, seen uint32, timeout time.Duration) {
	var ts *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(seen), uintptr(unsafe.Pointer(ts)), 0, 0)
	if errno != 0 && !errors.Is(errno, unix.EAGAIN) && !errors.Is(errno, unix.EINTR) && !errors.Is(errno, unix.ETIMEDOUT) {
		panic("doorbell: futex wait: " + errno.Error()) // the word is mapped: a bug, or a kernel without futexes
	}
}

// futexWakeAll wakes every waiter on the word, in all processes.
func futexWakeAll(word *atomic.Uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<30, 0, 0, 0)
}
