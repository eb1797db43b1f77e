package shm

// TWIN c/src/shm/member.c, c/src/shm/liveness.c.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/doorbell"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// MemberID identifies a member: the slot of its record and the incarnation of that slot. An arena
// never uses a MemberID twice.
type MemberID uint64

// Slot returns the index of the member's record.
func (id MemberID) Slot() int { return int(id & 0xffff) }

func (id MemberID) String() string {
	return fmt.Sprintf("member %d.%d", id.Slot(), uint64(id)>>16)
}

func memberID(slot int, incarnation uint32) MemberID {
	return MemberID(uint64(incarnation)<<16 | uint64(slot))
}

// status of a member record.
type status uint8

const (
	statusFree status = iota // the record has no owner
	statusLive               // the owner holds the lock on the record
	statusDead               // the owner died or left; its memory is not reclaimed yet
)

// memberState is the state word of a record: the status in bits 0..7, the incarnation in bits
// 32..63.
type memberState uint64

func stateOf(s status, incarnation uint32) memberState {
	return memberState(uint64(incarnation)<<32 | uint64(s))
}

// status returns the status. An invalid value, which only a hostile or broken peer writes, counts as
// dead.
func (s memberState) status() status      { return min(status(s), statusDead) }
func (s memberState) incarnation() uint32 { return uint32(s >> 32) }

func (r *memberRecord) status() status { return memberState(r.state.Load()).status() }

// Member is this process's membership in an arena: its record, its lock, its heap and its doorbells.
// A process may join several times, as tests do. Safe for concurrent use, except for Leave and the
// methods that say otherwise.
//
// Peer is the member as the others see it. If the member has not left, and Gone reports true all the
// same, a hostile or broken process has overwritten its record. The other members drop this member
// then. It keeps what it owns until it leaves.
type Member struct {
	Peer

	lock     lockPage // holds the lock on the first byte of the record
	slot     int
	rank     int // or NoRank
	heap     *heap
	blocksMu sync.Mutex
	blocks   claimMap // blocks of window entries; guarded by blocksMu
	left     atomic.Bool

	names      sync.Mutex  // guards the next two; held while memory of others is read, and before a death is acknowledged
	published  []nameEntry // nil = it has published none yet
	nameNumber uint16      // of its last use of an entry

	watches              sync.RWMutex           // see unlessLeft
	watched              [neighbours]*neighbour // used by CheckLiveness only
	lastChecked          int                    // slot of the member that CheckLiveness checked last; used by CheckLiveness only
	livenessRequestsSeen atomic.Uint32          // rec.livenessRequests when CheckLiveness was last called
	deathsChecked        atomic.Uint64          // Arena.Deaths when CheckLiveness was last called
}

// NoRank is the rank of a member that belongs to no rank group.
const NoRank = -1

// Join makes this process a member. rank is its rank in the group, or NoRank.
//
// Errors: [ErrFull] if all member records are taken, [NoMemoryError] if the pages of the status page
// cannot be reserved.
func (a *Arena) Join(rank int) (*Member, error) {
	if rank < NoRank || rank >= max(a.ranks, 1) {
		return nil, fmt.Errorf("shm: join: rank %d of a group of size %d: want 0 to %d, or none", rank, a.ranks, a.ranks-1)
	}
	asym.Register() // here and not in Create: a process that only creates arenas need not wait for the kernel
	var lock *os.File
	err := a.useFile(func(fd int) (err error) {
		lock, err = reopen(fd)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shm: join: %w", err)
	}
	defer lock.Close()
	start := max(rank, 0)
	if rank == NoRank {
		start = a.ranks // leave the slots below to the ranks
	}
	for i := range maxMembers {
		m := &Member{Peer: Peer{arena: a}, slot: (start + i) % maxMembers, rank: rank}
		ok, err := m.take(int(lock.Fd()))
		if err != nil {
			return nil, fmt.Errorf("shm: join: %w", err)
		}
		if ok {
			a.refs.Add(1)
			m.heap = newHeap(a, m.slot)
			m.blocks = newClaimMap(a.words(a.geo.windowOwners, windowBlocks), m.slot)
			return m, nil
		}
	}
	return nil, fmt.Errorf("shm: join: all %d member records are taken: %w", maxMembers, ErrFull)
}

// take tries to take record m.slot, with a lock that belongs to the open file description of fd.
// Only the holder of the lock on a record may change its status from free to live.
func (m *Member) take(fd int) (bool, error) {
	a := m.arena
	at := a.lockOf(m.slot)
	m.rec = a.member(m.slot)
	if memberState(m.rec.state.Load()).status() != statusFree {
		return false, nil
	}
	if ok, err := lockRecord(fd, at); !ok || err != nil {
		return false, err
	}
	failpoint.Reach(failpoint.MemberLocked)
	s := memberState(m.rec.state.Load())
	if s.status() != statusFree {
		return false, unlockRecord(fd, at)
	}
	if err := a.reserve(a.geo.statusPages+Offset(m.slot)*StatusPageSize, StatusPageSize); err != nil {
		return false, errors.Join(err, unlockRecord(fd, at))
	}
	page, err := mapLockPage(fd)
	if err != nil {
		return false, errors.Join(err, unlockRecord(fd, at))
	}
	m.lock = page
	rec := m.rec
	m.rankWord, m.pid, m.pidNS = uint32(m.rank+1), uint32(os.Getpid()), pidNamespace()
	// First: if this process dies before the record is live, the record shows that the other words are not the last owner's.
	rec.deathEpoch.Store(notCounted(s.incarnation() + 1)) // ORDER next-owner: before the rest; pairs with the load in HasNextOwner
	failpoint.Reach(failpoint.MemberTaken)
	rec.pid.Store(m.pid)
	rec.pidNS.Store(m.pidNS)
	rec.rank.Store(m.rankWord)
	rec.inbox.Store(0)
	rec.names.Store(0)
	rec.waiters.Disarm()
	rec.engine.Disarm()
	a.useSlot(m.slot)
	failpoint.Reach(failpoint.MemberCovered)
	rec.deathsSeen.Store(a.header().deaths.Load()) // before the record is live: this member must acknowledge later deaths
	failpoint.Reach(failpoint.MemberFilled)
	live := stateOf(statusLive, s.incarnation()+1)
	rec.state.Swap(uint64(live)) // ORDER member-live: pairs with the load in Gone
	failpoint.Reach(failpoint.MemberLive)
	m.id = memberID(m.slot, live.incarnation())
	m.lastChecked = m.slot
	m.requestLivenessChecks()
	return true, nil
}

// useSlot makes usedSlots cover a slot, here and in processes that see the header before a peer lowers the number.
func (a *Arena) useSlot(slot int) {
	want, n := uint64(slot)+1, &a.header().slots
	for seen := a.slotsSeen.Load(); seen < want && !a.slotsSeen.CompareAndSwap(seen, want); seen = a.slotsSeen.Load() {
	}
	for range maxMembers { // members only raise it; a peer that lowers it all the time must not hold this process
		if used := n.Load(); used >= want || n.CompareAndSwap(used, want) { // ORDER member-slots: before the load of deaths in take; pairs with the load in usedSlots
			return
		}
	}
}

// usedSlots returns how many member records have been in use: the walks over the records end there, because each page of them costs a
// process a page fault. Slots of ranks count in any case. If a peer has lowered the number, usedSlots raises it again.
func (a *Arena) usedSlots() int {
	used := max(min(a.header().slots.Load(), maxMembers), uint64(a.ranks)) // ORDER member-slots: pairs with the exchange in useSlot
	switch seen := a.slotsSeen.Load(); {
	case used < seen:
		a.useSlot(int(seen) - 1)
		return int(seen)
	case used > seen:
		a.slotsSeen.CompareAndSwap(seen, used) // another goroutine may have stored as much
	}
	return int(used)
}

// Leave ends the membership. Peers see the member as gone, and its memory is reclaimed when all live
// members have acknowledged that. The caller must not use anything that it got from the member
// afterwards. Leave blocks until the functions passed to [Member.Watch] that are running return. Not
// safe for concurrent use with other methods.
func (m *Member) Leave() error {
	m.names.Lock() // a call that still uses names ends first, and later ones see that the member has left
	left := m.left.Swap(true)
	m.names.Unlock()
	if left {
		return fmt.Errorf("shm: leave: %w", errClosed)
	}
	m.watches.Lock()
	defer m.watches.Unlock()
	if m.rank >= 0 && m.rank < m.arena.ranks && m.arena.rankRecord(m.rank).mark(m.id, rankLeft) { // before another process can mark the record dead
		failpoint.Reach(failpoint.RankLeft)
	}
	err := m.lock.unmap() // before the mark: no process reaps a record whose lock is held
	failpoint.Reach(failpoint.MemberUnlocked)
	m.unwatch()
	m.announceLeave()
	m.arena.refs.Add(-1)
	return err
}

// announceLeave marks this member's record dead and counts the death. A member that leaves has ended
// its connections before, and leaves no doorbell half rung. So announceLeave wakes only the members
// that wait, and the members that must watch other neighbours. The others see it in their next
// liveness check.
func (m *Member) announceLeave() {
	a := m.arena
	if !a.numberDeath(m.slot, a.markRecordDead(m.slot, m.id)) {
		return
	}
	for slot := range a.usedSlots() {
		if rec := a.member(slot); rec.status() == statusLive {
			rec.waiters.Ring()
		}
	}
	m.requestLivenessChecks()
}

// Arena returns the member's arena.
func (m *Member) Arena() *Arena { return m.arena }

// WaitDoorbell returns the doorbell on which the program's waiting calls sleep.
func (m *Member) WaitDoorbell() *doorbell.Doorbell { return &m.rec.waiters }

// EngineDoorbell returns the doorbell on which the background progress engine sleeps.
func (m *Member) EngineDoorbell() *doorbell.Doorbell { return &m.rec.engine }

// Peer refers to a member of the arena. It stays valid after the member's death. Safe for concurrent
// use.
type Peer struct {
	arena    *Arena
	id       MemberID
	rec      *memberRecord
	rankWord uint32 // these three as in the record, which may have another owner later; 0 if it has one already
	pid      uint32
	pidNS    uint64
}

func newPeer(a *Arena, id MemberID, rec *memberRecord) *Peer {
	p := &Peer{arena: a, id: id, rec: rec, rankWord: rec.rank.Load(), pid: rec.pid.Load(), pidNS: rec.pidNS.Load()}
	if s := memberState(rec.state.Load()); s.status() == statusFree || memberID(id.Slot(), s.incarnation()) != id {
		p.rankWord, p.pid, p.pidNS = 0, 0, 0
	}
	return p
}

// Peer returns the peer with the given identity, which may be dead.
//
// Errors: [ErrDamaged] if no member can have that identity.
func (a *Arena) Peer(id MemberID) (*Peer, error) {
	slot, incarnation := id.Slot(), uint64(id)>>16
	if slot < maxMembers {
		rec := a.member(slot)
		if known := memberState(rec.state.Load()).incarnation(); incarnation != 0 && incarnation <= uint64(known) {
			return newPeer(a, id, rec), nil
		}
	}
	return nil, fmt.Errorf("shm: peer %v: no member has had this identity: %w", id, ErrDamaged)
}

// PeerInSlot returns the live member in a slot. It fails if there is none.
func (a *Arena) PeerInSlot(slot int) (*Peer, error) {
	if slot >= 0 && slot < maxMembers {
		if p := a.livePeer(slot); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("shm: peer in slot %d: %w", slot, errGone)
}

// livePeer returns the live member in a slot, nil if there is none.
func (a *Arena) livePeer(slot int) *Peer {
	rec := a.member(slot)
	s := memberState(rec.state.Load())
	if s.status() != statusLive {
		return nil
	}
	return newPeer(a, memberID(slot, s.incarnation()), rec)
}

// ID returns the peer's identity.
func (p *Peer) ID() MemberID { return p.id }

// PID returns the peer's process number; ok is false if it is unknown, or the peer is in another PID namespace, where
// the number means another process.
func (p *Peer) PID() (pid int, ok bool) {
	return int(p.pid), p.pid != 0 && isOwnPIDNamespace(p.pidNS)
}

// isOwnPIDNamespace reports whether numbers of processes in a PID namespace mean the same processes here.
func isOwnPIDNamespace(ns uint64) bool { return ns != 0 && ns == pidNamespace() }

// HasNextOwner reports whether another member has taken the peer's record, or has begun to. The words of the record and of its
// status page may be those of that member then, so a caller loads them before it asks.
func (p *Peer) HasNextOwner() bool {
	epoch := p.rec.deathEpoch.Load()     // ORDER next-owner: after the rest; pairs with the store in take
	s := memberState(p.rec.state.Load()) // after the epoch, which changes again when the next owner has been live
	return epoch == notCounted(uint32(p.id>>16)+1) || memberID(p.id.Slot(), s.incarnation()) != p.id
}

// processRuns reports whether the process that has the peer's record, or had it last, still runs, whether it is a member or not.
func (p *Peer) processRuns() bool {
	pid := p.rec.pid.Load()
	if !isOwnPIDNamespace(p.rec.pidNS.Load()) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndexByte(stat, ')') // the end of the name
	return err == nil && at >= 0 && len(stat) > at+2 && stat[at+2] != 'Z' && stat[at+2] != 'X'
}

// Gone reports whether the peer is marked dead, because it died or left. It costs one load, and does
// not check whether the process still runs; see [Member.Watch].
func (p *Peer) Gone() bool {
	s := memberState(p.rec.state.Load()) // ORDER member-live, member-dead: pairs with the stores in take, markRecordDead and repairState
	return s.status() != statusLive || memberID(p.id.Slot(), s.incarnation()) != p.id
}

// Wake wakes the peer's waiting calls, or, if none sleeps, its progress engine. A waiting call makes
// progress for the whole process while it is awake. The condition of [doorbell.Doorbell.Ring] applies.
func (p *Peer) Wake() { p.rec.wake() }

// HasWaiter reports whether a waiting call of the peer, or its progress engine, sleeps or is about to. If
// not, Wake would do nothing. The condition of [doorbell.Doorbell.Ring] applies.
func (p *Peer) HasWaiter() bool {
	return p.rec.waiters.Armed() || p.rec.engine.Armed()
}

func (rec *memberRecord) wake() {
	if !rec.waiters.Ring() {
		rec.engine.Ring()
	}
}

// String returns the peer's name and process number, for messages. They are those of the time at which
// this Peer was made.
func (p *Peer) String() string {
	if p.pid == 0 {
		return p.Name()
	}
	return fmt.Sprintf("%s (pid %d)", p.Name(), p.pid)
}

// Name returns "rank 3" for a member that has rank 3, "the relay" for the relay, and the member's identity
// for another one without a rank.
func (p *Peer) Name() string {
	if p.rankWord != 0 {
		return fmt.Sprintf("rank %d", p.rankWord-1)
	}
	if p.isRelay() {
		return "the relay"
	}
	return p.id.String()
}

// isRelay reports whether the member is the relay, which serves connections to other hosts.
func (p *Peer) isRelay() bool { return MemberID(p.arena.header().relay.Load()) == p.id }

// RankOf returns the rank of a member, and NoRank if it has none.
func (a *Arena) RankOf(id MemberID) int {
	if p, err := a.Peer(id); err == nil {
		if r := p.rankWord; r >= 1 && r <= MaxRanks {
			return int(r) - 1
		}
	}
	return NoRank
}

// lockOf returns the offset of the byte on which the member in a slot holds its lock: the first byte
// of its record.
func (a *Arena) lockOf(slot int) Offset { return a.geo.memberTable + Offset(slot)*memberStride }

func lockRecord(fd int, at Offset) (bool, error) {
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(at), Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock member record: %w", err)
	}
	return true, nil
}

func unlockRecord(fd int, at Offset) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: int64(at), Len: 1})
}

// pidNamespace returns the inode of this process's PID namespace, 0 if /proc does not show it.
var pidNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
})
