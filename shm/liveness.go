package shm

import (
	"math"

	"golang.org/x/sys/unix"
)

// How a death is handled, step by step; each step may be taken by any member,
// and a member that dies in the middle leaves the rest to the others.
//
//  1. Somebody sees that the lock on a live record is free (the kernel closes
//     the descriptors of a dying process only after its last thread has left
//     user mode, so the process executes nothing any more), or the member
//     itself leaves. It marks the record dead.
//  2. The death is counted: the count goes up and the record remembers it.
//  3. Each live member lets go of all that the dead one owned, then notes the
//     count up to which it has done so (Member.Acknowledge).
//  4. When all have, one of them gives the dead member's memory back (reap). It holds
//     the lock on the record meanwhile: so no other process reaps it, and the member is
//     dead, whatever a peer has written into its record.

// markDead takes a live record to dead, counts the death, and wakes all members.
func (a *Arena) markDead(slot int, id MemberID) {
	a.countDeath(slot, a.bury(slot, id))
}

// bury takes a live record to dead, and reports whether it was this call that did.
func (a *Arena) bury(slot int, id MemberID) bool {
	rec := a.member(slot)
	s := memberState(rec.state.Load())
	return s.status() == statusLive && memberID(slot, s.incarnation()) == id &&
		rec.state.CompareAndSwap(uint64(s), uint64(stateOf(statusDead, s.incarnation()))) // ORDER member-dead: pairs with the load in Gone
}

// notCounted is what a record's deathEpoch holds until its death is counted.
// It names the incarnation: a counter that is delayed until the record has its
// next owner must not mark that one.
func notCounted(incarnation uint32) uint64 { return 1<<63 | uint64(incarnation) }

// counted reports whether a deathEpoch is the number of a death. Any process can write the
// word, so a number that no death has had yet does not count.
func (a *Arena) counted(epoch uint64) bool { return epoch != 0 && epoch <= a.Deaths() }

// countDeath counts the death of a dead record that has not been counted, and wakes all
// members. The member that took the record to dead is the first: it counts the death
// whatever deathEpoch says, because the dead member, or a liar, may have written the word.
func (a *Arena) countDeath(slot int, first bool) {
	if a.number(slot, first) {
		a.wakeAll()
	}
}

// number gives a dead record the number of its death, and reports whether it did.
func (a *Arena) number(slot int, first bool) bool {
	rec := a.member(slot)
	epoch := rec.deathEpoch.Load() // before the state: it is not the next owner's if this one is still dead
	if rec.status() != statusDead || !first && a.counted(epoch) {
		return false
	}
	// Two counters may count one death twice: a number is lost, nothing else.
	n := a.header().deaths.Add(1)           // ORDER death-count: after the mark; pairs with the load in Deaths
	rec.deathEpoch.CompareAndSwap(epoch, n) // ORDER death-epoch: pairs with the load in reapDead
	return true
}

// wakeAll wakes all members, armed or not: the dead member may have died between
// taking a bell's mark and waking its sleepers.
func (a *Arena) wakeAll() {
	for slot := range MaxMembers {
		if rec := a.member(slot); rec.status() == statusLive {
			Doorbell{&rec.waiters}.wake()
			Doorbell{&rec.engine}.wake()
		}
	}
}

// locked reports whether a member holds the lock on a record.
func (a *Arena) locked(slot int) bool {
	const cannotTell = true // never call a member dead without proof
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(a.lockOf(slot)), Len: 1}
	err := a.holdFile(func(fd int) error {
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l); err != nil {
			return err
		}
		return a.checkFile(fd) // after the look: what another file says is no proof
	})
	if err != nil {
		return cannotTell
	}
	return l.Type != unix.F_UNLCK
}

// Deaths returns how many members have died or left so far. When it changes,
// [Member.Acknowledge] is due.
func (a *Arena) Deaths() uint64 {
	return a.header().deaths.Load() // ORDER death-count: before the records are read; pairs with the addition in number
}

// CheckAlive looks whether the peer's process still runs and marks it dead if
// not. It makes one system call.
func (m *Member) CheckAlive(p *Peer) bool {
	if p.Gone() {
		return false
	}
	if p.id == m.id {
		return true
	}
	if m.arena.locked(p.id.Slot()) {
		return !p.Gone() // else the lock is that of the record's next owner
	}
	m.arena.markDead(p.id.Slot(), p.id)
	return false
}

// Acknowledge finishes what dead members left half done, and calls letGo for
// each that has died or left, again and again until its memory is reclaimed;
// letGo must make sure that this process never again touches anything that
// member owned. Then it notes that this was done, and reclaims what all
// members have let go of. A member that never calls it keeps the memory of all
// that die after it joined.
//
// To be called when [Arena.Deaths] has changed.
func (m *Member) Acknowledge(letGo func(MemberID)) {
	a := m.arena
	m.whileHere(m.ownUp)
	for slot := range MaxMembers {
		a.countDeath(slot, false)
	}
	seen := a.Deaths()
	for slot := range MaxMembers {
		s := memberState(a.member(slot).state.Load())
		if s.status() == statusDead {
			letGo(memberID(slot, s.incarnation()))
		}
	}
	// A death that was counted while we looked has a later number than seen.
	for noted := m.rec.deathsSeen.Load(); noted < seen; noted = m.rec.deathsSeen.Load() {
		if m.rec.deathsSeen.CompareAndSwap(noted, seen) { // ORDER death-seen: pairs with the load in acknowledged
			break
		}
	}
	m.reapDead()
}

// MarkedDead reports whether the member's record says that it is dead, or nonsense.
// For a member that has not left, that is the doing of a process that writes to memory
// which is not its own. The other members let go of this one. What it owns stays its
// own until it leaves.
func (m *Member) MarkedDead() bool { return (&Peer{m.arena, m.id, m.rec}).Gone() }

// ownUp makes a record of our own that says nonsense that of a dead member, so that
// the others learn that they see no member in it.
func (m *Member) ownUp() {
	incarnation := uint32(m.id >> 16)
	dead := stateOf(statusDead, incarnation)
	if m.MarkedDead() && memberState(m.rec.state.Load()) != dead {
		m.rec.deathEpoch.Store(notCounted(incarnation))
		m.rec.state.Store(uint64(dead)) // ORDER member-dead: pairs with the load in Gone
	}
}

// reapDead gives back what dead members owned, once no live member uses it.
func (m *Member) reapDead() {
	a := m.arena
	seen := a.acknowledged() // only grows: it stays good
	for slot := range MaxMembers {
		rec := a.member(slot)
		s := memberState(rec.state.Load())
		epoch := rec.deathEpoch.Load() // ORDER death-epoch: pairs with the swap in number
		if s.status() == statusDead && a.counted(epoch) && epoch <= seen {
			a.reap(slot, s)
		}
	}
}

// reap gives back what a dead member owned, and its record. Chunks that cannot be
// cleared stay the dead member's: a later sweep tries again.
func (a *Arena) reap(slot int, s memberState) {
	a.reaping.Lock() // the lock on the record does not exclude members of this process
	defer a.reaping.Unlock()
	_ = a.useFile(func(fd int) error {
		at := a.lockOf(slot)
		if ok, err := lockRecord(fd, at); !ok || err != nil {
			return err // it is not dead, or another member reaps it
		}
		defer unlockRecord(fd, at)
		rec := a.member(slot)
		if memberState(rec.state.Load()) == s && a.reclaim(slot) == nil {
			rec.state.CompareAndSwap(uint64(s), uint64(stateOf(statusFree, s.incarnation())))
		}
		return nil
	})
}

// acknowledged returns the number of the last death that every live member has acted upon.
func (a *Arena) acknowledged() uint64 {
	seen := uint64(math.MaxUint64)
	for slot := range MaxMembers {
		if rec := a.member(slot); rec.status() == statusLive {
			seen = min(seen, rec.deathsSeen.Load()) // ORDER death-seen: pairs with the swap in Acknowledge
		}
	}
	return seen
}

// reclaim frees all that a dead member owned. Doing it twice does no harm. Chunks
// that cannot be cleared stay the dead member's, and the error says why.
func (a *Arena) reclaim(slot int) (err error) {
	self := uint32(slot) + 1
	chunks := ownerMap{a.words(a.geo.chunkOwners, a.geo.chunks), self}
	chunks.runs(0, a.geo.chunks, func(first, n uint64) {
		if e := a.release(a.geo.heap+Offset(first*ChunkSize), n*ChunkSize); e != nil {
			err = e
			return
		}
		chunks.releaseRun(first, n)
	})
	blocks := ownerMap{a.words(a.geo.windowOwners, windowBlocks), self}
	blocks.releaseRun(0, windowBlocks)
	return err
}

// LiveMembers counts the members that have not been marked dead.
func (a *Arena) LiveMembers() (n int) {
	for slot := range MaxMembers {
		if a.member(slot).status() == statusLive {
			n++
		}
	}
	return n
}
