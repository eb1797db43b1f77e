package ring

import (
	"fmt"
	"structs"
	"sync/atomic"
	"unsafe"
)

// SlotSize is the size of a slot in bytes: one cache line.
const SlotSize = 64

// Slot is one slot of a ring in shared memory.
type Slot struct {
	_     structs.HostLayout
	seq   atomic.Uint64 // number of the entry, from 0, plus one
	words Words
}

const wordCount = 7

// Words are the words of one entry.
type Words [wordCount]uint64

// Bytes returns the words from index first on as bytes.
func (w *Words) Bytes(first int) []byte {
	words := w[first:]
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}

// check returns an error unless slots can be a ring.
func check(slots []Slot) error {
	n := len(slots)
	if n == 0 || n&(n-1) != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(slots)))%SlotSize != 0 {
		return fmt.Errorf("ring of %d slots at %p: want a power of two of slots that begin on a line of %d bytes", n, slots, SlotSize)
	}
	return nil
}

func _() { // a compile error here (constant or index) means that the shared layout has changed
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(Slot{}.words)-8], at[unsafe.Sizeof(Slot{})-SlotSize]
}
