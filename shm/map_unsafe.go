package shm

import (
	"os"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of file, as a rule at a multiple of hugePage, which huge pages need.
func mapFile(file *os.File, size uint64) (mmap.MMap, error) {
	mem, err := mmap.MapRegion(file, int(size), mmap.RDWR, 0, 0)
	if err != nil || size < hugePage {
		return mem, err
	}
	end := unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), size)
	unused := (uintptr(end) - uintptr(size)) % hugePage
	if unused == 0 {
		return mem, nil
	}
	if err := mem.Unmap(); err != nil {
		return nil, err
	}
	// The kernel puts a mapping at the end of the free addresses as a rule. While the last ones are in use, that is a multiple.
	filler, err := unix.MmapPtr(-1, 0, unsafe.Add(end, -int(unused)), unused, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return mmap.MapRegion(file, int(size), mmap.RDWR, 0, 0)
	}
	mem, err = mmap.MapRegion(file, int(size), mmap.RDWR, 0, 0)
	_ = unix.MunmapPtr(filler, unused)
	if err != nil { // the limit of the address space leaves no room for both
		return mmap.MapRegion(file, int(size), mmap.RDWR, 0, 0)
	}
	return mem, nil
}
