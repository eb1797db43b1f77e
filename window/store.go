//go:build !amd64 || race

package window

import "sync/atomic"

// See store_unsafe.go.

func storeBefore(w *atomic.Uint64, v uint64) { w.Store(v) }
func storeAfter(w *atomic.Uint64, v uint64)  { w.Store(v) }
