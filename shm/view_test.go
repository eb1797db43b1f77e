package shm

import (
	"errors"
	"math"
	"testing"
)

func TestViewsAreChecked(t *testing.T) {
	a := fakeArena(0)
	size := Offset(a.geo.size)
	type pair [2]uint64
	for _, tc := range []struct {
		name string
		off  Offset
		ok   bool
	}{
		{"start", 0, true},
		{"last that fits", size - 16, true},
		{"half outside", size - 8, false},
		{"at the end", size, false},
		{"beyond", size + 8, false},
		{"far beyond", math.MaxUint64 - 7, false},
		{"end wraps", math.MaxUint64 - 15, false},
		{"odd", 12, false},
	} {
		if p, err := At[pair](a, tc.off); (err == nil) != tc.ok || !tc.ok && !errors.Is(err, ErrDamaged) {
			t.Errorf("At, %s: %v, %v", tc.name, p, err)
		}
	}
	for _, tc := range []struct {
		name string
		off  Offset
		n    uint64
		ok   bool
	}{
		{"all", 0, uint64(size), true},
		{"nothing at the end", size, 0, true},
		{"one at the end", size, 1, false},
		{"one too many", 1, uint64(size), false},
		{"length wraps", 8, math.MaxUint64, false},
		{"sum wraps", math.MaxUint64 - 7, 8, false},
		{"offset beyond", size + 1, 0, false},
	} {
		b, err := a.Bytes(tc.off, tc.n)
		if (err == nil) != tc.ok || !tc.ok && !errors.Is(err, ErrDamaged) {
			t.Errorf("Bytes, %s: %d bytes, %v", tc.name, len(b), err)
		}
		if tc.ok && (uint64(len(b)) != tc.n || len(b) != cap(b)) {
			t.Errorf("Bytes, %s: length %d, capacity %d, want %d", tc.name, len(b), cap(b), tc.n)
		}
	}
}

func TestSlicesAreChecked(t *testing.T) {
	a := fakeArena(0)
	size := a.geo.size
	for _, tc := range []struct {
		name string
		off  Offset
		n    uint64
		ok   bool
	}{
		{"all", 0, size / 16, true},
		{"one too many", 0, size/16 + 1, false},
		{"the last one", Offset(size) - 16, 1, true},
		{"over the end", Offset(size) - 16, 2, false},
		{"none at the end", Offset(size), 0, true},
		{"odd", 12, 1, false},
		{"so many that the size wraps", 0, 1 << 60, false},
		{"an offset that wraps", math.MaxUint64 - 7, 1, false},
	} {
		s, err := Slice[[2]uint64](a, tc.off, tc.n)
		if (err == nil) != tc.ok || !tc.ok && !errors.Is(err, ErrDamaged) || tc.ok && uint64(len(s)) != tc.n {
			t.Errorf("%s: %d, %v", tc.name, len(s), err)
		}
	}
}

func TestLocateFindsOffsets(t *testing.T) {
	a := fakeArena(0)
	size := a.geo.size
	for _, at := range [][2]uint64{{0, 1}, {0, size}, {100, 7}, {size - 1, 1}, {4096, 0}} {
		b, err := a.Bytes(Offset(at[0]), at[1])
		if err != nil {
			t.Fatal(err)
		}
		if off, ok := a.Locate(b); at[1] != 0 && (!ok || off != Offset(at[0])) {
			t.Errorf("bytes at %v are located at %d, %v", at, off, ok)
		}
	}
	inside := a.mem[10:20]
	if off, ok := a.Locate(inside[:0]); !ok || off != 10 {
		t.Errorf("an empty slice with room inside the arena: %d, %v", off, ok)
	}
	whole := make([]byte, size)
	for name, b := range map[string][]byte{"nil": nil, "empty": {}, "elsewhere": whole[:8], "as large as the arena": whole} {
		if off, ok := a.Locate(b); ok {
			t.Errorf("%s: located at %d", name, off)
		}
	}
	a.mem = nil
	if b := inside[1:]; AddressOf(b) != AddressOf(inside)+1 {
		t.Errorf("addresses %#x and %#x", AddressOf(inside), AddressOf(b))
	}
	if _, ok := a.Locate(whole); ok {
		t.Error("located in a closed arena")
	}
}
