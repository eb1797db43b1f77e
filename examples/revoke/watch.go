package main

import (
	"bytes"
	"encoding/binary"
)

// watch finds out which bytes of a memory change after a certain moment.
//
// Recording takes time, and a byte that changes before it is recorded is not counted. So record
// reads one word per stretch first, which takes a few microseconds. It reads the memory from its
// end, against the usual direction of transfers. A transfer that still runs then writes to bytes
// that are recorded already.
type watch struct {
	mem     []byte
	image   []byte
	samples []uint64
}

const (
	stretch = 64 << 10 // the last word of each is sampled
	chunk   = 64 << 10 // copied and compared at a time
)

func newWatch(mem []byte) *watch {
	return &watch{mem, make([]byte, len(mem)), make([]uint64, len(mem)/stretch)}
}

// record remembers the memory.
func (w *watch) record() {
	w.sample()
	w.copy()
}

func (w *watch) sample() {
	for i := len(w.samples) - 1; i >= 0; i-- {
		w.samples[i] = binary.NativeEndian.Uint64(w.mem[(i+1)*stretch-8:])
	}
}

func (w *watch) copy() {
	for end := len(w.mem); end > 0; end -= chunk {
		start := max(end-chunk, 0)
		copy(w.image[start:end], w.mem[start:end])
	}
	for i, word := range w.samples { // the older value counts
		binary.NativeEndian.PutUint64(w.image[(i+1)*stretch-8:], word)
	}
}

// changed returns the number of bytes that are not as recorded.
func (w *watch) changed() int { return different(w.mem, w.image) }

// different returns the number of positions at which two slices of one length differ.
func different(a, b []byte) int {
	n := 0
	for len(a) > 0 {
		k := min(len(a), chunk)
		if !bytes.Equal(a[:k], b[:k]) {
			for i := range k {
				if a[i] != b[i] {
					n++
				}
			}
		}
		a, b = a[k:], b[k:]
	}
	return n
}

// zeros is what memory is compared with that no transfer has reached.
var zeros [chunk]byte

// explain compares memory, which was zero at first, with the transfers that were made: those in
// done one after the other, and part of failed. begun reports whether failed had begun to change
// the memory. wrong is the number of bytes that come from none of the transfers, or from one that a
// later one has overwritten.
//
// A failed transfer may have left any of its bytes, so each byte in its range may be the old one
// or the new one.
func explain(mem, pattern []byte, done []transfer, failed transfer) (begun bool, wrong int) {
	after := failed.of(pattern)
	check := func(start, end int, before []byte) {
		overlap := min(max(start, failed.size), end) // from here on failed has no say
		for start < overlap {
			stop := min(start+chunk/16, overlap)
			m, old, new := mem[start:stop], before[:stop-start], after[start:stop]
			if !bytes.Equal(m, old) {
				for i := range m {
					begun = begun || m[i] != old[i] && m[i] == new[i]
					if m[i] != old[i] && m[i] != new[i] {
						wrong++
					}
				}
			}
			start, before = stop, before[stop-start:]
		}
		wrong += different(mem[start:end], before)
	}
	// From the last transfer back: all begin at the start of the memory, so each shows only
	// beyond the end of the longest later one.
	shown := 0
	for i := len(done) - 1; i >= 0; i-- {
		if t := done[i]; t.size > shown {
			check(shown, t.size, t.of(pattern)[shown:])
			shown = t.size
		}
	}
	if shown < failed.size {
		check(shown, failed.size, make([]byte, failed.size-shown))
		shown = failed.size
	}
	for start := shown; start < len(mem); start += len(zeros) {
		end := min(start+len(zeros), len(mem))
		wrong += different(mem[start:end], zeros[:end-start])
	}
	return begun, wrong
}
