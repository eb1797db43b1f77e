package shm

import (
	"errors"
	"testing"
)

// The heap has everything back after a free, also the chunks that a search for huge pages has claimed beside them.
func TestPlacedMemoryIsFreedWhole(t *testing.T) {
	const size, before = 64 << 20, 10
	a, err := Create(Config{Size: roundUp(uint64(minimalArena(t)), chunkSize) + size})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	m := join(t, a, NoRank)
	if _, err := m.Alloc(before * chunkSize); err != nil { // so that a search for huge pages claims chunks on both sides of them
		t.Fatal(err)
	}
	all := m.heap.owners.largestFree()
	for _, p := range []Placement{{HugePages: true}, {Node: 1}, {HugePages: true, Node: 1}, {Node: 1023}} {
		for _, n := range []uint64{1, hugePage, hugePage + 1} {
			off, got, lacks, err := m.AllocPlaced(n, p)
			if err != nil || (got == p) == (lacks != nil) {
				t.Fatalf("%+v: got %+v, lacks %v, %v", p, got, lacks, err)
			}
			t.Logf("%+v: got %+v, lacks %v", p, got, lacks)
			want := roundUp(n, chunkSize)
			if got.HugePages {
				want = roundUp(n, hugePage)
				if off%hugePage != 0 {
					t.Errorf("%+v: offset %#x", p, off)
				}
			}
			if !got.HugePages && !p.HugePages || got.HugePages {
				if m.InUse() != want+before*chunkSize || chunksOf(a, m.slot) != int(want/chunkSize)+before {
					t.Errorf("%+v: %d bytes in %d chunks, want %d bytes", p, m.InUse(), chunksOf(a, m.slot), want)
				}
			}
			if err := m.Free(off); err != nil {
				t.Error(err)
			}
		}
	}
	if left := m.heap.owners.largestFree(); left != all || chunksOf(a, m.slot) != before {
		t.Errorf("%d chunks are free in one range, %d before", left, all)
	}
}

// An arena without room for huge pages gives others.
func TestPlacementWithoutRoom(t *testing.T) {
	a, err := Create(Config{Size: minimalArena(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	m := join(t, a, NoRank)
	off, got, lacks, err := m.AllocPlaced(100, Placement{HugePages: true})
	short, ok := errors.AsType[*NoMemoryError](lacks)
	if err != nil || got != (Placement{}) || !ok || short.Requested < hugePage {
		t.Errorf("got %+v, lacks %v, %v", got, lacks, err)
	}
	if err := m.Free(off); err != nil {
		t.Error(err)
	}
	if _, _, _, err := m.AllocPlaced(2*minHeap, Placement{HugePages: true, Node: 1}); err == nil {
		t.Error("more memory than the arena has")
	}
}

// minimalArena returns the size of the smallest arena.
func minimalArena(t *testing.T) uint64 {
	for size := uint64(chunkSize); size < maxSize; size += chunkSize {
		if _, err := geometryFor(size); err == nil {
			return size
		}
	}
	t.Fatal("no arena is large enough")
	return 0
}
