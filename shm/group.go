package shm

// TWIN c/src/job/group.c.

import (
	"fmt"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// Group is the rank group of an arena, as one of its members uses it: the members that are its ranks, a
// barrier, and the bytes that each rank publishes. Its methods do not block; the caller chooses how
// to wait. All but Formed may be called only after Formed has returned true.
type Group struct {
	member  *Member
	rank    int
	members []MemberID // of all ranks when the group was formed, 0 = has left since then; nil: it is not formed

	mine, other *rankRecord // of two ranks
	plainStores bool        // both ranks call asym.HeavyGlobal before their last check for work; a copy, because other's line moves in each barrier
	round       uint64      // number of the barrier that this rank reached last, from 1; private copy of mine.round
}

// JoinGroup takes the member's rank in its rank group, where the other ranks can see it. Call it
// once for each member: two Groups of one rank would count their barriers separately. The place of a dead
// member, or of one that has left, can be taken, but not its part in the group: see [Group.Formed].
//
// Errors: [ErrTaken] if another live member has the rank.
func (m *Member) JoinGroup() (*Group, error) {
	rank := m.rank
	if rank < 0 || rank >= m.arena.ranks {
		return nil, fmt.Errorf("shm: join group: %v has rank %d: want 0 to %d", m.id, rank, m.arena.ranks-1)
	}
	r := m.arena.rankRecord(rank)
	for {
		word := rankWord(r.member.Load())
		if word.id() == m.id {
			return m.newGroup(), nil
		}
		if peer, err := m.arena.Peer(word.id()); err == nil && m.checkAlive(peer) {
			return nil, fmt.Errorf("shm: join group: rank %d belongs to %v, %v: %w", rank, peer.id, peer, ErrTaken)
		}
		if r.member.CompareAndSwap(uint64(word), uint64(word.next(m.id))) { // ORDER rank-taken: pairs with the load in MemberOf
			failpoint.Reach(failpoint.RankTaken)
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
	membarrier := uint32(0)
	if asym.HasHeavyGlobal() {
		membarrier = 1
	}
	g.mine.membarrier.Store(membarrier)
	return g
}

// rankWord is rankRecord.member: a MemberID, the bits below, and how many members of the rank have died since the group was formed.
// The last member counts when the next one takes its place.
type rankWord uint64

// Bits of a rankWord. Without the first two, the member is admitted to the group.
const (
	rankTaken   rankWord = 1 << 63 // the member is not ready to be admitted, and still changes the other words of the record
	rankWaits   rankWord = 1 << 62 // the member waits until the group is formed
	rankLeft    rankWord = 1 << 61 // the member has left in good order
	rankRefused rankWord = 1 << 60 // the member does not take part, see Group.Refuse

	rankBits   = rankTaken | rankWaits | rankLeft | rankRefused
	rankDeath  = rankWord(1) << 48 // one death
	rankDeaths = rankRefused - rankDeath
	rankMember = rankDeath - 1
)

// MaxRankDeaths is the largest result of [Arena.RankDeaths], one less than a power of two.
const MaxRankDeaths = uint64(rankDeaths / rankDeath)

func (w rankWord) id() MemberID { return MemberID(w & rankMember) }

// next is the word of the member that takes the place of this one, which is gone.
func (w rankWord) next(id MemberID) rankWord {
	deaths := w & rankDeaths
	if w.id() != 0 && w&rankLeft == 0 {
		deaths = (deaths + rankDeath) & rankDeaths
	}
	return rankTaken | deaths | rankWord(id)
}

// mark sets a bit in the word of a rank, unless another member has taken the rank. It reports whether it did.
func (r *rankRecord) mark(id MemberID, bit rankWord) bool {
	for {
		word := rankWord(r.member.Load())
		if word.id() != id {
			return false
		}
		if r.member.CompareAndSwap(uint64(word), uint64(word|bit)) { // ORDER rank-left: pairs with the second load in holderDied
			return true
		}
	}
}

// Formed makes this member ready for the group, and reports whether the group is formed. For that, each rank must have
// a member that is ready; rank 0 then admits them all. Until then no rank may belong to a member of an earlier group. So a process
// that takes the place of a dead rank waits until all other ranks have left, too. Its arrivals at barriers never count for
// the group of the dead one. Rank 0 also determines the number of the barrier from which the group counts.
func (g *Group) Formed() bool {
	if g.members != nil {
		return true
	}
	id := uint64(g.member.id)
	word := rankWord(g.mine.member.Load())
	if word.id() == g.member.id && word&rankTaken != 0 && g.mine.member.CompareAndSwap(uint64(word), uint64(word^(rankTaken|rankWaits))) { // ORDER rank-waits: after the other words of the record; pairs with the load in isReady
		failpoint.Reach(failpoint.RankWaits)
		if first, ok := g.member.arena.MemberOf(0); ok && g.rank != 0 {
			g.wake(first)
		}
	}
	if g.rank == 0 && !g.admitAll() || g.mine.member.Load() != id { // ORDER rank-admitted: pairs with the swap in admitAll
		return false
	}
	// The rank 0 that has admitted this member may still be admitting others, itself last. If it has ended meanwhile, it is noted all the
	// same, and missing from then on. No other can form a group as long as this member stays.
	first := MemberID(g.member.arena.header().formedBy.Load()) // ORDER rank-admitted: after the own word; pairs with the swaps in admitAll
	if word := rankWord(g.member.arena.rankRecord(0).member.Load()); word&rankBits == rankWaits && word.id() == first {
		return false
	}
	g.members = make([]MemberID, g.size())
	g.members[0] = first
	for rank := 1; rank < len(g.members); rank++ {
		// A rank that has left since then may have a next member, which waits as long as this one stays.
		if word := rankWord(g.member.arena.rankRecord(rank).member.Load()); word&(rankTaken|rankWaits) == 0 {
			g.members[rank] = word.id()
		}
	}
	if g.other != nil {
		g.plainStores = asym.HasHeavyGlobal() && g.other.membarrier.Load() == 1 // it was stored before the other rank was ready
		g.round = g.mine.round.Load()
	} else {
		g.round = g.member.arena.header().opened.Load() / uint64(g.size()) // no barrier opens before this rank has arrived
	}
	return true
}

// admitAll admits the members of all ranks, this one last, if all wait for that.
func (g *Group) admitAll() bool {
	a := g.member.arena
	for rank := range g.size() {
		if !a.isReady(rank) {
			return false
		}
	}
	// No member of an earlier group is left, and the new ones arrive nowhere before they are admitted.
	a.header().formedBy.Store(uint64(g.member.id))
	round := g.lastRound() + 1
	if g.other != nil {
		g.mine.round.Store(round)
		g.other.round.Store(round)
	} else {
		a.header().arrived.Store(round * uint64(g.size()))
		a.header().opened.Store(round * uint64(g.size()))
	}
	for rank := g.size() - 1; rank >= 0; rank-- {
		r := a.rankRecord(rank)
		word := rankWord(r.member.Load())
		if word&rankBits == rankWaits {
			r.member.CompareAndSwap(uint64(word), uint64(word.id())) // ORDER rank-admitted: after the numbers of the barrier; pairs with the load in Formed
		}
		failpoint.Reach(failpoint.RankAdmitted)
	}
	g.wakeOthers()
	return true
}

// isReady reports whether a rank has a member that waits to be admitted.
func (a *Arena) isReady(rank int) bool {
	word := rankWord(a.rankRecord(rank).member.Load()) // ORDER rank-waits: pairs with the swap in Formed
	if word&rankBits != rankWaits {
		return false
	}
	p, err := a.Peer(word.id())
	return err == nil && !p.Gone()
}

// IsEarlier reports whether the member that has a rank was admitted to a group. While this group is not formed, that is an earlier one.
func (g *Group) IsEarlier(rank int) bool {
	word := rankWord(g.member.arena.rankRecord(rank).member.Load())
	return word != 0 && word&(rankTaken|rankWaits) == 0
}

// Refuse tells the other ranks that this member is their rank, and does not take part in the group. They need not wait for it.
// Call it in place of Formed.
func (g *Group) Refuse() {
	g.mine.mark(g.member.id, rankRefused)
	g.member.arena.header().deaths.Add(1) // ORDER death-count: after the mark, so that the others check all ranks; pairs with the load in Deaths
	g.wakeOthers()
}

// hasRefused reports whether the member that has a rank does not take part in the group.
func (a *Arena) hasRefused(rank int) bool {
	return rankWord(a.rankRecord(rank).member.Load())&rankRefused != 0 // ordered by death-count
}

// lastRound returns the number of the last barrier that a rank has reached.
func (g *Group) lastRound() uint64 {
	if g.other != nil {
		return max(g.mine.round.Load(), g.other.round.Load())
	}
	n := uint64(g.size())
	return (max(g.member.arena.header().arrived.Load(), g.member.arena.header().opened.Load()) + n - 1) / n
}

// Member returns the member that was a rank when the group was formed. ok is false if it has left since then, and the next member has
// taken its place. The member may be dead.
func (g *Group) Member(rank int) (id MemberID, ok bool) {
	if rank < 0 || rank >= len(g.members) {
		return 0, false
	}
	id = g.members[rank]
	return id, id != 0 && rankWord(g.member.arena.rankRecord(rank).member.Load())&^rankLeft == rankWord(id) // ORDER rank-taken: pairs with the swap in JoinGroup
}

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
	if g.plainStores {
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
// barrier. When the group is formed, wakeOthers does not read their records, which move in a barrier.
func (g *Group) wakeOthers() {
	for rank, id := range g.members {
		if rank != g.rank && id != 0 {
			g.wake(id)
		}
	}
	if g.members != nil {
		return
	}
	a := g.member.arena
	for rank := range a.ranks {
		if id, ok := a.MemberOf(rank); ok && rank != g.rank {
			g.wake(id)
		}
	}
}

func (g *Group) wake(id MemberID) {
	if slot := id.Slot(); slot < maxMembers {
		g.member.arena.member(slot).waiters.Ring()
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
	id = rankWord(a.rankRecord(rank).member.Load()).id() // ORDER rank-taken: pairs with the swap in JoinGroup
	return id, id != 0
}

// HasDied reports whether the member that holds rank has died, or has ended without [Member.Leave].
func (a *Arena) HasDied(rank int) bool {
	if rank < 0 || rank >= a.ranks {
		return false
	}
	died, _ := a.holderDied(a.rankRecord(rank))
	return died
}

// TakesNoPart reports whether the process of a rank's member p does not take part in a group that is not formed yet: it has refused,
// or p is gone and its process cannot join again.
func (a *Arena) TakesNoPart(rank int, p *Peer) bool {
	return a.hasRefused(rank) || p.Gone() && !a.mayJoinAgain(rank, p)
}

// mayJoinAgain reports whether the process of a rank's member p, which is gone, may become the next member: it still runs. Once
// p's record has another owner, p's process is not known: it may join again if p has left in good order.
func (a *Arena) mayJoinAgain(rank int, p *Peer) bool {
	runs := p.processRuns()
	if p.HasNextOwner() {
		return !a.HasDied(rank)
	}
	return runs
}

// RankDeaths returns how many members of a rank have died since the group was formed, the present one included. Members that have
// left do not count. The number after MaxRankDeaths is 0.
func (a *Arena) RankDeaths(rank int) uint64 {
	died, word := a.holderDied(a.rankRecord(rank))
	deaths := word & rankDeaths
	if died {
		deaths = (deaths + rankDeath) & rankDeaths
	}
	return uint64(deaths / rankDeath)
}

// holderDied reports whether the member of a rank has died, and returns the word with that member.
func (a *Arena) holderDied(r *rankRecord) (died bool, word rankWord) {
	for {
		word = rankWord(r.member.Load()) // ORDER rank-taken: pairs with the swap in JoinGroup
		if word.id() == 0 {
			return false, word
		}
		if p, err := a.Peer(word.id()); err != nil || !p.Gone() {
			return false, word
		}
		if rankWord(r.member.Load()) == word { // ORDER rank-left: after the state; pairs with the swap in mark
			return word&rankLeft == 0, word
		}
	}
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

// Publisher returns another rank that has published bytes for the last barrier; ok is false if none has. Call it when all ranks have
// arrived, and before the next barrier.
func (g *Group) Publisher() (rank int, ok bool) {
	for rank := range g.size() {
		// Ordered by the barrier. A rank that is ahead has published for a later one.
		if rank != g.rank && g.member.arena.rankRecord(rank).publishedRound.Load() == g.round {
			return rank, true
		}
	}
	return 0, false
}

// Published returns a copy of the bytes that a rank published for the last barrier.
//
// Errors: [ErrNotPublished] if the rank reached that barrier without publishing; [ErrTooLong] if it
// published more than limit bytes; [ErrDamaged] if the range is not in that member's heap. It fails
// with another error if the rank's member has left, and another one has taken its place.
func (g *Group) Published(rank int, limit uint64) ([]byte, error) {
	a := g.member.arena
	if rank < 0 || rank >= len(g.members) {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, errGone)
	}
	r := a.rankRecord(rank)
	// Ordered by the barrier: the rank stored all three before it arrived.
	off, n, round := Offset(r.blob.Load()), r.length.Load(), r.publishedRound.Load()
	g.member.names.Lock() // no death is acknowledged meanwhile: memory that the rank owns now stays its own, also if it has left
	defer g.member.names.Unlock()
	id, ok := g.Member(rank) // after the loads: the next member of the rank takes it before it changes them
	if !ok {
		return nil, fmt.Errorf("shm: bytes published by rank %d: %w", rank, errGone)
	}
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
