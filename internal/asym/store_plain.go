//go:build !amd64 || race

package asym

import "sync/atomic"

// Store stores a word after everything before it. It need not keep what follows behind it.
func Store(w *atomic.Uint64, v uint64) { w.Store(v) }

// StorePointer is Store for a pointer.
func StorePointer[T any](w *atomic.Pointer[T], v *T) { w.Store(v) }

// Store32 is Store for a word of 32 bits.
func Store32(w *atomic.Uint32, v uint32) { w.Store(v) }
