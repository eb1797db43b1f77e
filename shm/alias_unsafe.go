package shm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the size of the pages that [Arena.MapPages] maps, in bytes.
const PageSize = 4096

// alias is a second mapping of pages of the arena in this process.
type alias struct {
	at   unsafe.Pointer
	size uintptr
}

// MapPages maps one or more pages of the arena a second time, at consecutive addresses and in any
// order; a page may occur several times. Each page must be reserved, and must belong to the caller
// until unmap, which removes the mapping. The pages stay in the arena.
//
// Errors: [ErrDamaged] if an offset is not that of a page of the arena; the error of mmap if the
// process has no address space or no mappings left, or if the kernel's pages are larger than
// PageSize.
func (a *Arena) MapPages(pages []Offset) (mem []byte, unmap func() error, err error) {
	for _, page := range pages {
		if err := a.check(page, PageSize, PageSize); err != nil {
			return nil, nil, err
		}
	}
	size := uintptr(len(pages)) * PageSize
	at, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, mmapError(uint64(size), err)
	}
	s := &alias{at, size}
	err = a.useFile(func(fd int) error { return s.show(fd, pages) })
	if err == nil {
		err = ownProcessOnly(s.bytes())
	}
	if err == nil && a.dumps {
		err = unix.Madvise(s.bytes(), unix.MADV_DODUMP)
	}
	if err != nil {
		_ = s.unmap()
		return nil, nil, err
	}
	return s.bytes(), s.unmap, nil
}

// show maps pages of the file at consecutive addresses.
func (s *alias) show(fd int, pages []Offset) error {
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

// bytes returns the mapped memory.
func (s *alias) bytes() []byte { return unsafe.Slice((*byte)(s.at), s.size) }

// unmap removes the mapping.
func (s *alias) unmap() error { return unix.MunmapPtr(s.at, s.size) }
