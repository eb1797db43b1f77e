package ndtest

import (
	"sync/atomic"
	"unsafe"
)

// loadLastByte loads the last byte of b with an atomic load of its word. What the provider has stored
// before it is seen afterwards. b ends at a multiple of 8 and is of 1, 2, 4 or a multiple of 8
// bytes; the bytes before a short one are the caller's too.
func loadLastByte(b []byte) byte {
	end := unsafe.Pointer(&b[len(b)-1])
	if len(b) >= 8 {
		w := atomic.LoadUint64((*uint64)(unsafe.Add(end, -7)))
		return (*[8]byte)(unsafe.Pointer(&w))[7]
	}
	w := atomic.LoadUint32((*uint32)(unsafe.Add(end, -3)))
	return (*[4]byte)(unsafe.Pointer(&w))[3]
}

// alignedOffset returns where the first byte of b is whose address is a multiple of 8.
func alignedOffset(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 8)
}
