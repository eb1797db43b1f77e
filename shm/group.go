package shm

import "fmt"

// Group is the fixed set of ranks of an arena as one of its members sees it:
// who is there, a barrier, and one published blob a rank. It does not wait;
// whoever waits chooses how.
type Group struct {
	member *Member
	rank   int
}

// Group returns the member's view of its rank group and publishes the rank's
// presence.
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
			return &Group{m, rank}, nil
		}
		if peer, err := m.arena.Peer(old); err == nil && m.CheckAlive(peer) {
			return nil, fmt.Errorf("shm: group: rank %d is already %v, %v: %w; start each rank once", rank, peer.id, peer, ErrTaken)
		}
		if p.member.CompareAndSwap(uint64(old), uint64(m.id)) { // ORDER place-taken: pairs with the load in Member
			p.length.Store(0)
			return &Group{m, rank}, nil
		}
	}
}

// Rank returns the rank of this member, 0 to Size-1.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.member.arena.ranks }

// Member returns the member that holds a rank; ok is false while there is none.
func (g *Group) Member(rank int) (id MemberID, ok bool) {
	if rank < 0 || rank >= g.Size() {
		return 0, false
	}
	id = MemberID(g.member.arena.place(rank).member.Load()) // ORDER place-taken: pairs with the swap in Group
	return id, id != 0
}

// Arrive notes that this rank has reached the barrier. The ticket tells
// [Group.Passed] which round is meant. The last rank to arrive opens the
// barrier and wakes the others.
func (g *Group) Arrive() (ticket uint64) {
	h, ranks := g.member.arena.header(), uint64(g.Size())
	n := h.arrived.Add(1) // ORDER barrier-arrived: pairs with itself in the last rank, and with the load in Passed
	ticket = (n + ranks - 1) / ranks * ranks
	if n != ticket {
		return ticket
	}
	if ranks > 2 {
		h.opened.Store(ticket) // ORDER barrier-open: pairs with the load in Passed
	}
	g.wakeOthers()
	return ticket
}

// wakeOthers rings the waits of the other ranks. Their engines have no part in
// a barrier.
func (g *Group) wakeOthers() {
	a := g.member.arena
	for rank := range a.ranks {
		if id, ok := g.Member(rank); ok && rank != g.rank {
			if slot := id.Slot(); slot < a.slotsUsed() {
				Doorbell{&a.member(slot).waiters}.Ring()
			}
		}
	}
}

// Passed tells whether all ranks have arrived in the ticket's round.
//
// Many ranks look at a word that is written once a round, so that those who
// look do not slow down those who arrive. Of two, the one who looks waits for
// the other's arrival itself.
func (g *Group) Passed(ticket uint64) bool {
	h := g.member.arena.header()
	if g.Size() > 2 {
		return h.opened.Load() >= ticket // ORDER barrier-open: pairs with the store in Arrive
	}
	return h.arrived.Load() >= ticket // ORDER barrier-arrived: pairs with the addition in Arrive
}

// Publish offers the length bytes at off, which lie in the heap of this
// rank's member, to the other ranks; they may look after the next barrier, and
// until the one after that. A length of 0 takes the offer back.
func (g *Group) Publish(off Offset, length uint64) {
	p := g.member.arena.place(g.rank)
	// Ordered by the barrier, not by each other: barrier-arrived, then barrier-open.
	p.blob.Store(uint64(off))
	p.length.Store(length)
}

// Published returns a copy of what a rank offers, nil if it offers nothing.
//
// Errors: [ErrGone] when no member has the rank; [ErrDamaged] when the range
// that it names is not in that member's heap.
func (g *Group) Published(rank int) ([]byte, error) {
	a := g.member.arena
	id, ok := g.Member(rank)
	if !ok {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, ErrGone)
	}
	p := a.place(rank)
	// Ordered by the barrier: the owner wrote both before it arrived.
	off, n := Offset(p.blob.Load()), p.length.Load()
	if n == 0 {
		return nil, nil
	}
	b, err := a.ownedBytes(id, off, n)
	if err != nil {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, err)
	}
	return append([]byte(nil), b...), nil
}
