package shm

import (
	"errors"
	"fmt"
	"testing"
)

// joinRank joins a as a rank, and its group.
func joinRank(t *testing.T, a *Arena, rank int) (*Member, *Group) {
	t.Helper()
	m := join(t, a, rank)
	return m, joinGroup(t, m)
}

// A process that takes the place of a rank which has left is not part of the group. The others see that their rank is
// gone. The process waits until they have left as well.
func TestNextMemberIsNotOfTheGroup(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		for late := range ranks { // the rank that leaves and joins again
			t.Run(fmt.Sprintf("rank %d of %d", late, ranks), func(t *testing.T) {
				a := newArena(t, ranks)
				members, groups := make([]*Member, ranks), make([]*Group, ranks)
				for rank := range ranks {
					members[rank], groups[rank] = joinRank(t, a, rank)
				}
				form(t, groups...)
				for _, g := range groups {
					g.Arrive()
				}
				tickets := make([]uint64, ranks)
				for rank, g := range groups {
					if rank != late {
						tickets[rank] = g.Arrive()
					}
				}
				if err := members[late].Leave(); err != nil {
					t.Fatal(err)
				}
				again := join(t, again(t, a), late)
				next := joinGroup(t, again)
				if next.Formed() {
					t.Fatal("the group is formed with members of an earlier one")
				}
				for rank, g := range groups {
					if rank == late {
						continue
					}
					if g.Passed(tickets[rank]) {
						t.Errorf("rank %d passes", rank)
					}
					if id, ok := g.Member(late); ok || id != members[late].ID() {
						t.Errorf("rank %d: rank %d is %v, %v; want %v, which has left", rank, late, id, ok, members[late].ID())
					}
					if _, err := g.Published(late, noLimit); !errors.Is(err, errGone) {
						t.Errorf("rank %d: the bytes of rank %d: %v", rank, late, err)
					}
				}
				// All others leave and join again: that is a new group, whose ranks count alike.
				groups[late] = next
				for rank, m := range members {
					if rank == late {
						continue
					}
					if !next.IsEarlier(rank) || next.Formed() {
						t.Fatalf("rank %d has not left", rank)
					}
					if err := m.Leave(); err != nil {
						t.Fatal(err)
					}
					_, groups[rank] = joinRank(t, a, rank)
				}
				form(t, groups...)
				for range 3 {
					for i, g := range groups {
						tickets[i] = g.Arrive()
						if g.Passed(tickets[i]) != (i == ranks-1) {
							t.Errorf("arrival %d of %d: passed: %v", i, ranks, i < ranks-1)
						}
					}
					for i, g := range groups {
						if !g.Passed(tickets[i]) || g.Round() != groups[0].Round() {
							t.Errorf("rank %d does not pass, or is in round %d instead of %d", i, g.Round(), groups[0].Round())
						}
					}
				}
			})
		}
	}
}

// A rank that has joined, left and joined again before the last rank comes counts once.
func TestRankJoinsTwiceBeforeTheGroupIsFormed(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		a := newArena(t, ranks)
		m, g := joinRank(t, a, 1)
		if g.Formed() {
			t.Fatal("formed without rank 0")
		}
		if err := m.Leave(); err != nil {
			t.Fatal(err)
		}
		var groups []*Group
		for rank := range ranks {
			_, g := joinRank(t, a, rank)
			groups = append(groups, g)
		}
		form(t, groups...)
		ticket := groups[0].Arrive()
		if groups[0].Passed(ticket) {
			t.Errorf("%d ranks: rank 0 passes alone", ranks)
		}
	}
}

// A rank that is slow to see that it was admitted is part of the group also if others have left since then.
func TestSlowRankIsAdmitted(t *testing.T) {
	a := newArena(t, 3)
	var members []*Member
	var groups []*Group
	for rank := range 3 {
		m, g := joinRank(t, a, rank)
		members, groups = append(members, m), append(groups, g)
	}
	if groups[2].Formed() {
		t.Fatal("formed before rank 0 has admitted this rank")
	}
	form(t, groups[:2]...)
	for _, m := range members[:2] {
		if err := m.Leave(); err != nil {
			t.Fatal(err)
		}
	}
	_, first := joinRank(t, a, 0)
	if first.Formed() {
		t.Error("a group is formed with a rank of an earlier one")
	}
	if !groups[2].Formed() {
		t.Fatal("rank 2 was not admitted")
	}
	if _, ok := groups[2].Member(0); ok {
		t.Error("rank 0 has not left")
	}
}

// A rank that is admitted waits for rank 0, which admits itself last: it must not take it for one that has left.
func TestRankWaitsForTheLastAdmission(t *testing.T) {
	a := newArena(t, 3)
	var groups []*Group
	for rank := range 3 {
		_, g := joinRank(t, a, rank)
		groups = append(groups, g)
		if g.Formed() {
			t.Fatal("formed before rank 0 has admitted this rank")
		}
	}
	admit := func(rank int) { // a step of admitAll
		record := a.rankRecord(rank)
		record.member.Store(uint64(rankWord(record.member.Load()).id()))
	}
	a.header().formedBy.Store(uint64(groups[0].member.id))
	admit(2)
	if groups[2].Formed() {
		t.Error("formed before rank 0 is admitted")
	}
	admit(1)
	admit(0)
	form(t, groups[2])
	for rank := range 3 {
		if id, ok := groups[2].Member(rank); !ok || id != groups[rank].member.id {
			t.Errorf("rank %d is %v, %v", rank, id, ok)
		}
	}
}

// TestMemberOfNoRank: numbers that are no ranks have no member.
func TestMemberOfNoRank(t *testing.T) {
	_, g := joinRank(t, newArena(t, 1), 0)
	for _, rank := range []int{-1, 1} {
		if id, ok := g.Member(rank); ok {
			t.Errorf("rank %d is %v", rank, id)
		}
	}
}
