package shm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the size of the pages that an [Alias] maps, in bytes.
const PageSize = 4096

// Alias is a second mapping of pages of the arena in this process. It maps them at consecutive
// addresses, in any order; a page may occur several times.
type Alias struct {
	at   unsafe.Pointer
	size uintptr
}

// NewAlias maps one or more pages at consecutive addresses. Each page must be reserved, and must
// belong to the caller until Close.
//
// Errors: [ErrDamaged] if an offset is not that of a page of the arena; the error of mmap if the
// process has no address space or no mappings left, or if the kernel's pages are larger than
// PageSize.
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
		err = ownProcessOnly(alias.Bytes())
	}
	if err != nil {
		alias.Close()
		return nil, err
	}
	return alias, nil
}

// show maps pages of the file at consecutive addresses.
func (s *Alias) show(fd int, pages []Offset) error {
	for i := 0; i < len(pages); {
		n := 1 // one call maps a run of adjacent pages
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

// Bytes returns the mapped memory, which must not be accessed after Close.
func (s *Alias) Bytes() []byte { return unsafe.Slice((*byte)(s.at), s.size) }

// Close unmaps the addresses. The pages stay in the arena.
func (s *Alias) Close() error { return unix.MunmapPtr(s.at, s.size) }
