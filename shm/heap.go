package shm

// TWIN c/src/shm/heap.c.

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// Size classes of small objects, as powers of two. A larger object takes whole chunks.
const (
	smallestClass = 6 // 64 bytes
	largestClass  = 15
)

// claimTries is how often claim repeats a search for a run of chunks.
const claimTries = 16

// lineSize is the size of a cache line, in bytes.
const lineSize = 64

// heap allocates arena memory for one member. It claims whole chunks in the shared owner map, with
// one compare-and-swap for each chunk, and divides some of them into small objects. That division is
// private to the process. The memory is zeroed, reserved, and aligned to 64 bytes at least.
//
// When the member dies, other members find its chunks by its number in the map. Safe for concurrent
// use.
type heap struct {
	arena *Arena

	mu      sync.Mutex
	owners  claimMap
	hint    uint64
	free    [largestClass + 1][]Offset // free small objects, by size class
	carved  map[uint64]*carvedChunk    // chunks that are divided into small objects
	objects map[Offset]uint64          // bytes allocated for each live object
	colored uint64                     // number of objects from AllocColored so far
}

type carvedChunk struct {
	class int
	used  int
}

func newHeap(a *Arena, slot int) *heap {
	return &heap{
		arena:   a,
		owners:  newClaimMap(a.words(a.geo.chunkOwners, a.geo.chunks), slot),
		carved:  make(map[uint64]*carvedChunk),
		objects: make(map[Offset]uint64),
	}
}

// Alloc allocates n > 0 bytes of zeroed arena memory, aligned to 64 bytes at least. Other members find it
// by its owner when the member dies. Alloc, AllocColored and Free are safe for concurrent use.
//
// Errors: [NoMemoryError] if the arena, the machine or the memory cgroup does
// not have enough left. Alloc has allocated nothing then.
func (m *Member) Alloc(n uint64) (Offset, error) { return m.heap.Alloc(n) }

// AllocColored is Alloc with cache colouring, for objects of which a program has many and uses in
// turn. Objects begin at multiples of a power of two, so the same field of all objects would map to
// few sets of a processor's cache. AllocColored moves each object one cache line further into the
// unused part of its allocation than the previous object.
//
// Errors: as for Alloc.
func (m *Member) AllocColored(n uint64) (Offset, error) { return m.heap.AllocColored(n) }

// Free frees an object of Alloc or AllocColored. No other member may use the memory then. Pages of
// whole chunks return to the system.
//
// Errors: [ErrDamaged] if a peer has given chunks of the object to another member. Free leaves those
// chunks as they are.
func (m *Member) Free(off Offset) error { return m.heap.Free(off) }

// InUse returns the number of bytes that the member has allocated and not freed.
func (m *Member) InUse() uint64 { return m.heap.InUse() }

func (h *heap) Alloc(n uint64) (Offset, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alloc(n)
}

func (h *heap) AllocColored(n uint64) (Offset, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	off, err := h.alloc(n)
	if err != nil || n > 1<<largestClass {
		return off, err
	}
	size := h.objects[off]
	delete(h.objects, off)
	h.colored++
	off += Offset(h.colored % ((size-n)/lineSize + 1) * lineSize)
	h.objects[off] = size
	return off, nil
}

func (h *heap) alloc(n uint64) (Offset, error) {
	if n == 0 {
		return 0, errors.New("shm: alloc: size is 0: want at least 1 byte")
	}
	if n > h.arena.geo.size {
		return 0, h.arenaFull(n)
	}
	class := max(bits.Len64(n-1), smallestClass)
	if class > largestClass {
		chunks := roundUp(n, chunkSize) / chunkSize
		first, err := h.claim(chunks)
		if err != nil {
			return 0, err
		}
		off := h.chunkOffset(first)
		h.objects[off] = chunks * chunkSize
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

func (h *heap) Free(off Offset) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.objects[off]
	if !ok {
		return fmt.Errorf("shm: free offset %#x: this member has no object there", uint64(off))
	}
	delete(h.objects, off)
	chunk := h.chunkOf(off)
	c := h.carved[chunk]
	if c == nil {
		return h.unclaim(chunk, n/chunkSize)
	}
	base := h.chunkOffset(chunk)
	off = base + (off-base)>>c.class<<c.class // the start of the allocation, which AllocColored may have moved past
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

func (h *heap) InUse() (n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, size := range h.objects {
		n += size
	}
	return n
}

func (h *heap) chunkOffset(i uint64) Offset { return h.arena.geo.heap + Offset(i*chunkSize) }
func (h *heap) chunkOf(off Offset) uint64   { return uint64(off-h.arena.geo.heap) / chunkSize }

// carve claims a chunk and divides it into objects of one size class.
func (h *heap) carve(class int) error {
	chunk, err := h.claim(1)
	if err != nil {
		return err
	}
	h.carved[chunk] = &carvedChunk{class: class}
	base := h.chunkOffset(chunk)
	for off := chunkSize - 1<<class; off >= 0; off -= 1 << class { // so that alloc uses the lowest first
		h.free[class] = append(h.free[class], base+Offset(off))
	}
	return nil
}

func (h *heap) claim(chunks uint64) (first uint64, err error) {
	if first, err = h.search(chunks); err == nil {
		err = h.reserve(first, chunks)
	}
	return first, err
}

// search claims a run of free chunks.
func (h *heap) search(chunks uint64) (first uint64, err error) {
	first, ok := h.owners.claimRun(h.hint, chunks)
	// Two members that claim long runs can each fail because of the other's incomplete run. So
	// search again while a free run is long enough.
	for range claimTries {
		if ok || h.owners.largestFree() < chunks {
			break
		}
		linux.Yield()
		first, ok = h.owners.claimRun(h.hint, chunks)
	}
	if !ok {
		return 0, h.arenaFull(chunks * chunkSize)
	}
	return first, nil
}

// reserve allocates the pages of chunks that search has found. If it fails, it frees the chunks.
func (h *heap) reserve(first, chunks uint64) error {
	if err := h.arena.reserve(h.chunkOffset(first), chunks*chunkSize); err != nil {
		return errors.Join(err, h.unclaim(first, chunks))
	}
	failpoint.Reach(failpoint.PagesReserved)
	h.hint = first + chunks
	return nil
}

// unclaim clears chunks and then frees them: after that another member may claim them.
//
// Errors: [ErrDamaged] if a peer has written another member's number into the map. unclaim leaves
// those chunks as they are.
func (h *heap) unclaim(first, chunks uint64) error {
	freed, err := h.owners.free(first, chunks, func(first, n uint64) error {
		return h.arena.release(h.chunkOffset(first), n*chunkSize)
	})
	h.hint = min(h.hint, first)
	if err == nil && freed < chunks {
		err = fmt.Errorf("shm: free %d chunks at offset %#x: the owner map names another member for %d of them: %w",
			chunks, uint64(h.chunkOffset(first)), chunks-freed, ErrDamaged)
	}
	return err
}

// ownedBytes returns the n bytes at off if they are in heap chunks that the member owns. The pages
// of such chunks are reserved.
//
// Errors: [ErrDamaged].
func (a *Arena) ownedBytes(id MemberID, off Offset, n uint64) ([]byte, error) {
	b, err := a.Bytes(off, n)
	if err != nil || n == 0 {
		return b, err
	}
	if off >= a.geo.heap {
		first, last := uint64(off-a.geo.heap)/chunkSize, (uint64(off-a.geo.heap)+n-1)/chunkSize
		owners, owner := a.words(a.geo.chunkOwners, a.geo.chunks), uint32(id.Slot())+1
		for first <= last && owners[first].Load() == owner { // needs no ordering: the message that named the memory provides it
			first++
		}
		if first > last {
			return b, nil
		}
	}
	return nil, fmt.Errorf("shm: %d bytes at offset %#x do not belong to %v: %w", n, uint64(off), id, ErrDamaged)
}

// Owns reports whether the n bytes at off are in chunks that the peer owns, whose pages are
// therefore reserved.
func (p *Peer) Owns(off Offset, n uint64) bool {
	_, err := p.arena.ownedBytes(p.id, off, n)
	return err == nil
}

func (h *heap) arenaFull(wanted uint64) error {
	size := h.arena.geo.size
	name, hint := fmt.Sprintf("the arena's size of %d bytes", size), "free memory, or start the job with a larger arena (ndrun --arena-size)"
	if limit := limitOf(size); limit != "" {
		name, hint = name+", "+limit+",", "free memory, or raise the limit: ndinfo recommends a value"
	}
	return &NoMemoryError{Requested: wanted, Available: h.owners.largestFree() * chunkSize, Limit: name + " for one contiguous range", Hint: hint}
}
