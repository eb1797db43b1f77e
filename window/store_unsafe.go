//go:build amd64 && !race

package window

import (
	"sync/atomic"
	"unsafe"
)

// The stores of package atomic are full barriers, which cost a copy of 8 bytes several times
// over. On amd64 a plain store of an aligned word becomes visible in one piece, after every
// store before it; more is not needed where these are used. The compiler keeps stores in order.

// storeBefore stores a word that others have to see when they see the exchange that follows it.
func storeBefore(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// storeAfter stores a word whose change tells that every store before it is done.
func storeAfter(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// storeLast64 stores the last word of a copy.
func storeLast64(p *uint64, v uint64) { *p = v }

// storeLast32 does the same.
func storeLast32(p *uint32, v uint32) { *p = v }
