package shm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// life keeps the lock on a member's record: it is a page of the arena, mapped
// through the open file description that has the lock, and through nothing
// else. The kernel releases such a lock with the last reference to the description.
// A descriptor would be one that the program can close by mistake (closefrom), and
// that a child inherits; a mapping goes with the process, and this one is not
// inherited.
type life struct{ at unsafe.Pointer }

// liveBy maps the page. fd may be closed afterwards.
func liveBy(fd int) (life, error) {
	at, err := unix.MmapPtr(fd, 0, nil, pageSize, unix.PROT_NONE, unix.MAP_SHARED)
	if err != nil {
		return life{}, fmt.Errorf("mmap of a page that holds a member's lock: %w", err)
	}
	l := life{at}
	if err := notInherited(unsafe.Slice((*byte)(at), pageSize)); err != nil {
		l.end()
		return life{}, err
	}
	return l, nil
}

// end releases the lock.
func (l life) end() error { return unix.MunmapPtr(l.at, pageSize) }

// notInherited keeps a mapping from children that the process forks: a child that
// lives on would keep the lock, or could still store into memory that is another
// member's since its parent has died.
func notInherited(mem []byte) error {
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		return fmt.Errorf("madvise(MADV_DONTFORK): %w", err)
	}
	return nil
}
