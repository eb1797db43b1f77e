package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The test fills and empties a ring at random, with both ways to prefetch, and checks each word of each
// entry.
func TestPrefetchLosesNoEntry(t *testing.T) {
	byStore, atOnce := prefetchByStore, prefetchBatch
	defer func() { prefetchByStore, prefetchBatch = byStore, atOnce }()
	for _, slots := range []uint64{1, 8, 16, 32, 64} {
		for _, prefetchByStore = range []bool{false, true} {
			prefetchBatch = batchSize()
			t.Run(fmt.Sprintf("%d slots, by store %v", slots, prefetchByStore), func(t *testing.T) {
				p, c, _ := newRing(t, slots)
				random, got := rand.New(rand.NewPCG(3, slots)), uint64(0)
				for range 5_000 {
					for range random.IntN(int(slots) + 1) {
						if p.FreeSlots() == 0 {
							break
						}
						s := p.NextEntry()
						for i := range s {
							s[i] = p.Published() + 1 + uint64(i)<<32
						}
						p.Publish()
						p.PrefetchForWrite()
					}
					for range random.IntN(int(slots) + 1) {
						s := c.Front()
						if s == nil {
							break
						}
						got++
						for i, word := range s {
							if word != got+uint64(i)<<32 {
								t.Fatalf("word %d of entry %d is %#x", i, got, word)
							}
						}
						c.PrefetchForRead(c.Advance())
					}
					if random.IntN(2) == 0 {
						c.Release()
					}
				}
				if got == 0 {
					t.Error("no entry has come through")
				}
			})
		}
	}
}
