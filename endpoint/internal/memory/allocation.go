// Package memory keeps allocated memory in place while a registration covers it, and knows what is bound on an endpoint.
package memory

// TWIN c/src/endpoint/mr_allocation.c.

import (
	"errors"
	"slices"
	"sync"
	"weak"

	"github.com/softnd/softnd/shm"
)

// Allocation is arena memory that Allocate has made. As on a card, the memory stays in place while any registration covers
// it: it is freed when its region is closed and the last of these registrations has ended.
type Allocation struct {
	member     *shm.Member
	offset     shm.Offset
	start, end uint64              // virtual addresses
	open       bool                // its region is not closed
	left       bool                // its provider is closed, and the memory is private
	holds      map[*shm.Member]int // registrations, by the member of their provider
}

// allocations are those of all providers of the process, sorted by address: one job may register the memory of another.
var allocations struct {
	mu     sync.Mutex
	list   []*Allocation
	arenas []weak.Pointer[shm.Arena] // that are mapped, or were
}

// AddArena makes an arena known as memory that only regions may register.
func AddArena(a *shm.Arena) {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	allocations.arenas = slices.DeleteFunc(allocations.arenas, func(p weak.Pointer[shm.Arena]) bool { return p.Value() == nil || p.Value() == a })
	allocations.arenas = append(allocations.arenas, weak.Make(a))
}

// MeetsArena reports whether a part of mem is in an arena that the process has mapped.
func MeetsArena(mem []byte) bool {
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

// Add makes mem, which m has allocated at off in its arena, known as memory that registrations hold.
func Add(m *shm.Member, off shm.Offset, mem []byte) *Allocation {
	at := shm.AddressOf(mem)
	a := &Allocation{member: m, offset: off, start: at, end: at + uint64(len(mem)), open: true, holds: make(map[*shm.Member]int)}
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	allocations.list = slices.Insert(allocations.list, firstAllocation(at), a)
	return a
}

// firstAllocation returns the index of the first allocation that ends above an address. The caller holds allocations.mu.
func firstAllocation(at uint64) int {
	i, _ := slices.BinarySearchFunc(allocations.list, at, func(a *Allocation, at uint64) int {
		if a.end <= at {
			return -1
		}
		return 1
	})
	return i
}

// Hold keeps, for registrations of m, the allocations that contain mem in place, until release is called. It reports how many bytes of mem
// they contain. Unless these are none or all bytes, it keeps none in place.
func Hold(m *shm.Member, mem []byte) (held uint64, release func()) {
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
		a.holds[m]++
	}
	return held, func() {
		allocations.mu.Lock()
		defer allocations.mu.Unlock()
		for _, a := range covering {
			a.release(m, 1)
		}
	}
}

// Close is called when the region of the allocation is closed.
func (a *Allocation) Close() {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	a.open = false
	a.freeUnused()
}

// release ends n registrations of a member. The caller holds allocations.mu.
func (a *Allocation) release(m *shm.Member, n int) {
	if a.holds[m] -= n; a.holds[m] == 0 {
		delete(a.holds, m)
	}
	a.freeUnused()
}

// freeUnused frees the memory if nothing keeps it in place. The caller holds allocations.mu.
func (a *Allocation) freeUnused() {
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
	_ = a.member.Free(a.offset)
}

// End ends the registrations of other memory by m, whose provider is closed, and forgets its allocations, which its departure
// frees. Those that another provider has registered stay, with private pages.
func End(m *shm.Member) error {
	allocations.mu.Lock()
	defer allocations.mu.Unlock()
	var errs []error
	for _, a := range slices.Clone(allocations.list) {
		if a.member == m {
			a.open, a.left = false, true
		}
		if n := a.holds[m]; n > 0 || a.left {
			a.release(m, n)
		}
		if a.member == m && len(a.holds) > 0 {
			errs = append(errs, m.Arena().Keep(a.offset, a.end-a.start))
		}
	}
	return errors.Join(errs...)
}
