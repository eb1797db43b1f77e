package shm

import (
	"os"

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
//     the lock on the record meanwhile: so nobody else is at it, and the member is dead
//     indeed, whatever a peer has written into its record.

// markDead takes a live record to dead, counts the death, and wakes everybody.
func (a *Arena) markDead(slot int, id MemberID) {
	rec := a.member(slot)
	s := memberState(rec.state.Load())
	if s.status() == statusLive && memberID(slot, s.incarnation()) == id {
		rec.state.CompareAndSwap(uint64(s), uint64(stateOf(statusDead, s.incarnation()))) // ORDER member-dead: pairs with the load in Gone
	}
	a.countDeath(slot)
}

// notCounted is what a record's deathEpoch holds until its death is counted.
// It names the incarnation: a counter that is delayed until the record has its
// next owner must not mark that one.
func notCounted(incarnation uint32) uint64 { return uncounted | uint64(incarnation) }

const uncounted = 1 << 63

func (a *Arena) countDeath(slot int) {
	rec := a.member(slot)
	s := memberState(rec.state.Load())
	mark := notCounted(s.incarnation())
	if s.status() != statusDead || rec.deathEpoch.Load() != mark {
		return
	}
	// Two counters may count one death twice: a number is lost, nothing else.
	n := a.header().deaths.Add(1)          // ORDER death-count: after the mark; pairs with the load in Deaths
	rec.deathEpoch.CompareAndSwap(mark, n) // ORDER death-epoch: pairs with the load in reapDead
	a.ringAll()
}

// ringAll wakes everybody, armed or not: the dead one may have died between
// taking a bell's mark and waking its sleepers.
func (a *Arena) ringAll() {
	for slot := range a.slotsUsed() {
		rec := a.member(slot)
		if memberState(rec.state.Load()).status() == statusLive {
			Doorbell{&rec.waiters}.wake()
			Doorbell{&rec.engine}.wake()
		}
	}
}

// slotsUsed bounds the records that were ever taken.
func (a *Arena) slotsUsed() int {
	return int(min(a.header().highest.Load(), MaxMembers)) // ORDER highest: pairs with the swap in take
}

// locked reports whether a member holds the lock on a record.
func (a *Arena) locked(slot int) bool {
	const cannotTell = true // never call a member dead without proof
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(a.lockOf(slot)), Len: 1}
	err := unix.FcntlFlock(a.file.Fd(), unix.F_OFD_GETLK, &l)
	if err != nil || l.Type != unix.F_UNLCK {
		return cannotTell
	}
	return a.checkFile() != nil
}

// Deaths returns how many members have died or left so far. When it changes,
// [Member.Acknowledge] is due.
func (a *Arena) Deaths() uint64 {
	return a.header().deaths.Load() // ORDER death-count: before the look at the records; pairs with the addition in countDeath
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

// Sweep looks whether every member still runs, and then does what
// [Member.Acknowledge] does. It makes one system call a member.
//
// To be called now and then, since not every death makes an event.
func (m *Member) Sweep(letGo func(MemberID)) {
	a := m.arena
	for slot := range a.slotsUsed() {
		rec := a.member(slot)
		if s := memberState(rec.state.Load()); s.status() == statusLive {
			m.CheckAlive(&Peer{a, memberID(slot, s.incarnation()), rec})
		}
	}
	m.Acknowledge(letGo)
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
	for slot := range a.slotsUsed() {
		a.countDeath(slot)
	}
	seen := a.Deaths()
	for slot := range a.slotsUsed() {
		s := memberState(a.member(slot).state.Load())
		if s.status() == statusDead {
			letGo(memberID(slot, s.incarnation()))
		}
	}
	// A death that was counted while we looked has a later number than seen.
	for noted := m.rec.deathsSeen.Load(); noted < seen; noted = m.rec.deathsSeen.Load() {
		if m.rec.deathsSeen.CompareAndSwap(noted, seen) { // ORDER death-seen: pairs with the load in reapable
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

// reapDead gives back what dead members owned, once nobody uses it.
func (m *Member) reapDead() {
	a := m.arena
	for slot := range a.slotsUsed() {
		rec := a.member(slot)
		s := memberState(rec.state.Load())
		if s.status() != statusDead {
			continue
		}
		epoch := rec.deathEpoch.Load() // ORDER death-epoch: pairs with the swap in countDeath
		if epoch&uncounted == 0 && a.reapable(epoch) {
			a.reap(slot, s)
		}
	}
}

// reap gives back what a dead member owned, and its record. Chunks that cannot be
// cleared stay the dead member's: a later sweep tries again.
func (a *Arena) reap(slot int, s memberState) {
	a.reaping.Lock() // the lock on the record does not exclude members of this process
	defer a.reaping.Unlock()
	at := a.lockOf(slot)
	if ok, err := lockRecord(a.file, at); !ok || err != nil {
		return // it is not dead, or another member is at it
	}
	defer unlockRecord(a.file, at)
	rec := a.member(slot)
	if a.checkFile() == nil && memberState(rec.state.Load()) == s && a.reclaim(slot) == nil {
		rec.state.CompareAndSwap(uint64(s), uint64(stateOf(statusFree, s.incarnation())))
	}
}

// reapable tells whether every live member has acted upon the death numbered
// epoch.
func (a *Arena) reapable(epoch uint64) bool {
	for slot := range a.slotsUsed() {
		rec := a.member(slot)
		live := memberState(rec.state.Load()).status() == statusLive
		if live && rec.deathsSeen.Load() < epoch { // ORDER death-seen: pairs with the swap in Acknowledge
			return false
		}
	}
	return true
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

// Watch calls gone once when the peer's process has ended, where the kernel
// can tell that by an event (the peer's process number is visible here). The
// peer has been marked as gone then. Watch reports whether it can; if not,
// [Member.Sweep] finds out in time. The watch ends with stop, or when the member
// leaves; Leave waits for a gone that is running.
func (m *Member) Watch(p *Peer, stop <-chan struct{}, gone func()) bool {
	if ns := p.rec.pidNS.Load(); ns == 0 || ns != pidNamespace() {
		return false
	}
	fd, err := unix.PidfdOpen(int(p.rec.pid.Load()), unix.PIDFD_NONBLOCK)
	if err == nil && m.CheckAlive(p) { // so the number was the peer's when we opened it
		return m.watch(os.NewFile(uintptr(fd), "pidfd"), p, stop, gone)
	}
	if err == nil {
		unix.Close(fd)
	}
	if m.CheckAlive(p) {
		return false
	}
	go m.whileHere(gone)
	return true
}

// whileHere calls f unless the member has left, and keeps it from leaving until
// f returns: afterwards the arena may be unmapped.
func (m *Member) whileHere(f func()) {
	m.watches.RLock()
	defer m.watches.RUnlock()
	if !m.left.Load() {
		f()
	}
}

func (m *Member) watch(pidfd *os.File, p *Peer, stop <-chan struct{}, gone func()) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		pidfd.Close()
		return false
	}
	ended := make(chan error, 1)
	go func() {
		// The runtime's poller wakes us when the descriptor becomes readable,
		// which for a pidfd means that the process has ended.
		ended <- conn.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return err == nil && n > 0
		})
	}()
	go func() {
		defer pidfd.Close()
		select {
		case <-stop:
		case err := <-ended:
			// A child that the process left behind may hold its memory still,
			// and a record can lie about the process number.
			m.whileHere(func() {
				if err == nil && !m.CheckAlive(p) {
					gone()
				}
			})
		}
	}()
	return true
}

// LiveMembers counts the members that have not been marked dead.
func (a *Arena) LiveMembers() (n int) {
	for slot := range a.slotsUsed() {
		if memberState(a.member(slot).state.Load()).status() == statusLive {
			n++
		}
	}
	return n
}
