package shm

import (
	"bytes"
	"errors"
	"testing"
)

func TestAliasMapsPagesInAnyOrder(t *testing.T) {
	m := join(t, newArena(t, 0), NoRank)
	off, err := m.heap.Alloc(16 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := m.Arena().Bytes(off, 16*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	page := func(i int) []byte { return mem[i*PageSize:][:PageSize] }
	order := []int{5, 6, 7, 0, 15, 0} // adjacent pages, and one page twice
	var pages []Offset
	for _, i := range order {
		fill(page(i), byte(i+1))
		pages = append(pages, off+Offset(i*PageSize))
	}
	seen, unmap, err := m.Arena().MapPages(pages)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Arena().Locate(seen); ok || len(seen) != len(order)*PageSize {
		t.Fatalf("%d bytes, in the arena: %v", len(seen), ok)
	}
	for at, i := range order {
		if !bytes.Equal(seen[at*PageSize:][:PageSize], page(i)) {
			t.Errorf("place %d does not show page %d", at, i)
		}
	}
	fill(seen[5*PageSize:], 77)
	if !bytes.Equal(page(0), bytes.Repeat([]byte{77}, PageSize)) || seen[3*PageSize] != 77 {
		t.Error("a byte stored through the alias is not in the page")
	}
	if err := unmap(); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []Offset{off + 1, off + 8, Offset(m.Arena().geo.size), 1<<64 - PageSize} {
		if _, _, err := m.Arena().MapPages([]Offset{off, wrong}); !errors.Is(err, ErrDamaged) {
			t.Errorf("page %#x: %v", uint64(wrong), err)
		}
	}
}

func TestOwnsChecksWholeRange(t *testing.T) {
	m := join(t, newArena(t, 0), NoRank)
	off, err := m.heap.Alloc(chunkSize)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off  Offset
		n    uint64
		want bool
	}{{off, chunkSize, true}, {off + 5, 7, true}, {off, chunkSize + 1, false}, {off - 1, 2, false}, {0, 1, false}, {Offset(m.Arena().geo.size), 1, false}} {
		if got := m.Owns(c.off, c.n); got != c.want {
			t.Errorf("%d bytes at %#x: %v", c.n, uint64(c.off), got)
		}
	}
}
