package endpoint

import (
	"slices"
	"sync"

	"github.com/softnd/softnd/shm"
)

// allocation is arena memory that Allocate has made. As on a card, the memory stays in place while any registration covers
// it: it is freed when its region is closed and the last of these registrations has ended.
type allocation struct {
	provider   *Provider
	offset     shm.Offset
	start, end uint64            // virtual addresses
	open       bool              // its region is not closed
	holds      map[*Provider]int // registrations, by provider
}

// allocations are those of all providers of the process, sorted by address: one job may register the memory of another.
var allocations struct {
	mu   sync.Mutex
	list []*allocation
}

// addAllocation makes mem, which is at off in the arena, known as memory that registrations hold.
func (p *Provider) addAllocation(off shm.Offset, mem []byte) *allocation {
	at := shm.AddressOf(mem)
	a := &allocation{provider: p, offset: off, start: at, end: at + uint64(len(mem)), open: true, holds: make(map[*Provider]int)}
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	allocations.list = slices.Insert(allocations.list, firstAllocation(at), a)
	return a
}

// firstAllocation returns the index of the first allocation that ends above an address. The caller holds allocations.mu.
func firstAllocation(at uint64) int {
	i, _ := slices.BinarySearchFunc(allocations.list, at, func(a *allocation, at uint64) int {
		if a.end <= at {
			return -1
		}
		return 1
	})
	return i
}

// holdMemory keeps the allocations that contain mem in place, until release is called. It reports how many bytes of mem
// they contain. Unless these are none or all bytes, it keeps none in place.
func (p *Provider) holdMemory(mem []byte) (held uint64, release func()) {
	at := shm.AddressOf(mem)
	end := at + uint64(len(mem))
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	first := firstAllocation(at)
	last := first
	for ; last < len(allocations.list) && allocations.list[last].start < end; last++ {
		a := allocations.list[last]
		held += min(a.end, end) - max(a.start, at)
	}
	if held == 0 || held < end-at {
		return held, nil
	}
	covering := slices.Clone(allocations.list[first:last])
	for _, a := range covering {
		a.holds[p]++
	}
	return held, func() {
		allocations.mu.Lock()
		defer allocations.mu.Unlock()
		for _, a := range covering {
			a.release(p, 1)
		}
	}
}

// close is called when the region of the allocation is closed.
func (a *allocation) close() {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	a.open = false
	a.freeUnused()
}

// release ends n registrations of a provider. The caller holds allocations.mu.
func (a *allocation) release(p *Provider, n int) {
	if a.holds[p] -= n; a.holds[p] == 0 {
		delete(a.holds, p)
	}
	a.freeUnused()
}

// freeUnused frees the memory if nothing keeps it in place. The caller holds allocations.mu.
func (a *allocation) freeUnused() {
	i := firstAllocation(a.start)
	if a.open || len(a.holds) > 0 || i == len(allocations.list) || allocations.list[i] != a {
		return
	}
	allocations.list = slices.Delete(allocations.list, i, i+1)
	// The offset is allocated memory of the member. If Free fails all the same, the kernel has not freed the pages
	// yet, or a peer has changed the allocation's owner.
	_ = a.provider.member.Free(a.offset)
}

// endAllocations forgets the provider's allocations, which the member's departure frees, and ends its registrations of
// other memory.
func (p *Provider) endAllocations() {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	allocations.list = slices.DeleteFunc(allocations.list, func(a *allocation) bool { return a.provider == p })
	for _, a := range slices.Clone(allocations.list) {
		if n := a.holds[p]; n > 0 {
			a.release(p, n)
		}
	}
}
