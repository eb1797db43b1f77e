//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"unsafe"
)

// The stores of package atomic are full fences, which cost several times as much as a copy of 8 bytes. On amd64 a plain
// store of an aligned word is atomic, and becomes visible after every store before it. The compiler keeps stores in order.

// StoreRelease stores a word with release order: after every store before it. Later loads may be executed before it.
func StoreRelease(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// StoreReleasePointer is StoreRelease for a pointer.
func StoreReleasePointer[T any](w *atomic.Pointer[T], v *T) { *(**T)(unsafe.Pointer(w)) = v }

// StoreRelease32 is StoreRelease for a word of 32 bits.
//
//go:nosplit
func StoreRelease32(w *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(w)) = v }
