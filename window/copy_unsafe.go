package window

import (
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/internal/asym"
)

// move copies source to sink, which have one length, and stores the last word
// last: whoever sees it with an atomic load sees everything before it. The
// last word is the last 8 bytes where those are aligned, else 4, else 1.
func move(sink, source []byte) {
	n := len(sink)
	if n == 0 {
		return
	}
	to, from := unsafe.Pointer(unsafe.SliceData(sink)), unsafe.Pointer(unsafe.SliceData(source[:n]))
	end := uintptr(to) + uintptr(n)
	switch {
	case n >= 8 && end%8 == 0:
		last := *(*uint64)(unsafe.Add(from, n-8)) // first: the two may overlap
		copy(sink[:n-8], source)
		asym.Store((*atomic.Uint64)(unsafe.Add(to, n-8)), last)
	case n >= 4 && end%4 == 0:
		last := *(*uint32)(unsafe.Add(from, n-4))
		copy(sink[:n-4], source)
		asym.Store32((*atomic.Uint32)(unsafe.Add(to, n-4)), last)
	default:
		last := source[n-1]
		copy(sink[:n-1], source)
		// A byte store is atomic by itself; an exchange on a word of our own
		// keeps it behind the bytes before it.
		var barrier atomic.Uint32
		barrier.Swap(1)
		sink[n-1] = last
	}
}

// moveWord is move for a single aligned word; false means that it is not one.
func moveWord(sink, source []byte) bool {
	to, from := unsafe.Pointer(unsafe.SliceData(sink)), unsafe.Pointer(unsafe.SliceData(source))
	if len(sink) != 8 || len(source) != 8 || uintptr(to)%8 != 0 {
		return false
	}
	asym.Store((*atomic.Uint64)(to), *(*uint64)(from))
	return true
}
