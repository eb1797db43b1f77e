package ndtest

import (
	"bytes"
	"encoding/binary"
)

// fill writes a pattern that depends on seed. The pattern of a shorter slice is a prefix of that of a
// longer one.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for at := 0; at < len(b); at += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		if len(b)-at >= 8 {
			binary.LittleEndian.PutUint64(b[at:], x)
			continue
		}
		for i := range b[at:] {
			b[at+i] = byte(x >> (8 * i))
		}
	}
}

// wantPattern checks that b has the pattern of fill with this seed.
func (s *side) wantPattern(b []byte, seed uint64) {
	want := make([]byte, len(b))
	fill(want, seed)
	s.wantEqual(b, want)
}

// wantEqual checks that b equals want.
func (s *side) wantEqual(b, want []byte) {
	if bytes.Equal(b, want) {
		return
	}
	for i := range b {
		if b[i] != want[i] {
			s.fatalf("byte %d of %d is %#x, want %#x", i, len(b), b[i], want[i])
		}
	}
}

// wantZero checks that all bytes of b are 0.
func (s *side) wantZero(b []byte) {
	for i := range b {
		if b[i] != 0 {
			s.fatalf("byte %d of %d is %#x, want 0", i, len(b), b[i])
		}
	}
}
