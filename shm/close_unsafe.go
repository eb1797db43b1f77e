package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// vacate puts empty pages in the place of the arena's, in one step. They are those of a
// memory file, since the kernel may refuse anonymous memory of that size
// (vm.overcommit_memory 2), and take up what is touched of them. The addresses are given
// back when the garbage collector finds that nothing refers to the arena. So a call that was
// interrupted between its check of the state and its access to the memory never finds
// another mapping there.
func (a *Arena) vacate() error {
	fd, err := unix.MemfdCreate("softnd-closed", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // see Create
		fd, err = unix.MemfdCreate("softnd-closed", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "softnd-closed")
	defer file.Close()
	size := uintptr(len(a.mem))
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	at := unsafe.Pointer(unsafe.SliceData(a.mem))
	if _, err := unix.MmapPtr(fd, 0, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("mmap of %d bytes: %w", size, err)
	}
	runtime.AddCleanup(a, func(mem mmap.MMap) { _ = mem.Unmap() }, a.mem)
	return notInherited(a.mem)
}
