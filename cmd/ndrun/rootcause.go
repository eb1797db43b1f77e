package main

import (
	"slices"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/shm"
)

// blameWindow is the time after the loss of a peer in which the exit of a rank counts as caused
// by that loss.
const blameWindow = time.Second

// causes returns the ranks that may have caused the exit of victim: the peer that it lost, the
// peer that this peer had lost before, and so on.
func causes(arena *shm.Arena, victim int) (chain []int) {
	for before, rank := linux.HostClock(), victim; ; {
		peer, at, ok := arena.LostPeer(rank)
		if !ok || at > before || time.Duration(before-at) > blameWindow || peer == victim || slices.Contains(chain, peer) {
			return chain
		}
		chain = append(chain, peer)
		rank, before = peer, at
	}
}
