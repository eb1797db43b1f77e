//go:build !amd64 || race

package window

import "sync/atomic"

// See store_unsafe.go.

func storeBefore(w *atomic.Uint64, v uint64) { w.Store(v) }
func storeAfter(w *atomic.Uint64, v uint64)  { w.Store(v) }

func storeLast64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
func storeLast32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
