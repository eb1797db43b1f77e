package shm

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of file, as a rule at a multiple of hugePage, which huge pages need.
func mapFile(file *os.File, size uint64) ([]byte, error) {
	at, err := mapAt(nil, file, size)
	if unused := uintptr(at) % hugePage; err == nil && unused != 0 && size >= hugePage {
		if err = unix.MunmapPtr(at, uintptr(size)); err == nil {
			at, err = mapAt(unsafe.Add(at, -int(unused)), file, size) // the addresses below the previous mapping are free as a rule
		}
	}
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), size), nil
}

// mapAt maps the file at an address, or elsewhere if that is in use.
func mapAt(at unsafe.Pointer, file *os.File, size uint64) (unsafe.Pointer, error) {
	return unix.MmapPtr(int(file.Fd()), 0, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmap(mem []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}
