package endpoint

// TWIN c/src/endpoint/mr_allocation.c.

import (
	"errors"
	"slices"
	"sync"
	"weak"

	"github.com/softnd/softnd/shm"
)

// allocation is arena memory that Allocate has made. As on a card, the memory stays in place while any registration covers
// it: it is freed when its region is closed and the last of these registrations has ended.
type allocation struct {
	provider   *Provider
	offset     shm.Offset
	start, end uint64            // virtual addresses
	open       bool              // its region is not closed
	left       bool              // its provider is closed, and the memory is private
	holds      map[*Provider]int // registrations, by provider
}

// allocations are those of all providers of the process, sorted by address: one job may register the memory of another.
var allocations struct {
	mu     sync.Mutex
	list   []*allocation
	arenas []weak.Pointer[shm.Arena] // that are mapped, or were
}

// addArena makes an arena known as memory that only regions may register.
func addArena(a *shm.Arena) {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	allocations.arenas = slices.DeleteFunc(allocations.arenas, func(p weak.Pointer[shm.Arena]) bool { return p.Value() == nil || p.Value() == a })
	allocations.arenas = append(allocations.arenas, weak.Make(a))
}

// meetsArena reports whether a part of mem is in an arena that the process has mapped.
func meetsArena(mem []byte) bool {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	return slices.ContainsFunc(allocations.arenas, func(p weak.Pointer[shm.Arena]) bool {
		a := p.Value()
		if a == nil {
			return false
		}
		_, first := a.Locate(mem[:1])
		_, last := a.Locate(mem[len(mem)-1:])
		return first || last
	})
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
	if a.left {
		return
	}
	// The offset is allocated memory of the member. If Free fails all the same, the kernel has not freed the pages
	// yet, or a peer has changed the allocation's owner.
	_ = a.provider.member.Free(a.offset)
}

// endAllocations ends the provider's registrations of other memory, and forgets its allocations, which the member's
// departure frees. Those that another provider has registered stay, with private pages.
func (p *Provider) endAllocations() error {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	var errs []error
	for _, a := range slices.Clone(allocations.list) {
		if a.provider == p {
			a.open, a.left = false, true
		}
		if n := a.holds[p]; n > 0 || a.left {
			a.release(p, n)
		}
		if a.provider == p && len(a.holds) > 0 {
			errs = append(errs, p.arena.Keep(a.offset, a.end-a.start))
		}
	}
	return errors.Join(errs...)
}
