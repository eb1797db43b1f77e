package shm

// TWIN c/src/shm/heap.c.

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// ownerMap is a shared table with one word for each chunk, or for each block of window entries.
// A word names the owner: the slot of the member plus one, or 0 if there is none. Members claim
// and free by compare-and-swap, so a member that dies leaves no other trace than its number.
type ownerMap struct {
	words []atomic.Uint32
	self  uint32
}

// releaseRun frees those of n consecutive words that name self.
func (m ownerMap) releaseRun(first, n uint64) {
	for i := range n {
		m.words[first+i].CompareAndSwap(m.self, 0) // ORDER owned: after the last use; pairs with the swap in claimMap.claim
		failpoint.Reach(failpoint.WordFreed)
	}
}

// largestFree returns the length of the longest free run.
func (m ownerMap) largestFree() (longest uint64) {
	run := uint64(0)
	for i := range m.words {
		if m.words[i].Load() != 0 {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// runs calls f for each maximal run of words that name self, among the n words from first on.
func (m ownerMap) runs(first, n uint64, f func(first, n uint64)) {
	from, run := first, uint64(0)
	for i := first; i < first+n; i++ {
		if m.words[i].Load() == m.self {
			run++
			continue
		}
		if run > 0 {
			f(from, run)
		}
		from, run = i+1, 0
	}
	if run > 0 {
		f(from, run)
	}
}

// claimMap is an ownerMap in which a member claims. The member notes its claims in private memory
// too: a peer can clear a shared word, and the member must not claim again what it is using. Not
// safe for concurrent use.
type claimMap struct {
	ownerMap
	held map[uint64]uint64 // bit i%64 of held[i/64]: the member has claimed word i
}

func newClaimMap(words []atomic.Uint32, slot int) claimMap {
	return claimMap{ownerMap{words, uint32(slot) + 1}, make(map[uint64]uint64)}
}

// claimRun claims n consecutive words. It searches from hint to the end, then from the start.
func (h claimMap) claimRun(hint, n uint64) (first uint64, ok bool) {
	size := uint64(len(h.words))
	if n == 0 || n > size {
		return 0, false
	}
	for pass := range 2 {
		at, end := uint64(0), size
		if pass == 0 {
			at = min(hint, size)
		} else {
			end = min(hint+n, size)
		}
		for at+n <= end {
			run := uint64(0)
			for run < n && h.claim(at+run) {
				run++
			}
			if run == n {
				h.hold(at, n)
				failpoint.Reach(failpoint.RunClaimed)
				return at, true
			}
			h.releaseRun(at, run)
			at += run + 1
		}
	}
	return 0, false
}

// claim claims one word and reports whether it was free. A held word that a peer has cleared was
// not free; claim restores the member's number in it.
func (h claimMap) claim(i uint64) bool {
	if h.words[i].Load() != 0 || !h.words[i].CompareAndSwap(0, h.self) { // ORDER owned: pairs with the swap in releaseRun
		return false
	}
	failpoint.Reach(failpoint.WordClaimed)
	return !h.holds(i)
}

func (h claimMap) holds(i uint64) bool { return h.held[i/64]>>(i%64)&1 != 0 }

func (h claimMap) hold(first, n uint64) {
	for i := first; i < first+n; i++ {
		h.held[i/64] |= 1 << (i % 64)
	}
}

// free frees n consecutive words that the member holds, and returns how many it freed. Before
// that it calls clean for each run of them that names the member in the shared table. If a peer
// has written another member's number into a word, free leaves that word alone. Words for which
// clean fails stay the member's.
func (h claimMap) free(first, n uint64, clean func(first, n uint64) error) (freed uint64, err error) {
	for i := first; i < first+n; i++ {
		h.words[i].CompareAndSwap(0, h.self) // if a peer has cleared it: no other member may claim it before it is clean
		h.held[i/64] &^= 1 << (i % 64)
	}
	h.runs(first, n, func(first, n uint64) {
		if e := clean(first, n); e != nil {
			err = e
			h.hold(first, n)
			return
		}
		failpoint.Reach(failpoint.PagesReleased)
		h.releaseRun(first, n)
		freed += n
	})
	return freed, err
}
