package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// At returns the structure of type T at off in the arena.
//
// T must not contain pointers. Each field that two processes access must be atomic, or protected by
// a protocol of its owner.
//
// Errors: [ErrDamaged] if the offset, which may come from a peer, is out of bounds or not aligned
// to 8 bytes.
func At[T any](a *Arena, off Offset) (*T, error) {
	var t T
	if err := a.check(off, uint64(unsafe.Sizeof(t)), 8); err != nil {
		return nil, err
	}
	return (*T)(unsafe.Pointer(&a.mem[off])), nil
}

// Bytes returns the n bytes of the arena at off.
//
// Errors: [ErrDamaged] if the range is out of bounds.
func (a *Arena) Bytes(off Offset, n uint64) ([]byte, error) {
	if err := a.check(off, n, 1); err != nil {
		return nil, err
	}
	return a.mem[off : uint64(off)+n : uint64(off)+n], nil
}

// HeapBytes returns the n bytes at off, or nil if the range is not in the heap.
func (a *Arena) HeapBytes(off Offset, n uint64) []byte {
	size := uint64(len(a.mem))
	if off < a.geo.heap || uint64(off) > size || n > size-uint64(off) {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(a.mem)), uintptr(off))), n)
}

func (a *Arena) check(off Offset, n, align uint64) error {
	size := uint64(len(a.mem))
	if uint64(off)%align != 0 || uint64(off) > size || n > size-uint64(off) {
		return fmt.Errorf("shm: object of %d bytes at offset %#x of an arena of %d bytes: %w", n, uint64(off), size, ErrDamaged)
	}
	return nil
}

// Locate returns the offset of b in the arena; ok is false if b is not, or not entirely, in this
// mapping of the arena.
func (a *Arena) Locate(b []byte) (off Offset, ok bool) {
	if len(a.mem) == 0 || cap(b) == 0 {
		return 0, false
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if at < base || at-base > uintptr(len(a.mem)) || uintptr(len(b)) > uintptr(len(a.mem))-(at-base) {
		return 0, false
	}
	return Offset(at - base), true
}

// AddressOf returns the virtual address of the first byte of b in this process.
func AddressOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func (a *Arena) header() *header { return (*header)(unsafe.Pointer(&a.mem[0])) }

func (a *Arena) member(slot int) *memberRecord {
	return (*memberRecord)(unsafe.Pointer(&a.mem[uint64(a.geo.memberTable)+uint64(slot)*memberStride]))
}

func (a *Arena) rankRecord(rank int) *rankRecord {
	return (*rankRecord)(unsafe.Pointer(&a.mem[uint64(a.geo.rankRecords)+uint64(rank)*rankRecordStride]))
}

// words returns a table of 32-bit words at a position from the geometry.
func (a *Arena) words(off Offset, n uint64) []atomic.Uint32 {
	_ = a.mem[off : uint64(off)+4*n]
	return unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(&a.mem[off])), n)
}

// Slice returns n consecutive structures of type T that begin at off. The conditions of [At]
// apply.
func Slice[T any](a *Arena, off Offset, n uint64) ([]T, error) {
	var t T
	size := uint64(unsafe.Sizeof(t))
	if n > uint64(len(a.mem))/size {
		return nil, fmt.Errorf("shm: %d objects of %d bytes at offset %#x: %w", n, size, uint64(off), ErrDamaged)
	}
	if err := a.check(off, n*size, 8); err != nil || n == 0 {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&a.mem[off])), n), nil
}
