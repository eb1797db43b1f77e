package shm

import (
	"testing"

	"github.com/softnd/softnd/internal/linux"
)

func TestLostPeerIsRecorded(t *testing.T) {
	a := newArena(t, 2)
	var members [2]*Member
	for rank := range members {
		m, err := a.Join(rank)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Leave() })
		if _, err := m.JoinGroup(); err != nil {
			t.Fatal(err)
		}
		members[rank] = m
	}
	if peer, _, ok := a.LostPeer(0); ok {
		t.Errorf("rank 0 blames rank %d though it has lost none", peer)
	}
	before := linux.HostClock()
	members[0].RecordLostPeer(members[1].ID())
	members[0].RecordLostPeer(members[0].ID()) // too soon after the first
	if peer, at, ok := a.LostPeer(0); !ok || peer != 1 || at < before || at > linux.HostClock() {
		t.Errorf("rank 0 blames rank %d at %d, %t; want rank 1 at %d or a little later", peer, at, ok, before)
	}
	a.rankRecord(0).lostPeer.Store(1 << 60)
	if peer, _, ok := a.LostPeer(0); ok {
		t.Errorf("rank 0 blames a member that does not exist, as rank %d", peer)
	}
	for _, rank := range []int{-1, 2} {
		if _, _, ok := a.LostPeer(rank); ok {
			t.Errorf("rank %d of 2 blames another", rank)
		}
	}
}
