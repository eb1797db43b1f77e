package linux

// TWIN c/src/linux/descriptor.c.

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors of softnd are above 2.
//
// At the start of a Go program, the runtime opens those of 0, 1 and 2 that are closed. It does not in a library that a
// program of another language loads. The output of such a program would go into the arena, and to peers, if a descriptor of
// softnd were in their place.

const stderr = 2 // the last standard descriptor

// init lets the runtime make its descriptors while the standard ones are in use. It makes them with the first timer. (It has
// others for reading, to which nothing can be printed.)
func init() {
	for fd := range stderr + 1 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			ReserveStandard(func() { time.AfterFunc(time.Hour, func() {}).Stop() })
			return
		}
	}
}

// AboveStandard takes the results of a call that makes a descriptor, and moves the descriptor above 2.
func AboveStandard(fd int, err error) (int, error) {
	if err != nil || fd > stderr {
		return fd, err
	}
	above, err := DuplicateAboveStandard(fd)
	unix.Close(fd)
	return above, err
}

// DuplicateAboveStandard returns a duplicate above 2.
func DuplicateAboveStandard(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, stderr+1)
}

// ReserveStandard calls make while 0, 1 and 2 are in use, so that no descriptor that it makes is one of them. If it were one for a
// moment, another thread could print to shared memory. Nothing can be read from or written to the files in their place.
func ReserveStandard(make func()) {
	mutex.Lock() // else another call could free a number
	defer mutex.Unlock()
	var held [stderr + 1]int
	n := 0
	for n < len(held) {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		if fd > stderr {
			unix.Close(fd)
			break
		}
		held[n] = fd
		n++
	}
	make()
	for _, fd := range held[:n] {
		unix.Close(fd)
	}
}

var mutex sync.Mutex
