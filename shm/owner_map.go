package shm

import "sync/atomic"

// ownerMap is a table of words, one for each chunk (or each block of window
// entries), which names the member that owns it: its slot plus one, 0 for none.
// Claim and release are compare-and-swap, so a member that dies in the middle
// leaves nothing but words with its number in them.
type ownerMap struct {
	words []atomic.Uint32
	self  uint32
}

// releaseRun frees those of n adjacent words that name self.
func (m ownerMap) releaseRun(first, n uint64) {
	for i := range n {
		m.words[first+i].CompareAndSwap(m.self, 0) // ORDER owned: after the last use; pairs with the swap in holdings.claim
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

// runs calls f for each maximal run of words that name self, among n from first on.
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

// holdings is a table of owners as the member sees it that claims in it. What the
// member has claimed, it notes in memory of its own: a peer can clear a word, and
// the member must not claim again what it is using. Not safe for concurrent use.
type holdings struct {
	ownerMap
	held map[uint64]uint64 // a bit for each word that is the member's, 64 in a group
}

func newHoldings(words []atomic.Uint32, slot int) holdings {
	return holdings{ownerMap{words, uint32(slot) + 1}, make(map[uint64]uint64)}
}

// claimRun claims n adjacent words. It searches from hint on and then from the
// start.
func (h holdings) claimRun(hint, n uint64) (first uint64, ok bool) {
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
				return at, true
			}
			h.releaseRun(at, run)
			at += run + 1
		}
	}
	return 0, false
}

// claim claims one word and reports whether it was free. A word of the member's
// own that a peer has cleared was not: it names the member again.
func (h holdings) claim(i uint64) bool {
	return h.words[i].Load() == 0 && h.words[i].CompareAndSwap(0, h.self) && // ORDER owned: pairs with the swap in releaseRun
		!h.holds(i)
}

func (h holdings) holds(i uint64) bool { return h.held[i/64]>>(i%64)&1 != 0 }

func (h holdings) hold(first, n uint64) {
	for i := first; i < first+n; i++ {
		h.held[i/64] |= 1 << (i % 64)
	}
}

// giveUp frees n adjacent words that the member holds. Before that it calls clean
// for each run of them that is the member's by the table, too: what a peer has given
// to another member is that member's, and is left alone. It returns how many were
// freed. Words for which clean fails stay the member's.
func (h holdings) giveUp(first, n uint64, clean func(first, n uint64) error) (freed uint64, err error) {
	for i := first; i < first+n; i++ {
		h.words[i].CompareAndSwap(0, h.self) // a peer has cleared it: it must not become another's before it is clean
		h.held[i/64] &^= 1 << (i % 64)
	}
	h.runs(first, n, func(first, n uint64) {
		if e := clean(first, n); e != nil {
			err = e
			h.hold(first, n)
			return
		}
		h.releaseRun(first, n)
		freed += n
	})
	return freed, err
}
