package shm

// TWIN c/src/shm/heap.c.

import (
	"errors"
	"fmt"
	"os"

	"github.com/softnd/softnd/internal/linux"
)

// hugePage is the size of a huge page in bytes, if other pages have pageSize bytes.
const hugePage = 2 << 20

// Placement says where memory is to be. The zero value leaves it to the kernel.
type Placement struct {
	HugePages bool // the memory takes up whole huge pages
	Node      int  // NUMA node plus one; 0: any
}

// AllocPlaced is Alloc for memory with a placement. got is what the memory has of it, and lacks says why it has not the rest.
// With a placement, the memory takes up whole chunks.
func (m *Member) AllocPlaced(n uint64, p Placement) (off Offset, got Placement, lacks, err error) {
	if p == (Placement{}) || n == 0 || n > m.heap.arena.geo.size {
		off, err = m.heap.Alloc(n)
		return off, got, nil, err
	}
	return m.heap.allocPlaced(n, p)
}

func (h *heap) allocPlaced(n uint64, p Placement) (off Offset, got Placement, lacks, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	chunks, huge := roundUp(n, chunkSize)/chunkSize, false
	var first uint64
	if p.HugePages {
		whole := roundUp(n, hugePage) / chunkSize
		if first, lacks = h.searchHuge(whole); lacks == nil {
			chunks, huge = whole, true
		}
	}
	if !huge {
		if first, err = h.search(chunks); err != nil {
			return 0, got, nil, err
		}
	}
	reserve := func() { err = h.reserve(first, chunks) }
	onNode := error(nil)
	if p.Node == 0 {
		reserve()
	} else {
		onNode = linux.OnNode(p.Node-1, reserve)
	}
	if err != nil {
		return 0, got, nil, err
	}
	off = h.chunkOffset(first)
	h.objects[off] = chunks * chunkSize
	mem, step := h.arena.mem[off:off+Offset(chunks*chunkSize)], pageSize
	if huge {
		if lacks = linux.Collapse(mem); lacks == nil {
			got.HugePages, step = true, hugePage
		}
	}
	if p.Node != 0 {
		if onNode == nil {
			onNode = linux.IsOnNode(mem, p.Node-1, step)
		}
		if onNode == nil {
			got.Node = p.Node
		}
	}
	return off, got, errors.Join(lacks, onNode), nil
}

// searchHuge is search for chunks that begin a huge page, of the file and of this process.
func (h *heap) searchHuge(chunks uint64) (first uint64, err error) {
	const aligned = hugePage / chunkSize
	if page := os.Getpagesize(); page != pageSize {
		return 0, fmt.Errorf("huge pages: the kernel's pages have %d bytes, want %d", page, pageSize)
	}
	if AddressOf(h.arena.mem)%hugePage != 0 {
		return 0, fmt.Errorf("huge pages: the arena is mapped at %#x, which is no multiple of %d", AddressOf(h.arena.mem), hugePage)
	}
	first, err = h.search(chunks + aligned - 1)
	if err != nil {
		return 0, fmt.Errorf("huge pages: %w", err)
	}
	unused := -(uint64(h.arena.geo.heap)/chunkSize + first) % aligned
	h.unsearch(first, unused)
	h.unsearch(first+unused+chunks, aligned-1-unused)
	return first + unused, nil
}

// unsearch gives up chunks of a search that are not reserved yet.
func (h *heap) unsearch(first, chunks uint64) {
	_, _ = h.owners.free(first, chunks, func(_, _ uint64) error { return nil })
}
