package shm

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A peer can write any word of the owner map. The heap relies on its private notes.
func TestHeapSurvivesClearedChunkWords(t *testing.T) {
	a := newArena(t, 0)
	h := join(t, a, NoRank).heap
	words := a.words(a.geo.chunkOwners, a.geo.chunks)
	var objects []Offset
	taken := map[uint64]uint64{} // chunk -> size of its objects
	for round := range 3 {
		for _, n := range []uint64{64, 4096, chunkSize, 128, 3 * chunkSize, 32768} {
			off, err := h.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			for at := uint64(0); at < n; at += chunkSize {
				chunk := h.chunkOf(off + Offset(at))
				if size, ok := taken[chunk]; ok && (size != n || n >= chunkSize) {
					t.Errorf("round %d: chunk %d holds objects of %d bytes and of %d", round, chunk, size, n)
				}
				taken[chunk] = n
			}
			objects = append(objects, off)
			for i := range words {
				words[i].Store(0)
			}
			h.hint = 0
		}
	}
	slices.Sort(objects)
	if len(slices.Compact(slices.Clone(objects))) != len(objects) {
		t.Errorf("two objects lie in one place: %x", objects)
	}
	for _, off := range objects {
		if err := h.Free(off); err != nil {
			t.Error(err)
		}
	}
	if h.InUse() != 0 || chunksOf(a, 0) != 0 {
		t.Errorf("%d bytes and %d chunks are left", h.InUse(), chunksOf(a, 0))
	}
}

// A peer has given a chunk to another member: the former owner neither punches nor frees it.
func TestFreeKeepsChunksOfOtherMembers(t *testing.T) {
	a := newArena(t, 0)
	m, other := join(t, a, NoRank), join(t, a, NoRank)
	words := a.words(a.geo.chunkOwners, a.geo.chunks)
	for _, n := range []uint64{100, chunkSize, 3 * chunkSize} {
		off, err := m.heap.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		first := m.heap.chunkOf(off)
		words[first].Store(0) // a peer has cleared the word
		theirs, err := other.heap.Alloc(chunkSize)
		if err != nil {
			t.Fatal(err)
		}
		if theirs != m.heap.chunkOffset(first) {
			t.Fatalf("the other member has got offset %#x, not the chunk of %#x", theirs, off)
		}
		b, err := a.Bytes(theirs, chunkSize)
		if err != nil {
			t.Fatal(err)
		}
		fill(b[chunkSize/2:], 7) // past the small object, which its owner clears
		if err := m.heap.Free(off); !errors.Is(err, ErrDamaged) {
			t.Errorf("free of %d bytes, of which a chunk is another's: %v", n, err)
		}
		if slices.Contains(b[chunkSize/2:], 0) {
			t.Errorf("%d bytes: the free has punched out pages of the other member", n)
		}
		if got := words[first].Load(); got != other.heap.owners.self {
			t.Errorf("%d bytes: the chunk's owner is %d, want %d", n, got, other.heap.owners.self)
		}
		if chunksOf(a, m.slot) != 0 {
			t.Errorf("%d bytes: the other %d chunks were kept", n, chunksOf(a, m.slot))
		}
		if err := other.heap.Free(theirs); err != nil {
			t.Error(err)
		}
		// The former owner can claim the lost chunk again.
		if off, err = m.heap.Alloc(n); err != nil || m.heap.chunkOf(off) != first {
			t.Errorf("%d bytes lie at %#x, %v, want chunk %d", n, off, err, first)
		}
		if err := m.heap.Free(off); err != nil {
			t.Error(err)
		}
	}
}

func TestClearedBlockWordsAreNotClaimedTwice(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	words := a.words(a.geo.windowOwners, windowBlocks)
	seen := map[int]bool{}
	for range 10 {
		block, err := m.ClaimWindowBlock()
		if err != nil {
			t.Fatal(err)
		}
		if seen[block] {
			t.Fatalf("block %d was claimed twice", block)
		}
		seen[block] = true
		for i := range words {
			words[i].Store(0)
		}
	}
}

// Claimed memory reads as zero even if the kernel refuses to punch holes.
func TestMemoryIsClearedWithoutHolePunching(t *testing.T) {
	file := memfd(t, headerPage(testSize, nil), testSize, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	a, err := Attach(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	m := join(t, a, NoRank)
	// From here on, only existing mappings can write, and no hole can be punched.
	if _, err := unix.FcntlInt(a.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		t.Skipf("the kernel has no such seal: %v", err)
	}
	if err := a.punch(a.geo.heap, chunkSize); !errors.Is(err, unix.EPERM) {
		t.Fatalf("punching a hole: %v, want EPERM", err)
	}
	dirty := func(m *Member, n uint64) Offset {
		off, err := m.heap.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Bytes(off, n)
		if err != nil {
			t.Fatal(err)
		}
		if !isZero(b) {
			t.Errorf("%d bytes at %#x are not zero", n, off)
		}
		fill(b, 0xa5)
		return off
	}
	for range 2 {
		for _, n := range []uint64{chunkSize, 5 * chunkSize} {
			if err := m.heap.Free(dirty(m, n)); err != nil {
				t.Error(err)
			}
		}
	}
	leaver, err := a.Join(NoRank)
	if err != nil {
		t.Fatal(err)
	}
	dirty(leaver, 3*chunkSize)
	if err := leaver.Leave(); err != nil {
		t.Fatal(err)
	}
	m.CheckLiveness(noDrop)
	if n := chunksOf(a, leaver.slot); n != 0 {
		t.Errorf("%d chunks of the member that has left were kept", n)
	}
	dirty(m, 8*chunkSize)
}
