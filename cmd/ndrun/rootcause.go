package main

import (
	"slices"
	"time"

	"github.com/softnd/softnd/shm"
)

// blameLasts is the time after the loss of a peer in which the end of a rank counts as
// caused by that loss.
const blameLasts = time.Second

// causes lists the ranks whose leaving may have caused the end of a rank: the rank
// that it lost, the rank that this rank had lost before, and so on.
func causes(arena *shm.Arena, victim int) (chain []int) {
	for before, rank := shm.Clock(), victim; ; {
		peer, at, ok := arena.LostPeer(rank)
		if !ok || at > before || time.Duration(before-at) > blameLasts || peer == victim || slices.Contains(chain, peer) {
			return chain
		}
		chain = append(chain, peer)
		rank, before = peer, at
	}
}
