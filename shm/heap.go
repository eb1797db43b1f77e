package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// smallest and largest size classes of the small-object allocator, as powers
// of two. Anything larger takes whole chunks.
const (
	smallestClass = 6 // 64 bytes
	largestClass  = 15
)

const claimTries = 16

// lineSize is the unit in which a processor's cache holds memory.
const lineSize = 64

// Heap allocates arena memory for one member. Whole chunks are claimed in the
// shared ownership map, one compare-and-swap a chunk; small objects are carved
// out of the member's own chunks by process-local code. Memory is zeroed, its
// pages exist, and it is aligned to 64 bytes at least.
//
// When the member dies its chunks are found by its number in the map.
// Safe for concurrent use.
type Heap struct {
	arena *Arena

	mu      sync.Mutex
	owners  holdings
	hint    uint64
	free    [largestClass + 1][]Offset // free small objects, by class
	carved  map[uint64]*carvedChunk    // chunk -> what was carved out of it
	objects map[Offset]uint64          // allocated bytes of each live object
	spread  uint64                     // objects of AllocSpread so far
}

type carvedChunk struct {
	class int
	used  int
}

func newHeap(a *Arena, slot int) *Heap {
	return &Heap{
		arena:   a,
		owners:  newHoldings(a.words(a.geo.chunkOwners, a.geo.chunks), slot),
		carved:  make(map[uint64]*carvedChunk),
		objects: make(map[Offset]uint64),
	}
}

// Alloc returns n > 0 bytes of zeroed arena memory.
//
// Errors: [ErrShortage] (see [ShortageError]) when the arena, the machine or
// the memory cgroup has not enough left. Nothing is allocated then.
func (h *Heap) Alloc(n uint64) (Offset, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alloc(n)
}

// AllocSpread is Alloc for objects of which a program may have many, and use them in
// turn. Objects lie at multiples of a power of two, so the same word of each would have
// to share few places of a processor's cache. Of the room that an object of these does
// not need, it leaves a line more before it each time.
//
// Errors: as for Alloc.
func (h *Heap) AllocSpread(n uint64) (Offset, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	off, err := h.alloc(n)
	if err != nil || n > 1<<largestClass {
		return off, err
	}
	size := h.objects[off]
	delete(h.objects, off)
	h.spread++
	off += Offset(h.spread % ((size-n)/lineSize + 1) * lineSize)
	h.objects[off] = size
	return off, nil
}

func (h *Heap) alloc(n uint64) (Offset, error) {
	if n == 0 {
		return 0, errors.New("shm: alloc of 0 bytes")
	}
	if n > h.arena.geo.size {
		return 0, h.full(n)
	}
	class := max(bits.Len64(n-1), smallestClass)
	if class > largestClass {
		chunks := roundUp(n, ChunkSize) / ChunkSize
		first, err := h.claim(chunks)
		if err != nil {
			return 0, err
		}
		off := h.chunkOffset(first)
		h.objects[off] = chunks * ChunkSize
		return off, nil
	}
	if len(h.free[class]) == 0 {
		if err := h.carve(class); err != nil {
			return 0, err
		}
	}
	list := h.free[class]
	off := list[len(list)-1]
	h.free[class] = list[:len(list)-1]
	h.carved[h.chunkOf(off)].used++
	h.objects[off] = 1 << class
	return off, nil
}

// Free returns what Alloc gave. The caller has made sure that no other member
// uses the memory any more. Whole chunks go back to the system.
func (h *Heap) Free(off Offset) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.objects[off]
	if !ok {
		return fmt.Errorf("shm: free of offset %#x: no object of this member lies there", uint64(off))
	}
	delete(h.objects, off)
	chunk := h.chunkOf(off)
	c := h.carved[chunk]
	if c == nil {
		return h.unclaim(chunk, n/ChunkSize)
	}
	base := h.chunkOffset(chunk)
	off = base + (off-base)>>c.class<<c.class // where the room begins that AllocSpread may have left before it
	b, err := h.arena.Bytes(off, n)
	if err != nil {
		return err
	}
	clear(b)
	h.free[c.class] = append(h.free[c.class], off)
	if c.used--; c.used > 0 {
		return nil
	}
	delete(h.carved, chunk)
	h.free[c.class] = slices.DeleteFunc(h.free[c.class], func(o Offset) bool { return h.chunkOf(o) == chunk })
	return h.unclaim(chunk, 1)
}

// InUse returns the bytes allocated and not freed.
func (h *Heap) InUse() (n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, size := range h.objects {
		n += size
	}
	return n
}

func (h *Heap) chunkOffset(i uint64) Offset { return h.arena.geo.heap + Offset(i*ChunkSize) }
func (h *Heap) chunkOf(off Offset) uint64   { return uint64(off-h.arena.geo.heap) / ChunkSize }

// carve claims a chunk and cuts it into objects of one class.
func (h *Heap) carve(class int) error {
	chunk, err := h.claim(1)
	if err != nil {
		return err
	}
	h.carved[chunk] = &carvedChunk{class: class}
	base := h.chunkOffset(chunk)
	for off := ChunkSize - 1<<class; off >= 0; off -= 1 << class { // so that the lowest is used first
		h.free[class] = append(h.free[class], base+Offset(off))
	}
	return nil
}

func (h *Heap) claim(chunks uint64) (first uint64, err error) {
	first, ok := h.owners.claimRun(h.hint, chunks)
	// Two members that claim long runs may each find the other's half-made
	// one in the way, and both give up: look again while there is room.
	for range claimTries {
		if ok || h.owners.largestFree() < chunks {
			break
		}
		Yield()
		first, ok = h.owners.claimRun(h.hint, chunks)
	}
	if !ok {
		return 0, h.full(chunks * ChunkSize)
	}
	if err := h.arena.reserve(h.chunkOffset(first), chunks*ChunkSize); err != nil {
		return 0, errors.Join(err, h.unclaim(first, chunks))
	}
	h.hint = first + chunks
	return first, nil
}

// unclaim clears chunks before it gives them up: afterwards they may be another
// member's.
//
// Errors: [ErrDamaged] when some have become another member's already, which a
// peer has written into the map. Those are left as they are.
func (h *Heap) unclaim(first, chunks uint64) error {
	freed, err := h.owners.giveUp(first, chunks, func(first, n uint64) error {
		return h.arena.release(h.chunkOffset(first), n*ChunkSize)
	})
	h.hint = min(h.hint, first)
	if err == nil && freed < chunks {
		err = fmt.Errorf("shm: free of %d chunks at offset %#x: the table of owners names another owner for %d of them: %w",
			chunks, uint64(h.chunkOffset(first)), chunks-freed, ErrDamaged)
	}
	return err
}

// ownedBytes returns the n bytes at off if they lie in chunks of the heap that
// a member owns, whose pages therefore exist.
func (a *Arena) ownedBytes(id MemberID, off Offset, n uint64) ([]byte, error) {
	b, err := a.Bytes(off, n)
	if err != nil || n == 0 {
		return b, err
	}
	if off >= a.geo.heap {
		first, last := uint64(off-a.geo.heap)/ChunkSize, (uint64(off-a.geo.heap)+n-1)/ChunkSize
		owners, owner := a.words(a.geo.chunkOwners, a.geo.chunks), uint32(id.Slot())+1
		for first <= last && owners[first].Load() == owner { // orders nothing: what named the memory to us does
			first++
		}
		if first > last {
			return b, nil
		}
	}
	return nil, fmt.Errorf("shm: %d bytes at offset %#x do not belong to %v: %w", n, uint64(off), id, ErrDamaged)
}

// Owns tells whether n bytes at off lie in the peer's heap memory, so that their
// pages exist and belong to nobody else.
func (p *Peer) Owns(off Offset, n uint64) bool {
	_, err := p.arena.ownedBytes(p.id, off, n)
	return err == nil
}

// Owns tells whether n bytes at off lie in heap memory of the member's own.
func (m *Member) Owns(off Offset, n uint64) bool {
	_, err := m.arena.ownedBytes(m.id, off, n)
	return err == nil
}

func (h *Heap) full(wanted uint64) error {
	return &ShortageError{Wanted: wanted, Left: h.owners.largestFree() * ChunkSize,
		Limit: fmt.Sprintf("the arena's size (largest free run; the arena has %d bytes in all)", h.arena.geo.size),
		Next:  "free memory or start the job with a larger arena"}
}
