package shm

// TWIN c/src/shm/member.c.

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lockPage holds the lock on a member's record. It is a mapping of one page of the arena, through
// the open file description that has the lock, and the only reference to that description. The
// kernel releases the lock when the last reference is gone, so the lock lasts as long as the
// mapping, and the mapping as long as the process. A descriptor would be less safe: the program
// can close it by mistake (closefrom), and a child process inherits it.
type lockPage struct{ at unsafe.Pointer }

// mapLockPage maps the page. The caller may close fd afterwards.
func mapLockPage(fd int) (lockPage, error) {
	at, err := unix.MmapPtr(fd, 0, nil, pageSize, unix.PROT_NONE, unix.MAP_SHARED)
	if err != nil {
		return lockPage{}, fmt.Errorf("mmap of the page that holds the member's lock: %w", err)
	}
	l := lockPage{at}
	if err := notInherited(unsafe.Slice((*byte)(at), pageSize)); err != nil {
		l.unmap()
		return lockPage{}, err
	}
	return l, nil
}

// unmap releases the lock.
func (l lockPage) unmap() error { return unix.MunmapPtr(l.at, pageSize) }

// notInherited keeps forked children from inheriting a mapping. A child that outlives the process
// would keep the member's lock, and could store into memory that belongs to another member since
// the parent died.
func notInherited(mem []byte) error {
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		return fmt.Errorf("madvise(MADV_DONTFORK): %w", err)
	}
	return nil
}
