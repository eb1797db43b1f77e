package shm

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// replaceMapping atomically replaces the arena's pages in this process by pages of a private memory
// file. A call that passed its check of the state before Close, and accesses the memory after it,
// then stores into that file. The addresses stay in use until the garbage collector finds that
// nothing refers to the arena, so no other mapping takes them before.
func (a *Arena) replaceMapping() error {
	if err := a.replacePages(0, a.geo.size); err != nil {
		return err
	}
	runtime.AddCleanup(a, func(mem mmap.MMap) { _ = mem.Unmap() }, a.mem)
	return a.private.Close()
}

// Keep replaces the pages of a range by private pages with the same content, which Close leaves in
// place. Another process may get the pages in the arena when this member has left. A write that is
// in progress may be lost. Keep does nothing while another member uses this mapping.
func (a *Arena) Keep(off Offset, n uint64) error {
	if a.refs.Load() > 1 {
		return nil
	}
	if err := a.keep(off, n); err != nil {
		return fmt.Errorf("shm: keep memory of %d bytes: %w", n, err)
	}
	return nil
}

func (a *Arena) keep(off Offset, n uint64) error {
	page := uint64(os.Getpagesize())
	start := uint64(off) / page * page
	end := (uint64(off) + n + page - 1) / page * page
	if err := a.makePrivate(); err != nil {
		return err
	}
	if _, err := a.private.WriteAt(a.mem[start:end], int64(start)); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return a.replacePages(start, end)
}

// makePrivate makes the file of private pages. Anonymous memory of this size may be refused by the
// kernel (vm.overcommit_memory 2); a memory file takes up only what is touched.
func (a *Arena) makePrivate() error {
	if a.private != nil {
		return nil
	}
	fd, err := makeFile("softnd-closed", 0)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", fileError(err))
	}
	file := os.NewFile(uintptr(fd), "softnd-closed")
	if err := unix.Ftruncate(fd, int64(a.geo.size)); err != nil {
		file.Close()
		return fmt.Errorf("ftruncate: %w", err)
	}
	a.private = file
	return nil
}

// replacePages maps the private file from start to end.
func (a *Arena) replacePages(start, end uint64) error {
	if err := a.makePrivate(); err != nil {
		return err
	}
	part := a.mem[start:end]
	at := unsafe.Pointer(unsafe.SliceData(part))
	if _, err := unix.MmapPtr(int(a.private.Fd()), int64(start), at, uintptr(len(part)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("mmap of %d bytes: %w", len(part), err)
	}
	return ownProcessOnly(part)
}
