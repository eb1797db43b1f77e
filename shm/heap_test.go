package shm

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestHeapAllocatesBySizeClass(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	for _, tc := range []struct{ n, takes uint64 }{
		{1, 64}, {63, 64}, {64, 64}, {65, 128}, {4096, 4096}, {4097, 8192},
		{32767, 32768}, {32768, 32768}, {32769, chunkSize}, {chunkSize, chunkSize},
		{chunkSize + 1, 2 * chunkSize}, {10*chunkSize - 1, 10 * chunkSize},
	} {
		before := h.InUse()
		off, err := h.Alloc(tc.n)
		if err != nil {
			t.Fatalf("%d bytes: %v", tc.n, err)
		}
		if got := h.InUse() - before; got != tc.takes {
			t.Errorf("%d bytes take %d, want %d", tc.n, got, tc.takes)
		}
		if align := min(tc.takes, chunkSize); uint64(off)%align != 0 || off < a.geo.heap {
			t.Errorf("%d bytes lie at %#x", tc.n, off)
		}
		b, err := a.Bytes(off, tc.takes)
		if err != nil {
			t.Fatal(err)
		}
		if !isZero(b) {
			t.Errorf("%d bytes are not zero", tc.n)
		}
		fill(b, 0xa5)
		if err := h.Free(off); err != nil {
			t.Error(err)
		}
		if got := h.InUse(); got != before {
			t.Errorf("%d bytes in use after the free, %d before", got, before)
		}
	}
	if n := chunksOf(a, 0); n != 0 {
		t.Errorf("an empty heap owns %d chunks", n)
	}
}

// Coloured objects begin in as many different lines as their class has unused lines, stay within their
// allocation, and are zero when they are allocated again.
func TestHeapColorsObjects(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	for _, tc := range []struct{ n, takes, lines uint64 }{
		{1, 64, 1}, {64, 64, 1}, {65, 128, 1}, {4096, 4096, 1}, {4000, 4096, 2},
		{2049, 4096, 32}, {1136, 2048, 15}, {12928, 16384, 55}, {40_000, chunkSize, 1},
	} {
		if _, err := h.Alloc(tc.n); err != nil { // keeps the chunk allocated
			t.Fatal(err)
		}
		kept, inUse := maps.Clone(h.objects), h.InUse()
		for round := range 2 { // the second round reuses the objects of the first
			places, lines := make(map[Offset]bool), make(map[Offset]bool)
			for range 2 * tc.lines {
				off, err := h.AllocColored(tc.n)
				if err != nil {
					t.Fatalf("%d bytes: %v", tc.n, err)
				}
				b, err := a.Bytes(off, tc.n)
				if err != nil || !isZero(b) {
					t.Fatalf("%d bytes at %#x: %v, or not zero", tc.n, off, err)
				}
				fill(b, 0xa5)
				room := off &^ Offset(tc.takes-1)
				if uint64(off-room)+tc.n > tc.takes || off%64 != 0 || places[room] {
					t.Errorf("round %d: %d bytes lie at %#x, in room that is too small, or not theirs alone", round, tc.n, off)
				}
				places[room], lines[off-room] = true, true
			}
			if uint64(len(lines)) != tc.lines {
				t.Errorf("%d bytes begin in %d lines of %d, want %d", tc.n, len(lines), tc.takes, tc.lines)
			}
			for off := range h.objects {
				if _, ok := kept[off]; ok {
					continue
				}
				if err := h.Free(off); err != nil {
					t.Error(err)
				}
			}
			if h.InUse() != inUse {
				t.Errorf("%d bytes in use after the frees, %d before", h.InUse(), inUse)
			}
		}
	}
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func fill(b []byte, v byte) {
	for n := copy(b, []byte{v}); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func TestHeapRefusesBadArguments(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	if _, err := h.Alloc(0); err == nil {
		t.Error("0 bytes were allocated")
	}
	off, err := h.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []Offset{0, off + 1, off + 64, off - 64, a.geo.heap + chunkSize, 1 << 60} {
		if err := h.Free(wrong); err == nil {
			t.Errorf("free of %#x was accepted", wrong)
		}
	}
	if err := h.Free(off); err != nil {
		t.Error(err)
	}
	if err := h.Free(off); err == nil {
		t.Error("second free was accepted")
	}
}

func TestHeapZeroesAfterReuse(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	keep, err := h.Alloc(256) // keeps the chunk, so that its objects are reused
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{256, 3 * chunkSize} {
		first, err := h.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := a.Bytes(first, n)
		fill(b, 0xff)
		if err := h.Free(first); err != nil {
			t.Fatal(err)
		}
		second, err := h.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if second != first {
			t.Logf("%d bytes moved from %#x to %#x", n, first, second)
		}
		if b, _ := a.Bytes(second, n); !isZero(b) {
			t.Errorf("%d reused bytes are not zero", n)
		}
		if err := h.Free(second); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Free(keep); err != nil {
		t.Fatal(err)
	}
}

func TestHeapReservesAndReleasesPages(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	before := blocks(t, a)
	const n = 9<<20 + 1 // several steps of reservation and one byte
	off, err := h.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	if got := blocks(t, a); got < before+n {
		t.Errorf("%d bytes exist before they are touched, %d did before the alloc of %d", got, before, n)
	}
	if err := h.Free(off); err != nil {
		t.Fatal(err)
	}
	if got := blocks(t, a); got != before {
		t.Errorf("%d bytes exist after the free, %d did before", got, before)
	}
	// Small objects: the chunk is freed with its last object.
	var offs []Offset
	for range 3 * chunkSize / 1024 {
		off, err := h.Alloc(1000)
		if err != nil {
			t.Fatal(err)
		}
		offs = append(offs, off)
	}
	if got := blocks(t, a); got != before+3*chunkSize {
		t.Errorf("three chunks of small objects take %d bytes", got-before)
	}
	slices.Sort(offs)
	if len(slices.Compact(offs)) != len(offs) {
		t.Fatal("two objects at one place")
	}
	for i, off := range offs[1:] {
		if off-offs[i] < 1000 {
			t.Fatalf("objects at %#x and %#x overlap", offs[i], off)
		}
	}
	for _, off := range offs {
		if err := h.Free(off); err != nil {
			t.Fatal(err)
		}
	}
	if got := blocks(t, a); got != before {
		t.Errorf("%d bytes exist after all small objects are freed, %d did before", got, before)
	}
}

func TestHeapReportsFullArena(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	heap := a.geo.chunks * chunkSize
	var offs []Offset
	for range 3 {
		off, err := h.Alloc(heap / 4 / chunkSize * chunkSize)
		if err != nil {
			t.Fatal(err)
		}
		offs = append(offs, off)
	}
	used := 3 * (heap / 4 / chunkSize * chunkSize)
	_, err := h.Alloc(heap / 2)
	short, ok := errors.AsType[*NoMemoryError](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	if want := roundUp(heap/2, chunkSize); short.Requested != want || short.Available != heap-used || !strings.Contains(short.Limit, "arena's size") || short.Hint == "" {
		t.Errorf("wanted %d, left %d under %q; next: %q; want %d and %d", short.Requested, short.Available, short.Limit, short.Hint, want, heap-used)
	}
	if _, err := h.Alloc(1 << 60); !isNoMemory(err) {
		t.Errorf("very many bytes: %v", err)
	}
	// The failed call kept nothing, and the reported bytes can be allocated.
	off, err := h.Alloc(short.Available)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range append(offs, off) {
		if err := h.Free(off); err != nil {
			t.Error(err)
		}
	}
	if n := chunksOf(a, 0); n != 0 {
		t.Errorf("%d chunks are still owned", n)
	}
}

// churn allocates and frees at random. It fails if allocated memory is not zero, or if another member
// has changed it before it is freed.
func churn(m *Member, seed uint64, rounds int, between func(i int)) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	type object struct {
		off Offset
		n   uint64
	}
	var live []object
	mark := byte(m.ID().Slot() + 1)
	free := func(i int) error {
		o := live[i]
		live = slices.Delete(live, i, i+1)
		b, err := m.Arena().Bytes(o.off, o.n)
		if err != nil {
			return err
		}
		for _, at := range []uint64{0, o.n / 2, o.n - 1} {
			if b[at] != mark {
				return fmt.Errorf("byte %d of %d at %#x is %#x instead of %#x", at, o.n, o.off, b[at], mark)
			}
		}
		return m.heap.Free(o.off)
	}
	for i := range rounds {
		n := 1 + rng.Uint64N(300)
		switch rng.IntN(4) {
		case 0:
			n = 1 + rng.Uint64N(5*chunkSize)
		case 1:
			n = 1 + rng.Uint64N(chunkSize)
		}
		off, err := m.heap.Alloc(n)
		if err != nil {
			return err
		}
		b, err := m.Arena().Bytes(off, n)
		if err != nil {
			return err
		}
		if !isZero(b) {
			return fmt.Errorf("%d bytes at %#x are not zero", n, off)
		}
		fill(b, mark)
		live = append(live, object{off, n})
		if between != nil {
			between(i)
		}
		for len(live) > 12 || len(live) > 0 && rng.IntN(2) == 0 {
			if err := free(rng.IntN(len(live))); err != nil {
				return err
			}
		}
	}
	for len(live) > 0 {
		if err := free(0); err != nil {
			return err
		}
	}
	return nil
}

var roleChurn = proctest.Role("churn", func(self *proctest.Self) error {
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	var seed uint64
	var rounds int
	if _, err := fmt.Sscan(strings.Join(self.Args, " "), &seed, &rounds); err != nil {
		return err
	}
	if err := churn(m, seed, rounds, func(i int) {
		if i == 10 {
			self.Say("%d", m.ID())
		}
	}); err != nil {
		return err
	}
	return m.Leave()
})

func TestHeapsOfMembersNeverOverlap(t *testing.T) {
	a := newArena(t, 0)
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	var children []*proctest.Process
	for i := range 2 {
		children = append(children, proctest.StartWith(t, a.File(), roleChurn, i, rounds))
	}
	var done sync.WaitGroup
	watcher := join(t, a, NoRank)
	for i := range 3 {
		arena := a
		if i == 0 {
			arena = again(t, a)
		}
		m := join(t, arena, NoRank)
		done.Go(func() {
			if err := churn(m, 100+uint64(i), rounds, nil); err != nil {
				t.Error(err)
			}
			if n := chunksOf(a, m.slot); n != 0 || m.heap.InUse() != 0 {
				t.Errorf("%v is left with %d chunks and %d bytes", m.ID(), n, m.heap.InUse())
			}
		})
	}
	done.Wait()
	for _, c := range children {
		c.Wait()
	}
	watcher.CheckLiveness(noDrop)
	if left := (ownerMap{words: a.words(a.geo.chunkOwners, a.geo.chunks)}).largestFree(); left != a.geo.chunks {
		t.Errorf("%d of %d chunks are free in the end", left, a.geo.chunks)
	}
}

// Two members want more than half of the free chunks at the same time: always one of them succeeds.
func TestHeapFindsLongRunsUnderContention(t *testing.T) {
	a := newArena(t, 0)
	members := []*Member{join(t, a, NoRank), join(t, again(t, a), NoRank)}
	want := (a.geo.chunks/2 + 1) * chunkSize
	for range 20 {
		var done sync.WaitGroup
		var got [2]Offset
		for i, m := range members {
			done.Go(func() {
				off, err := m.heap.Alloc(want)
				if err == nil {
					got[i] = off
				} else if !isNoMemory(err) {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if (got[0] == 0) == (got[1] == 0) {
			t.Fatalf("allocations at %#x and %#x", got[0], got[1])
		}
		for i, off := range got {
			if off != 0 {
				if err := members[i].heap.Free(off); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestWindowBlocksAreClaimed(t *testing.T) {
	a := newArena(t, 0)
	m, other := join(t, a, NoRank), join(t, a, NoRank)
	seen := map[int]bool{}
	for range 5 {
		for _, m := range []*Member{m, other} {
			block, err := m.ClaimWindowBlock()
			if err != nil {
				t.Fatal(err)
			}
			if seen[block] || block < 0 || block >= windowBlocks {
				t.Errorf("block %d", block)
			}
			seen[block] = true
		}
	}
	if err := other.Leave(); err != nil {
		t.Fatal(err)
	}
	m.CheckLiveness(noDrop)
	words := a.words(a.geo.windowOwners, windowBlocks)
	owned := 0
	for i := range words {
		switch words[i].Load() {
		case 0:
		case uint32(m.slot) + 1:
			owned++
			words[i].Store(7)
		default:
			t.Errorf("block %d belongs to %d", i, words[i].Load())
		}
	}
	if owned != 5 {
		t.Errorf("%d blocks are the member's", owned)
	}
	for i := range words {
		words[i].Store(7)
	}
	if _, err := m.ClaimWindowBlock(); !errors.Is(err, ErrFull) {
		t.Errorf("claim from a full table: %v", err)
	}
}
