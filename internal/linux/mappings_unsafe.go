package linux

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of linux/fs.h.
type procmapQuery struct {
	size, flags, addr                           uint64
	start, end, access, pageSize, offset, inode uint64
	device                                      [2]uint32
	nameSize, buildIDSize                       uint32
	name, buildID                               uint64
}

// The values of linux/fs.h.
const (
	ioctlQuery     = 3<<30 | unsafe.Sizeof(procmapQuery{})<<16 | 'f'<<8 | 17 // PROCMAP_QUERY
	readable       = 1
	writable       = 2
	coveringOrNext = 16
)

// query is the source for kernels from 6.11.
//
// Errors: [unix.ENOTTY] from an older kernel.
func query(fd int, at uint64) (m mapping, ok bool, err error) {
	q := procmapQuery{size: uint64(unsafe.Sizeof(procmapQuery{})), flags: coveringOrNext, addr: at}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlQuery, uintptr(unsafe.Pointer(&q)))
	switch {
	case errors.Is(e, unix.ENOENT):
		return mapping{}, false, nil
	case e != 0:
		return mapping{}, false, e
	}
	m = mapping{start: q.start, end: q.end}
	if q.access&readable != 0 {
		m.access |= Read
	}
	if q.access&writable != 0 {
		m.access |= Write
	}
	return m, true, nil
}
