package shm

import (
	"fmt"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/failpoint"
)

// Group is the rank group of an arena, as one of its members uses it: which ranks have joined, a
// barrier, and the bytes that each rank publishes. Its methods do not block; the caller chooses how
// to wait.
type Group struct {
	member *Member
	rank   int

	mine, other *rankRecord // of two ranks
	round       uint64      // number of the barrier that this rank reached last, from 1; private copy of mine.round
}

// JoinGroup takes the member's rank in its rank group, where the other ranks can see it. Call it
// once for each member: two Groups of one rank would count their barriers separately.
//
// Errors: [ErrTaken] if another live member has the rank.
func (m *Member) JoinGroup() (*Group, error) {
	rank := m.rank
	if rank < 0 || rank >= m.arena.ranks {
		return nil, fmt.Errorf("shm: join group: %v has rank %d: want 0 to %d", m.id, rank, m.arena.ranks-1)
	}
	r := m.arena.rankRecord(rank)
	for {
		old := MemberID(r.member.Load())
		if old == m.id {
			return m.newGroup(), nil
		}
		if peer, err := m.arena.Peer(old); err == nil && m.checkAlive(peer) {
			return nil, fmt.Errorf("shm: join group: rank %d belongs to %v, %v: %w", rank, peer.id, peer, ErrTaken)
		}
		if r.member.CompareAndSwap(uint64(old), uint64(m.id)) { // ORDER rank-taken: pairs with the load in MemberOf
			failpoint.Reach(failpoint.RankTaken)
			r.left.Store(0) // ORDER rank-left: after the swap; pairs with the load in HasDied
			r.length.Store(0)
			r.publishedRound.Store(0)
			r.lostPeerAt.Store(0)
			return m.newGroup(), nil
		}
	}
}

func (m *Member) newGroup() *Group {
	g := &Group{member: m, rank: m.rank, mine: m.arena.rankRecord(m.rank)}
	if g.size() == 2 {
		g.other = m.arena.rankRecord(1 - m.rank)
	}
	g.round = g.mine.round.Load()
	if g.other == nil {
		g.round = m.arena.header().opened.Load() / uint64(g.size())
	}
	membarrier := uint32(0)
	if asym.HasHeavyGlobal() {
		membarrier = 1
	}
	g.mine.membarrier.Store(membarrier)
	return g
}

// Rank returns the rank of this member, from 0.
func (g *Group) Rank() int { return g.rank }

func (g *Group) size() int { return g.member.arena.ranks }

// Arrive records that this rank has reached the barrier, and returns the ticket for [Group.Passed].
// The last rank to arrive opens the barrier and wakes the others. Not safe for concurrent use.
func (g *Group) Arrive() (ticket uint64) {
	if g.other != nil {
		return g.arrivePair()
	}
	h, ranks := g.member.arena.header(), uint64(g.size())
	n := h.arrived.Add(1) // ORDER barrier-arrived: pairs with itself in the last rank
	failpoint.Reach(failpoint.BarrierArrived)
	ticket = (n + ranks - 1) / ranks * ranks
	g.round = ticket / ranks
	if n == ticket {
		h.opened.Store(ticket) // ORDER barrier-open: pairs with the load in Passed
		failpoint.Reach(failpoint.BarrierOpened)
		g.wakeOthers()
	}
	return ticket
}

// Round returns the number of the barrier that this rank reached last, from 1.
func (g *Group) Round() uint64 { return g.round }

// arrivePair is Arrive for a group of two ranks. Each stores into a cache line of its own, which
// both can do at the same time, and then loads the other's.
func (g *Group) arrivePair() (ticket uint64) {
	raceRelease()
	g.round++
	if asym.HasHeavyGlobal() && g.other.membarrier.Load() == 1 {
		asym.StoreRelease(&g.mine.round, g.round) // ORDER barrier-round: pairs with the load in Passed
	} else {
		g.mine.round.Swap(g.round) // ORDER barrier-round: pairs with the load in Passed
	}
	failpoint.Reach(failpoint.RoundStored)
	// ORDER barrier-round: this load comes after the store; pairs with the other rank's store and
	// the barrier in Doorbell.Arm, before it sleeps
	if g.other.round.Load() >= g.round {
		g.wakeOthers()
	}
	return g.round
}

// wakeOthers rings the wait doorbells of the other ranks. Their progress engines do not wait at a
// barrier.
func (g *Group) wakeOthers() {
	a := g.member.arena
	for rank := range a.ranks {
		if id, ok := g.member.arena.MemberOf(rank); ok && rank != g.rank {
			if slot := id.Slot(); slot < maxMembers {
				a.member(slot).waiters.Ring()
			}
		}
	}
}

// Passed reports whether all ranks have arrived at the ticket's barrier.
//
// More than two ranks poll a word that is stored once a barrier, so that their polls do not slow
// down the arrivals.
func (g *Group) Passed(ticket uint64) bool {
	if g.other == nil {
		return g.member.arena.header().opened.Load() >= ticket // ORDER barrier-open: pairs with the store in Arrive
	}
	if g.other.round.Load() < ticket { // ORDER barrier-round: pairs with the stores in arrivePair
		return false
	}
	raceAcquire()
	return true
}

// MemberOf returns the member that has a rank, which may be dead; ok is false if none has taken it
// yet.
func (a *Arena) MemberOf(rank int) (id MemberID, ok bool) {
	if rank < 0 || rank >= a.ranks {
		return 0, false
	}
	id = MemberID(a.rankRecord(rank).member.Load()) // ORDER rank-taken: pairs with the swap in JoinGroup
	return id, id != 0
}

// HasDied reports whether the member that holds rank has died, or has ended without [Member.Leave].
func (a *Arena) HasDied(rank int) bool {
	id, ok := a.MemberOf(rank)
	if !ok {
		return false
	}
	if p, err := a.Peer(id); err != nil || !p.Gone() {
		return false
	}
	left := a.rankRecord(rank).left.Load() // ORDER rank-left: pairs with the stores in Leave and JoinGroup
	now, _ := a.MemberOf(rank)
	return left == 0 && now == id // else the rank's next member has cleared the word
}

// BarrierArrivals returns a number that increases each time a rank reaches a barrier.
func (a *Arena) BarrierArrivals() (n uint64) {
	n = a.header().arrived.Load()
	for rank := range a.ranks {
		n += a.rankRecord(rank).round.Load()
	}
	return n
}

// Publish publishes the length bytes at off, in this rank's heap, for the other ranks. They may
// read them between the next barrier and the one after it.
func (g *Group) Publish(off Offset, length uint64) {
	r := g.mine
	// Unordered among themselves; the barrier orders them: barrier-round, or barrier-arrived, then barrier-open.
	r.blob.Store(uint64(off))
	r.length.Store(length)
	r.publishedRound.Store(g.round + 1)
	failpoint.Reach(failpoint.BlobPublished)
}

// Published returns a copy of the bytes that a rank published for the last barrier.
//
// Errors: [ErrNotPublished] if the rank reached that barrier without publishing; [ErrTooLong] if it
// published more than limit bytes; [ErrDamaged] if the range is not in that member's heap. It fails
// with another error if no member has the rank.
func (g *Group) Published(rank int, limit uint64) ([]byte, error) {
	a := g.member.arena
	id, ok := g.member.arena.MemberOf(rank)
	if !ok {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, errGone)
	}
	r := a.rankRecord(rank)
	// Ordered by the barrier: the rank stored all three before it arrived.
	off, n, round := Offset(r.blob.Load()), r.length.Load(), r.publishedRound.Load()
	if round != g.round {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, ErrNotPublished)
	}
	if n == 0 {
		return nil, nil
	}
	if n > limit {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %d bytes, want at most %d: %w", rank, n, limit, ErrTooLong)
	}
	b, err := a.ownedBytes(id, off, n)
	if err != nil {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, err)
	}
	blob := append([]byte(nil), b...)
	failpoint.Reach(failpoint.BlobCopied)
	return blob, nil
}
