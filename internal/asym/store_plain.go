//go:build !amd64 || race

package asym

import "sync/atomic"

// StoreRelease stores a word with release order: after every store before it. It need not order later loads.
func StoreRelease(w *atomic.Uint64, v uint64) { w.Store(v) }

// StoreReleasePointer is StoreRelease for a pointer.
func StoreReleasePointer[T any](w *atomic.Pointer[T], v *T) { w.Store(v) }

// StoreRelease32 is StoreRelease for a word of 32 bits.
func StoreRelease32(w *atomic.Uint32, v uint32) { w.Store(v) }
