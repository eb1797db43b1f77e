package shm

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestOwnerMapFindsRuns(t *testing.T) {
	a := fakeArena(0)
	words := a.words(a.geo.memberTable, 10) // any words will do
	one, two := newClaimMap(words, 0), newClaimMap(words, 1)
	free := func(m claimMap, first, n uint64) {
		t.Helper()
		if _, err := m.free(first, n, func(uint64, uint64) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	claim := func(m claimMap, hint, n uint64, want int64) {
		t.Helper()
		first, ok := m.claimRun(hint, n)
		if ok != (want >= 0) || ok && first != uint64(want) {
			t.Errorf("claim of %d from %d by %d: %d, %v, want %d", n, hint, m.self, first, ok, want)
		}
	}
	claim(one, 0, 0, -1)
	claim(one, 0, 11, -1)
	claim(one, 0, 10, 0)
	claim(two, 0, 1, -1)
	free(one, 0, 10)
	claim(one, 3, 2, 3)
	claim(two, 0, 4, 5)
	claim(two, 0, 3, 0)   // the run before the first
	claim(one, 8, 1, 9)   // to the end
	claim(one, 20, 1, -1) // hint outside, all taken
	free(two, 0, 10)      // frees its own words only
	if got := one.largestFree(); got != 4 {
		t.Errorf("longest free run is %d, want 4", got)
	}
	claim(two, 2, 5, -1) // 0..2 and 5..8 are free
	claim(two, 9, 3, 0)  // from the start again
	claim(two, 99, 4, 5) // from the start again
	claim(two, 0, 1, -1)
	var runs [][2]uint64
	two.runs(0, 10, func(first, n uint64) { runs = append(runs, [2]uint64{first, n}) })
	if want := [][2]uint64{{0, 3}, {5, 4}}; !slices.Equal(runs, want) {
		t.Errorf("runs %v, want %v", runs, want)
	}
	// The second pass finds a run that begins before the hint and ends after it.
	free(one, 0, 10)
	free(two, 0, 10)
	claim(one, 8, 1, 8)
	claim(two, 5, 7, 0)
}

// Concurrent claims never claim the same word.
func TestOwnerMapClaimsNeverOverlap(t *testing.T) {
	a := fakeArena(0)
	const size = 7
	words := a.words(a.geo.chunkOwners, size)
	var holders [size]atomic.Int32
	work := func(m claimMap) func(i uint64) {
		return func(i uint64) {
			n := 1 + i%3
			first, ok := m.claimRun(0, n)
			if !ok {
				return
			}
			for at := first; at < first+n; at++ {
				if holders[at].Add(1) != 1 {
					t.Errorf("word %d has two owners", at)
				}
			}
			for at := first; at < first+n; at++ {
				if holders[at].Add(-1) != 0 || words[at].Load() != m.self {
					t.Errorf("word %d was taken from its owner", at)
				}
			}
			if freed, _ := m.free(first, n, func(uint64, uint64) error { return nil }); freed != n {
				t.Errorf("%d of %d words were freed", freed, n)
			}
		}
	}
	proctest.Lockstep(50_000, work(newClaimMap(words, 0)), work(newClaimMap(words, 1)), func(uint64) {
		if free := (ownerMap{words: words}).largestFree(); free != size {
			t.Errorf("%d words are free in the end", free)
		}
	})
}
