package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// futexWorks waits for a word that has another value already: a kernel with futexes says at once
// that it would not sleep.
func futexWorks() error {
	const wait = 0
	word := uint32(1)
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), wait, 0, 0, 0, 0)
	if errno != unix.EAGAIN {
		return errno
	}
	return nil
}

// waitsOnMany tells whether the kernel can wait on several words at once.
func waitsOnMany() bool {
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX_WAITV, 0, 0, 0, 0, 0, 0)
	return errno != unix.ENOSYS && errno != unix.EPERM
}

// subreaperKnown asks whether this process adopts orphans; the answer does not matter.
func subreaperKnown() error {
	var set int32
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0)
}
