package main

import (
	"slices"
	"time"

	"github.com/softnd/softnd/shm"
)

// blameLasts is how long after it has lost a peer a rank that ends counts as one that
// ended because of that.
const blameLasts = time.Second

// causes lists the ranks whose leaving may have caused the end of a rank: that which it
// has lost, that which this one had lost before, and so on.
func causes(arena *shm.Arena, victim int) (chain []int) {
	for before, rank := shm.Clock(), victim; ; {
		peer, at, ok := arena.Blames(rank)
		if !ok || at > before || time.Duration(before-at) > blameLasts || peer == victim || slices.Contains(chain, peer) {
			return chain
		}
		chain = append(chain, peer)
		rank, before = peer, at
	}
}
