package shm

// TWIN c/src/shm/liveness.c.

import (
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// lostPeerHold is how long the lost peer of a rank stays recorded before another can replace it.
// When one peer leaves, others often follow because of it; the first one explains the failure.
const lostPeerHold = time.Second

// RecordLostPeer records for the launcher that this member has lost peer: peer ended its
// connection with this member, left, died, or sent a damaged message. If this rank fails next,
// the launcher reports peer as the cause. Of several peers within a second only the first is
// recorded. For a member without a rank, RecordLostPeer does nothing. Safe for concurrent use.
func (m *Member) RecordLostPeer(peer MemberID) {
	if m.rank < 0 || m.rank >= m.arena.ranks {
		return
	}
	r, now := m.arena.rankRecord(m.rank), linux.HostClock()
	last := r.lostPeerAt.Load()
	if time.Duration(now-int64(last)) < lostPeerHold || !r.lostPeerAt.CompareAndSwap(last, uint64(now)) {
		return
	}
	r.lostPeer.Store(uint64(peer)) // unordered: readers wait for the end of this process, so they see both words
}

// LostPeer returns the peer that a rank recorded last with [Member.RecordLostPeer], and when, as
// [linux.HostClock] counts; ok is false if the rank recorded none. Call it for ranks that have ended. Any
// member can write these words, so use the time only to compare it with other times.
func (a *Arena) LostPeer(rank int) (peer int, at int64, ok bool) {
	if rank < 0 || rank >= a.ranks {
		return 0, 0, false
	}
	r := a.rankRecord(rank)
	id, at := r.lostPeer.Load(), int64(r.lostPeerAt.Load())
	if id == 0 || at == 0 {
		return 0, 0, false
	}
	for peer := range a.ranks {
		if now, _ := a.MemberOf(peer); uint64(now) == id {
			return peer, at, true
		}
	}
	return 0, 0, false
}
