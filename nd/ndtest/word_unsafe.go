package ndtest

import (
	"sync/atomic"
	"unsafe"
)

// loadLastByte loads the last byte of b with an atomic load of its word. Loads after it see each store
// that the provider made before it stored that byte. b ends at an address that is a multiple of 8. Its
// length is 1, 2, 4 or a multiple of 8. If b is shorter than a word, the caller also owns the bytes of
// the word before b.
func loadLastByte(b []byte) byte {
	end := unsafe.Pointer(&b[len(b)-1])
	if len(b) >= 8 {
		w := atomic.LoadUint64((*uint64)(unsafe.Add(end, -7)))
		return (*[8]byte)(unsafe.Pointer(&w))[7]
	}
	w := atomic.LoadUint32((*uint32)(unsafe.Add(end, -3)))
	return (*[4]byte)(unsafe.Pointer(&w))[3]
}

// alignedOffset returns the index of the first byte of b at an address that is a multiple of 8.
func alignedOffset(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 8)
}
