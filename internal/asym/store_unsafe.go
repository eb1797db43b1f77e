//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"unsafe"
)

// The stores of package atomic are full barriers, which cost a copy of 8 bytes several times over. On amd64 a plain store
// of an aligned word becomes visible in one piece, after every store before it. The compiler keeps stores in order.

// Store stores a word after everything before it. It does not keep what follows behind it: later loads may come first.
func Store(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// StorePointer is Store for a pointer.
func StorePointer[T any](w *atomic.Pointer[T], v *T) { *(**T)(unsafe.Pointer(w)) = v }

// Store32 is Store for a word of 32 bits.
//
//go:nosplit
func Store32(w *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(w)) = v }
