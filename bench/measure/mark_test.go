package measure

import "testing"

// TestMarkIsAtTheEnd: setting a mark changes only its own bytes, and they are the last ones.
func TestMarkIsAtTheEnd(t *testing.T) {
	for _, size := range []int{1, 2, 7, 8, 9, 15, 16, 63, 64, 4096} {
		for shift := range 8 {
			mem := aligned(size + 128)
			for i := range mem {
				mem[i] = 0x55
			}
			b := mem[64+shift:][:size]
			m := newMark(b)
			m.put(1)
			if !m.shows(1) || m.shows(2) || m.shows(0) {
				t.Errorf("%d bytes at %d: the mark does not show 1", size, shift)
			}
			m.put(2)
			if !m.shows(2) {
				t.Errorf("%d bytes at %d: the mark does not show 2", size, shift)
			}
			width := 1
			if size >= 8 && (size+shift)%8 == 0 {
				width = 8
			}
			for i := range mem {
				at := i - 64 - shift
				if own := at >= size-width && at < size; !own && mem[i] != 0x55 {
					t.Errorf("%d bytes at %d: byte %d was changed", size, shift, at)
				}
			}
			if b[size-width] != 2 {
				t.Errorf("%d bytes at %d: the mark is not in the last %d", size, shift, width)
			}
		}
	}
}
