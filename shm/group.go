package shm

import (
	"fmt"

	"github.com/softnd/softnd/internal/asym"
)

// Group is the fixed set of ranks of an arena as one of its members sees it:
// who is there, a barrier, and one published blob a rank. It does not wait;
// whoever waits chooses how.
type Group struct {
	member *Member
	rank   int

	mine, other *place // of two ranks
	round       uint64 // the barrier that this rank has reached last, from 1; our own copy of what two ranks store
}

// Group returns the member's view of its rank group and publishes the rank's
// presence. Each member asks for it once: two views of one rank would count their
// barriers apart.
//
// Errors: [ErrTaken] when the rank's place is another live member's.
func (m *Member) Group() (*Group, error) {
	rank := m.rank
	if rank < 0 || rank >= m.arena.ranks {
		return nil, fmt.Errorf("shm: group: %v is not a rank of a group of %d", m.id, m.arena.ranks)
	}
	p := m.arena.place(rank)
	for {
		old := MemberID(p.member.Load())
		if old == m.id {
			return m.newGroup(), nil
		}
		if peer, err := m.arena.Peer(old); err == nil && m.CheckAlive(peer) {
			return nil, fmt.Errorf("shm: group: rank %d is already %v, %v: %w", rank, peer.id, peer, ErrTaken)
		}
		if p.member.CompareAndSwap(uint64(old), uint64(m.id)) { // ORDER place-taken: pairs with the load in MemberOf
			p.length.Store(0)
			p.offered.Store(0)
			p.blamedAt.Store(0)
			return m.newGroup(), nil
		}
	}
}

func (m *Member) newGroup() *Group {
	g := &Group{member: m, rank: m.rank, mine: m.arena.place(m.rank)}
	if g.Size() == 2 {
		g.other = m.arena.place(1 - m.rank)
	}
	g.round = g.mine.round.Load()
	if g.other == nil {
		g.round = m.arena.header().opened.Load() / uint64(g.Size())
	}
	barriers := uint32(0)
	if asym.HasHeavyGlobal() {
		barriers = 1
	}
	g.mine.barriers.Store(barriers)
	return g
}

// Rank returns the rank of this member, 0 to Size-1.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.member.arena.ranks }

// Member returns the member that holds a rank; ok is false while there is none.
func (g *Group) Member(rank int) (id MemberID, ok bool) {
	return g.member.arena.MemberOf(rank)
}

// Arrive notes that this rank has reached the barrier. The ticket tells
// [Group.Passed] which round is meant. The last rank to arrive opens the
// barrier and wakes the others. Not safe for concurrent use.
func (g *Group) Arrive() (ticket uint64) {
	if g.other != nil {
		return g.meet()
	}
	h, ranks := g.member.arena.header(), uint64(g.Size())
	n := h.arrived.Add(1) // ORDER barrier-arrived: pairs with itself in the last rank
	ticket = (n + ranks - 1) / ranks * ranks
	g.round = ticket / ranks
	if n == ticket {
		h.opened.Store(ticket) // ORDER barrier-open: pairs with the load in Passed
		g.wakeOthers()
	}
	return ticket
}

// Round returns which of the ranks' barriers this rank has reached last, from 1.
func (g *Group) Round() uint64 { return g.round }

// meet is Arrive of two ranks. Each stores into a line of its own, at the same
// time if they come at the same time, and looks at the other's.
func (g *Group) meet() (ticket uint64) {
	handOver()
	g.round++
	if asym.HasHeavyGlobal() && g.other.barriers.Load() == 1 {
		asym.StoreRelease(&g.mine.round, g.round) // ORDER barrier-round: pairs with the load in Passed
	} else {
		g.mine.round.Swap(g.round) // ORDER barrier-round: pairs with the load in Passed
	}
	// ORDER barrier-round: then this load; pairs with the other's store, then the
	// barrier in Doorbell.Arm, before it sleeps
	if g.other.round.Load() >= g.round {
		g.wakeOthers()
	}
	return g.round
}

// wakeOthers rings the waits of the other ranks. Their engines have no part in
// a barrier.
func (g *Group) wakeOthers() {
	a := g.member.arena
	for rank := range a.ranks {
		if id, ok := g.Member(rank); ok && rank != g.rank {
			if slot := id.Slot(); slot < MaxMembers {
				Doorbell{&a.member(slot).waiters}.Ring()
			}
		}
	}
}

// Passed tells whether all ranks have arrived in the ticket's round.
//
// More than two ranks look at a word that is written once a round, so that those
// who look do not slow down those who arrive.
func (g *Group) Passed(ticket uint64) bool {
	if g.other == nil {
		return g.member.arena.header().opened.Load() >= ticket // ORDER barrier-open: pairs with the store in Arrive
	}
	if g.other.round.Load() < ticket { // ORDER barrier-round: pairs with the stores in meet
		return false
	}
	takeOver()
	return true
}

// Publish offers the length bytes at off, which lie in the heap of this
// rank's member, to the other ranks; they may look after the next barrier, and
// until the one after that.
func (g *Group) Publish(off Offset, length uint64) {
	p := g.mine
	// Ordered by the barrier, not by each other: barrier-round, or barrier-arrived, then barrier-open.
	p.blob.Store(uint64(off))
	p.length.Store(length)
	p.offered.Store(g.round + 1)
}

// Published returns a copy of what a rank offers since the last barrier.
//
// Errors: [ErrGone] when no member has the rank; [ErrNothingOffered] when it has
// come to that barrier for something else; [ErrTooLong] when it offers more than limit
// bytes, none of which is copied; [ErrDamaged] when the range that it names is not in
// that member's heap.
func (g *Group) Published(rank int, limit uint64) ([]byte, error) {
	a := g.member.arena
	id, ok := g.Member(rank)
	if !ok {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, ErrGone)
	}
	p := a.place(rank)
	// Ordered by the barrier: the owner wrote both before it arrived.
	off, n, offered := Offset(p.blob.Load()), p.length.Load(), p.offered.Load()
	if offered != g.round {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, ErrNothingOffered)
	}
	if n == 0 {
		return nil, nil
	}
	if n > limit {
		return nil, fmt.Errorf("shm: %d bytes published by rank %d, want at most %d: %w", n, rank, limit, ErrTooLong)
	}
	b, err := a.ownedBytes(id, off, n)
	if err != nil {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, err)
	}
	return append([]byte(nil), b...), nil
}
