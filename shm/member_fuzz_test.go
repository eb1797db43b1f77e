package shm

import (
	"slices"
	"testing"
)

// FuzzMemberTable plays a peer that overwrites the member records. The arena is a fake, so no record
// can be locked, no waiter woken and no memory released.
func FuzzMemberTable(f *testing.F) {
	record := func(s memberState, epoch uint64) []byte {
		a := fakeArena(0)
		rec := a.member(0)
		rec.state.Store(uint64(s))
		rec.deathEpoch.Store(epoch)
		rec.pidNS.Store(1)
		return a.mem[a.geo.memberTable:][:memberStride]
	}
	f.Add([]byte{}, uint64(0), uint64(0))
	f.Add(slices.Concat(record(stateOf(statusLive, 1), notCounted(1)), record(stateOf(statusDead, 1), notCounted(1))), uint64(1), uint64(5))
	f.Add(slices.Concat(record(stateOf(statusDead, 1), 1), record(stateOf(3, 1), 1)), ^uint64(0), uint64(1))
	f.Add(slices.Concat(record(stateOf(200, 9), 1), record(stateOf(statusDead, 1), 0)), uint64(2), uint64(1<<16))
	f.Add(slices.Repeat([]byte{0xff}, 4*memberStride), ^uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, records []byte, deaths, id uint64) {
		a := fakeArena(2)
		m := fakeMember(a, 4, 1)
		defer m.unwatch()
		own := uint64(stateOf(statusLive, 1))
		table := a.mem[a.geo.memberTable:a.geo.rankRecords]
		copy(table, records[:min(len(records), 4*memberStride)])
		words := a.words(a.geo.chunkOwners, a.geo.chunks)
		for i := range words {
			words[i].Store(uint32(i))
		}
		a.header().deaths.Store(deaths)
		a.header().slots.Store(id)
		a.rankRecord(0).member.Store(id)
		if peer, err := a.Peer(MemberID(id)); err == nil {
			_ = peer.String()
			_ = m.checkAlive(peer)
			peer.Wake()
		}
		for _, slot := range []int{-1, 0, 3, 4, 5, maxMembers} {
			if peer, err := a.PeerInSlot(slot); err == nil {
				_ = peer.String()
			}
		}
		for range 2 {
			m.CheckLiveness(func(id MemberID) {
				if id.Slot() >= 4 {
					t.Errorf("let go of %v", id)
				}
			})
		}
		if m.rec.state.Load() != own {
			t.Errorf("a live member's state has become %#x", m.rec.state.Load())
		}
		_ = a.LiveMemberCount()
		if g, err := m.JoinGroup(); err == nil {
			g.Arrive()
			g.Published(0, noLimit)
		}
	})
}
