package linux

// TWIN c/src/linux/placement.c.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the kernel places memory: in huge pages or small ones, on which NUMA node, and whether page tables have it already.

// Collapse moves memory of a shared file into huge pages. It begins at a multiple of their size, in memory and in the
// file, and has whole huge pages.
func Collapse(mem []byte) error {
	const tries = 3
	var err error
	for range tries {
		if err = unix.Madvise(mem, unix.MADV_COLLAPSE); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("huge pages: the kernel has given none (madvise(MADV_COLLAPSE): %w)", err)
	}
	return nil
}

// Prefault fills the page tables of this process for the pages of mem, for writing or for reading only.
func Prefault(mem []byte, write bool) error {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	end := (start + uintptr(len(mem)) + page - 1) / page * page
	start = start / page * page
	advice, name := uintptr(unix.MADV_POPULATE_READ), "MADV_POPULATE_READ"
	if write {
		advice, name = unix.MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE"
	}
	e := unix.EINTR
	for e == unix.EINTR {
		_, _, e = unix.Syscall(unix.SYS_MADVISE, start, end-start, advice)
	}
	runtime.KeepAlive(mem)
	if e != 0 {
		return fmt.Errorf("prefault: madvise(%s): %w", name, e)
	}
	return nil
}

// The values of linux/mempolicy.h.
const (
	preferred = 1 // MPOL_PREFERRED
	nodeOf    = 3 // MPOL_F_NODE | MPOL_F_ADDR
)

// OnNode calls f, during which the kernel takes new memory of this thread from a NUMA node. If the node has not enough, it takes other
// memory. If the kernel refuses the node, OnNode calls f all the same.
//
// Errors: why the kernel has refused the node.
func OnNode(node int, f func()) error {
	var mode int32
	var before, wanted unix.CPUSet // a set of nodes has the same form
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, e := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&before)), unsafe.Sizeof(before)*8, 0, 0, 0)
	if e != 0 {
		f()
		return fmt.Errorf("NUMA node %d: get_mempolicy: %w", node, e)
	}
	wanted.Set(node)
	if err := unix.SetMemPolicy(preferred, &wanted); err != nil {
		f()
		return fmt.Errorf("NUMA node %d: set_mempolicy: %w", node, err)
	}
	f()
	return unix.SetMemPolicy(int(mode), &before)
}

// IsOnNode checks that all pages of mem are on a NUMA node. step is the size of the pages.
func IsOnNode(mem []byte, node, step int) error {
	for at := 0; at < len(mem); at += step {
		var found int32
		_, _, e := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&found)), 0, 0, uintptr(unsafe.Pointer(&mem[at])), nodeOf, 0)
		if e != 0 {
			return fmt.Errorf("NUMA node %d: get_mempolicy: %w", node, e)
		}
		if int(found) != node {
			return fmt.Errorf("NUMA node %d: a page is on node %d, because the node has too little free memory", node, found)
		}
	}
	return nil
}
