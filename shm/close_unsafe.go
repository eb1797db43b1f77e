package shm

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// replaceMapping atomically replaces the arena's pages in this process by pages of an empty memory
// file. A call that passed its check of the state before Close, and accesses the memory after it,
// then stores into that file. Anonymous memory of this size may be refused by the kernel
// (vm.overcommit_memory 2); a memory file takes up only what is touched. The addresses stay in use
// until the garbage collector finds that nothing refers to the arena, so no other mapping takes
// them before.
func (a *Arena) replaceMapping() error {
	fd, err := makeFile("softnd-closed", 0)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", fileError(err))
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
	return ownProcessOnly(a.mem)
}
