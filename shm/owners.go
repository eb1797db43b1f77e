package shm

import "sync/atomic"

// ownerMap is a table of words, one per chunk (or per block of window
// entries), each naming the member that owns it: its slot plus one, 0 for
// nobody. Claim and release are compare-and-swap, so a member that dies in
// the middle leaves nothing but words with its number in them.
type ownerMap struct {
	words []atomic.Uint32
	self  uint32
}

// claimRun claims n adjacent words, looking from hint on and then from the
// start.
func (m ownerMap) claimRun(hint, n uint64) (first uint64, ok bool) {
	size := uint64(len(m.words))
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
			for run < n && m.words[at+run].Load() == 0 && m.words[at+run].CompareAndSwap(0, m.self) { // ORDER owned: pairs with the swap in releaseRun
				run++
			}
			if run == n {
				return at, true
			}
			m.releaseRun(at, run)
			at += run + 1
		}
	}
	return 0, false
}

func (m ownerMap) releaseRun(first, n uint64) {
	for i := range n {
		m.words[first+i].CompareAndSwap(m.self, 0) // ORDER owned: after the last use; pairs with the swap in claimRun
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

// runs calls f for each maximal run of words that self owns.
func (m ownerMap) runs(f func(first, n uint64)) {
	start := -1
	for i := 0; i <= len(m.words); i++ {
		mine := i < len(m.words) && m.words[i].Load() == m.self
		switch {
		case mine && start < 0:
			start = i
		case !mine && start >= 0:
			f(uint64(start), uint64(i-start))
			start = -1
		}
	}
}
