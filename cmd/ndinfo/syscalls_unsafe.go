package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// probeFutex reports whether futexes work. It waits for a word to change that has another value
// already, so the kernel returns EAGAIN at once.
func probeFutex() error {
	const wait = 0
	word := uint32(1)
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), wait, 0, 0, 0, 0)
	if errno != unix.EAGAIN {
		return errno
	}
	return nil
}

// hasFutexWaitv reports whether a process can wait on several words at the same time.
func hasFutexWaitv() bool {
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX_WAITV, 0, 0, 0, 0, 0, 0)
	return errno != unix.ENOSYS && errno != unix.EPERM
}

// probeSubreaper returns an error if the system call for subreapers does not work.
func probeSubreaper() error {
	var set int32
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0)
}
