package shm

// TWIN c/src/shm/liveness.c.

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// The members handle a death in four steps. Any member can take steps 1, 2 and 4; if it dies in the
// middle, another continues.
//
//  1. Mark: a member finds the lock on a live record free, or the record's owner leaves. It marks
//     the record dead. The kernel releases the lock after the last thread of the process has left
//     user mode, so the process executes nothing after that.
//  2. Count: the number of deaths goes up, and the record stores the new value.
//  3. Acknowledge: each live member drops everything that the dead member owned. Then it stores the
//     number of the last death that it has acknowledged (Member.acknowledge).
//  4. Reap: when all live members have acknowledged the death, one of them reclaims the dead
//     member's memory (reap). Meanwhile it holds the lock on the record. So no other process reaps
//     the record, and the member is dead, whatever a peer has written into the record.

// markRecordDead marks a live record dead, and reports whether this call did it.
func (a *Arena) markRecordDead(slot int, id MemberID) bool {
	rec := a.member(slot)
	s := memberState(rec.state.Load())
	if s.status() != statusLive || memberID(slot, s.incarnation()) != id {
		return false
	}
	marked := rec.state.CompareAndSwap(uint64(s), uint64(stateOf(statusDead, s.incarnation()))) // ORDER member-dead: pairs with the load in Gone
	failpoint.Reach(failpoint.MemberMarked)
	return marked
}

// notCounted is the deathEpoch of a record whose death is not counted yet. It includes the
// incarnation: a process that counts a death, and is delayed until the record has its next owner,
// must not change the next owner's deathEpoch.
func notCounted(incarnation uint32) uint64 { return 1<<63 | uint64(incarnation) }

// counted reports whether a deathEpoch is the number of a death. Any process can write the word, so a
// number that is higher than the number of deaths is not one.
func (a *Arena) counted(epoch uint64) bool { return epoch != 0 && epoch <= a.Deaths() }

// numberDeath counts the death of a dead record, if it is not counted yet, and stores its number
// there. It reports whether it did; the caller then wakes all members. first says that this process
// marked the record dead. It then counts the death whatever deathEpoch says, because the dead member
// or a hostile peer may have written the word.
func (a *Arena) numberDeath(slot int, first bool) bool {
	rec := a.member(slot)
	epoch := rec.deathEpoch.Load() // before the status: if the record is still dead, this is not the next owner's epoch
	if rec.status() != statusDead || !first && a.counted(epoch) {
		return false
	}
	a.useSlot(slot) // this process may know the member only from a connection
	// Two processes may count one death twice: that wastes a number and does no other harm.
	n := a.header().deaths.Add(1) // ORDER death-count: after the mark; pairs with the load in Deaths
	failpoint.Reach(failpoint.DeathCounted)
	rec.deathEpoch.CompareAndSwap(epoch, n) // ORDER death-epoch: pairs with the load in reapDead
	failpoint.Reach(failpoint.DeathNumbered)
	return true
}

// wakeAll wakes all members, whether their doorbells are armed or not: the dead member may have died
// between marking a doorbell and waking its waiters.
func (a *Arena) wakeAll() {
	for slot := range a.usedSlots() {
		if rec := a.member(slot); rec.status() == statusLive {
			rec.waiters.WakeAll()
			rec.engine.WakeAll()
		}
	}
}

// locked reports whether a member holds the lock on a record.
func (a *Arena) locked(slot int) bool {
	const unknown = true // without proof, no member counts as dead
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(a.lockOf(slot)), Len: 1}
	err := a.holdFile(func(fd int) error {
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l); err != nil {
			return err
		}
		return a.checkFile(fd) // after the query: the lock of another file proves nothing
	})
	if err != nil {
		return unknown
	}
	return l.Type != unix.F_UNLCK
}

// Deaths returns a number that grows with each death or leave of a member. Two members that notice a
// death at the same time may count it twice.
func (a *Arena) Deaths() uint64 {
	return a.header().deaths.Load() // ORDER death-count: before the records are read; pairs with the addition in numberDeath
}

// checkAlive reports whether the peer's process still runs, and marks the peer dead if it does not.
// It makes one system call.
func (m *Member) checkAlive(p *Peer) bool {
	died := false
	alive := m.isAlive(p, &died)
	if died {
		m.arena.wakeAll()
	}
	return alive
}

// isAlive is checkAlive for a caller that checks several members. It sets died instead of waking all
// members, which the caller does once: a hostile process can make thousands of records look alive.
func (m *Member) isAlive(p *Peer, died *bool) bool {
	if p.Gone() {
		return false
	}
	if p.id == m.id {
		return true
	}
	slot := p.id.Slot()
	if m.arena.locked(slot) {
		return !p.Gone() // if gone, the lock is that of the record's next owner
	}
	if m.arena.numberDeath(slot, m.arena.markRecordDead(slot, p.id)) {
		*died = true
	}
	return false
}

// acknowledge counts the deaths that are not counted yet, and calls drop for each dead member whose
// memory is not reclaimed yet. After drop returns, this process must never again access anything
// that the dead member owned. Then acknowledge stores that this member has acknowledged these
// deaths, and reclaims the memory of dead members that all live members have acknowledged. If a
// member never calls it, the memory of members that die after it joined is never reclaimed.
func (m *Member) acknowledge(drop func(MemberID)) {
	a := m.arena
	m.unlessLeft(m.repairState)
	died := false
	for slot := range a.usedSlots() {
		died = a.numberDeath(slot, false) || died
	}
	if died {
		a.wakeAll()
	}
	seen := a.Deaths()
	for slot := range a.usedSlots() { // loaded behind the number of deaths: a member may have joined and died since the first walk
		s := memberState(a.member(slot).state.Load())
		if s.status() == statusDead {
			drop(memberID(slot, s.incarnation()))
		}
	}
	m.names.Lock() // no look for a name and no copy of a blob that began earlier still reads what the dead member owned
	failpoint.Reach(failpoint.DeathDropped)
	m.names.Unlock()
	// A death that was counted during this loop has a higher number than seen.
	for noted := m.rec.deathsSeen.Load(); noted < seen; noted = m.rec.deathsSeen.Load() {
		if m.rec.deathsSeen.CompareAndSwap(noted, seen) { // ORDER death-seen: pairs with the load in acknowledged
			break
		}
	}
	failpoint.Reach(failpoint.DeathSeen)
	m.reapDead()
}

// repairState stores a valid dead state if the member's own record is marked dead or invalid. The
// other members handle it like any death then.
func (m *Member) repairState() {
	incarnation := uint32(m.id >> 16)
	dead := stateOf(statusDead, incarnation)
	if m.Gone() && memberState(m.rec.state.Load()) != dead {
		m.rec.deathEpoch.Store(notCounted(incarnation))
		m.rec.state.Store(uint64(dead)) // ORDER member-dead: pairs with the load in Gone
	}
}

// reapDead reaps the dead members that all live members have acknowledged.
func (m *Member) reapDead() {
	a := m.arena
	seen := a.acknowledged() // remains valid: the number only grows
	for slot := range a.usedSlots() {
		rec := a.member(slot)
		s := memberState(rec.state.Load())
		epoch := rec.deathEpoch.Load() // ORDER death-epoch: pairs with the swap in numberDeath
		if s.status() == statusDead && a.counted(epoch) && epoch <= seen {
			a.reap(slot, s)
		}
	}
}

// reap reclaims what a dead member owned, and frees its record. Chunks that cannot be cleared stay
// the dead member's, and a later call tries again.
func (a *Arena) reap(slot int, s memberState) {
	a.reaping.Lock() // the lock on the record does not exclude members of this process
	defer a.reaping.Unlock()
	_ = a.useFile(func(fd int) error {
		at := a.lockOf(slot)
		if ok, err := lockRecord(fd, at); !ok || err != nil {
			return err // the member is not dead, or another process reaps the record
		}
		defer unlockRecord(fd, at)
		failpoint.Reach(failpoint.RecordLocked)
		rec := a.member(slot)
		if memberState(rec.state.Load()) == s && a.reclaim(slot) == nil {
			failpoint.Reach(failpoint.RecordReclaimed)
			rec.state.CompareAndSwap(uint64(s), uint64(stateOf(statusFree, s.incarnation())))
		}
		return nil
	})
}

// acknowledged returns the number of the last death that all live members have acknowledged.
func (a *Arena) acknowledged() uint64 {
	seen := uint64(math.MaxUint64)
	for slot := range a.usedSlots() {
		if rec := a.member(slot); rec.status() == statusLive {
			seen = min(seen, rec.deathsSeen.Load()) // ORDER death-seen: pairs with the swap in acknowledge
		}
	}
	return seen
}

// reclaim frees everything that a dead member owned. A second call does no harm. Chunks that cannot
// be cleared stay the dead member's, and the error says why.
func (a *Arena) reclaim(slot int) (err error) {
	self := uint32(slot) + 1
	chunks := ownerMap{a.words(a.geo.chunkOwners, a.geo.chunks), self}
	chunks.runs(0, a.geo.chunks, func(first, n uint64) {
		if e := a.release(a.geo.heap+Offset(first*chunkSize), n*chunkSize); e != nil {
			err = e
			return
		}
		chunks.releaseRun(first, n)
	})
	failpoint.Reach(failpoint.ChunksFreed)
	blocks := ownerMap{a.words(a.geo.windowOwners, windowBlocks), self}
	blocks.releaseRun(0, windowBlocks)
	numbers := ownerMap{a.words(a.geo.numberOwners, numberBlocks), self}
	numbers.releaseRun(0, numberBlocks)
	return err
}

// LiveMemberCount returns the number of members that are not marked dead.
func (a *Arena) LiveMemberCount() (n int) {
	for slot := range a.usedSlots() {
		if a.member(slot).status() == statusLive {
			n++
		}
	}
	return n
}
