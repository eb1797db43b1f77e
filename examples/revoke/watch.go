package main

import (
	"bytes"
	"encoding/binary"
)

// watch counts the bytes of a memory that change after a call of record.
//
// A change before its byte is recorded is not counted, and recording takes time. So record first
// reads one word per stretch, which takes a few microseconds. It then reads the memory from its end,
// against the direction of transfers. A transfer that still runs then writes to recorded bytes.
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

// record copies the memory.
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

// changed returns the number of bytes that differ from the recorded ones.
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

// zeros is the expected content of memory that no transfer has reached.
var zeros [chunk]byte

// explain compares memory, which was zero before, with the transfers of a round. The transfers in done
// have succeeded in this order. The transfer failed came last, and may have written any of its bytes.
//
// begun reports whether failed had begun to change the memory. wrong is the number of bytes that come
// from no transfer, or from one that a later transfer has overwritten.
func explain(mem, pattern []byte, done []transfer, failed transfer) (begun bool, wrong int) {
	after := failed.of(pattern)
	check := func(start, end int, before []byte) {
		overlap := min(max(start, failed.size), end) // failed writes no bytes from here on
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
	// All transfers begin at the start of the memory. So the bytes of a transfer remain only beyond
	// the end of the longest later one. Check the transfers from the last to the first.
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
