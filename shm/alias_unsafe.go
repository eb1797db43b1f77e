package shm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the number of bytes of the pages that an [Alias] shows.
const PageSize = 4096

// Alias is a second place in this process's address space for pages of the
// arena: side by side, in any order, and as often as one likes.
type Alias struct {
	at   unsafe.Pointer
	size uintptr
}

// NewAlias shows pages, at least one, one after the other. Each offset must be
// that of a page whose memory exists and stays the caller's until Close.
//
// Errors: one that wraps [ErrDamaged] for an offset that is no page of the
// arena; that of mmap, when the address space or the number of mappings of the
// process is used up, or where the kernel's pages are larger than PageSize.
func (a *Arena) NewAlias(pages []Offset) (*Alias, error) {
	for _, page := range pages {
		if err := a.check(page, PageSize, PageSize); err != nil {
			return nil, err
		}
	}
	size := uintptr(len(pages)) * PageSize
	at, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes (address space limit? see ulimit -v): %w", size, err)
	}
	alias := &Alias{at, size}
	err = a.useFile(func(fd int) error { return alias.show(fd, pages) })
	if err == nil {
		err = notInherited(alias.Bytes())
	}
	if err != nil {
		alias.Close()
		return nil, err
	}
	return alias, nil
}

// show maps pages of the file one after the other.
func (s *Alias) show(fd int, pages []Offset) error {
	for i := 0; i < len(pages); {
		n := 1 // neighbours are mapped in one go
		for i+n < len(pages) && pages[i+n] == pages[i]+Offset(n*PageSize) {
			n++
		}
		_, err := unix.MmapPtr(fd, int64(pages[i]), unsafe.Add(s.at, i*PageSize), uintptr(n)*PageSize,
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			return fmt.Errorf("mmap of %d scattered pages (too many mappings? see vm.max_map_count): %w", len(pages), err)
		}
		i += n
	}
	return nil
}

// Bytes returns the memory. It must not be touched after Close.
func (s *Alias) Bytes() []byte { return unsafe.Slice((*byte)(s.at), s.size) }

// Close gives the addresses back; the pages stay where they are.
func (s *Alias) Close() error { return unix.MunmapPtr(s.at, s.size) }
