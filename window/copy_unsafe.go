package window

// TWIN c/src/window/guard.c.

import (
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// copyOrdered copies source to sink, which have the same length, and stores the last word last and
// atomically: an atomic load that sees it also sees every byte before it. The last word is the last
// 8 bytes if they are aligned, else the last 4 if they are aligned, else the last byte.
func copyOrdered(sink, source []byte) {
	n := len(sink)
	if n == 0 {
		return
	}
	to, from := unsafe.Pointer(unsafe.SliceData(sink)), unsafe.Pointer(unsafe.SliceData(source[:n]))
	end := uintptr(to) + uintptr(n)
	switch {
	case n >= 8 && end%8 == 0:
		last := *(*uint64)(unsafe.Add(from, n-8)) // before the copy: the two may overlap
		copy(sink[:n-8], source)
		asym.StoreRelease((*atomic.Uint64)(unsafe.Add(to, n-8)), last)
	case n >= 4 && end%4 == 0:
		last := *(*uint32)(unsafe.Add(from, n-4))
		copy(sink[:n-4], source)
		asym.StoreRelease32((*atomic.Uint32)(unsafe.Add(to, n-4)), last)
	default:
		last := source[n-1]
		copy(sink[:n-1], source)
		// A store of one byte is atomic. The exchange of a private word keeps it
		// after the bytes before it.
		var fence atomic.Uint32
		fence.Swap(1)
		sink[n-1] = last
	}
}

// copyWord is copyOrdered for 8 bytes whose sink is aligned: one load and one store. For any other
// sink or length it copies nothing and returns false.
func copyWord(sink, source []byte) bool {
	to, from := unsafe.Pointer(unsafe.SliceData(sink)), unsafe.Pointer(unsafe.SliceData(source))
	if len(sink) != 8 || len(source) != 8 || uintptr(to)%8 != 0 {
		return false
	}
	asym.StoreRelease((*atomic.Uint64)(to), *(*uint64)(from))
	return true
}

// changeWord runs an atomic request of type t on the first 8 bytes of mem, and returns what they were. If they are not
// aligned, it changes nothing and returns false. Other processes may do the same, with the same instructions, at the same time.
func changeWord(mem []byte, t nd.RequestType, operand, swap uint64) (old uint64, isAligned bool) {
	at := unsafe.Pointer(unsafe.SliceData(mem[:8]))
	if uintptr(at)%8 != 0 {
		return 0, false
	}
	word := (*atomic.Uint64)(at)
	switch t {
	case nd.RequestFetchAndAdd:
		return word.Add(operand) - operand, true
	case nd.RequestSwap:
		return word.Swap(operand), true
	case nd.RequestCompareAndSwap:
	default:
		panic("window: no atomic is a " + t.String())
	}
	for !word.CompareAndSwap(operand, swap) {
		if old = word.Load(); old != operand { // else they have changed back
			return old, true
		}
	}
	return operand, true
}

// copyOneWord copies the 8 bytes of source to an offset of mem. The sink is aligned, and within mem.
func copyOneWord(mem []byte, offset uint64, source []byte) {
	sink := (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), offset))
	asym.StoreRelease(sink, *(*uint64)(unsafe.Pointer(unsafe.SliceData(source))))
}
