package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/asym"
)

// MemberID names one member for the life of the arena: the slot of its record
// and the incarnation of that slot, so that a number is never used twice.
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
	statusFree status = iota // without an owner
	statusLive               // its owner holds the lock on it
	statusDead               // died or left; what it owned is still its
)

// memberState packs a record's state word: status in bits 0..7, the incarnation
// in bits 32..63.
type memberState uint64

func stateOf(s status, incarnation uint32) memberState {
	return memberState(uint64(incarnation)<<32 | uint64(s))
}

// status returns the status. One that no member writes is a peer's doing; such a
// record counts as dead.
func (s memberState) status() status      { return min(status(s), statusDead) }
func (s memberState) incarnation() uint32 { return uint32(s >> 32) }

func (r *memberRecord) status() status { return memberState(r.state.Load()).status() }

// Member is this process's place in an arena: its record, its lock, its
// memory and its doorbells. A process may join several times (tests do).
// Safe for concurrent use, Leave excepted.
type Member struct {
	arena     *Arena
	life      life // holds the lock on the record's first byte
	slot      int
	rank      int // or NotRank
	id        MemberID
	rec       *memberRecord
	heap      *Heap
	claiming  sync.Mutex
	blocks    holdings // of window entries; guarded by claiming
	testimony *testimony
	answer    Offset // what it has answered an onlooker with; 0 = nothing
	left      atomic.Bool

	watches sync.RWMutex           // see whileHere
	watched [neighbours]*neighbour // the goroutine's that calls Sweep
	turn    int                    // slot of the member that Sweep has checked last; the same goroutine's
	calls   atomic.Uint32          // rec.calls at the last Sweep
}

// NotRank is the rank of a member that belongs to no rank group.
const NotRank = -1

// Join makes the process a member. rank is its rank in the group, or NotRank.
//
// Errors: [ErrFull] when all records are taken, [ErrShortage] when not even a
// record can be reserved.
func (a *Arena) Join(rank int) (*Member, error) {
	if rank < NotRank || rank >= max(a.ranks, 1) {
		return nil, fmt.Errorf("shm: join: rank %d of a group of %d", rank, a.ranks)
	}
	asym.Register() // here: who only makes an arena for others does not wait for the kernel
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
	if rank == NotRank {
		start = a.ranks // leave the ranks the records that carry their number
	}
	for i := range MaxMembers {
		m := &Member{arena: a, slot: (start + i) % MaxMembers, rank: rank}
		ok, err := m.take(int(lock.Fd()))
		if err != nil {
			return nil, fmt.Errorf("shm: join: %w", err)
		}
		if ok {
			a.refs.Add(1)
			m.heap = newHeap(a, m.slot)
			m.blocks = newHoldings(a.words(a.geo.windowOwners, windowBlocks), m.slot)
			return m, nil
		}
	}
	return nil, fmt.Errorf("shm: join: all %d member records are taken: %w", MaxMembers, ErrFull)
}

// take tries to make record m.slot ours, with a lock of the open file description
// of fd. Only the holder of the lock on a record may take it from free to live.
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
	s := memberState(m.rec.state.Load())
	if s.status() != statusFree {
		return false, unlockRecord(fd, at)
	}
	if err := a.reserve(a.geo.testimonies+Offset(m.slot)*testimonyStride, testimonyStride); err != nil {
		return false, errors.Join(err, unlockRecord(fd, at))
	}
	life, err := liveBy(fd)
	if err != nil {
		return false, errors.Join(err, unlockRecord(fd, at))
	}
	m.life = life
	m.testimony = a.testimony(m.slot)
	m.testimony.reset()
	rec := m.rec
	rec.pid.Store(uint32(os.Getpid()))
	rec.pidNS.Store(pidNamespace())
	rec.rank.Store(uint32(m.rank + 1))
	rec.inbox.Store(0)
	rec.waiters.armed.Store(0)
	rec.engine.armed.Store(0)
	rec.deathEpoch.Store(notCounted(s.incarnation() + 1))
	rec.deathsSeen.Store(a.header().deaths.Load()) // before we are live: later deaths must be acted upon
	live := stateOf(statusLive, s.incarnation()+1)
	rec.state.Swap(uint64(live)) // ORDER member-live: pairs with the load in Gone
	m.id = memberID(m.slot, live.incarnation())
	m.turn = m.slot
	m.callWatchers()
	return true, nil
}

// Leave ends the membership in good order: peers see the member as gone, and
// what it owned is reclaimed as soon as all of them have let go of it. The
// caller has stopped using everything that it took from the member.
func (m *Member) Leave() error {
	if m.left.Swap(true) {
		return fmt.Errorf("shm: leave: %w", ErrClosed)
	}
	m.watches.Lock()
	defer m.watches.Unlock()
	err := m.life.end() // before the mark: no member reaps a record that is locked
	m.unwatch()
	m.depart()
	m.arena.refs.Add(-1)
	return err
}

// depart marks the own record dead. Unlike a death, a departure leaves no bell half rung, and
// its connections have ended before. So it wakes members that wait, and the members that
// must watch other neighbours; the rest find it at their next check.
func (m *Member) depart() {
	a := m.arena
	if !a.number(m.slot, a.bury(m.slot, m.id)) {
		return
	}
	for slot := range MaxMembers {
		if rec := a.member(slot); rec.status() == statusLive {
			Doorbell{&rec.waiters}.Ring()
		}
	}
	m.callWatchers()
}

// ID returns the member's identity.
func (m *Member) ID() MemberID { return m.id }

// Arena returns the arena that the member belongs to.
func (m *Member) Arena() *Arena { return m.arena }

// Heap returns the member's allocator.
func (m *Member) Heap() *Heap { return m.heap }

// Waiters returns the doorbell on which the program's own waits sleep.
func (m *Member) Waiters() Doorbell { return Doorbell{&m.rec.waiters} }

// Engine returns the doorbell on which the background engine sleeps.
func (m *Member) Engine() Doorbell { return Doorbell{&m.rec.engine} }

// Peer is what one member knows about another. It stays valid after the
// peer's death; only its answers change.
type Peer struct {
	arena *Arena
	id    MemberID
	rec   *memberRecord
}

// Peer returns the member named id. It need not be alive.
//
// Errors: [ErrDamaged] for an identity that no member can have.
func (a *Arena) Peer(id MemberID) (*Peer, error) {
	slot, incarnation := id.Slot(), uint64(id)>>16
	if slot < MaxMembers {
		rec := a.member(slot)
		if known := memberState(rec.state.Load()).incarnation(); incarnation != 0 && incarnation <= uint64(known) {
			return &Peer{a, id, rec}, nil
		}
	}
	return nil, fmt.Errorf("shm: %v: %w", id, ErrDamaged)
}

// PeerInSlot returns the live member that now holds a slot.
//
// Errors: [ErrGone] when nobody does.
func (a *Arena) PeerInSlot(slot int) (*Peer, error) {
	if slot >= 0 && slot < MaxMembers {
		if p := a.livePeer(slot); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("shm: member slot %d: %w", slot, ErrGone)
}

// livePeer returns the live member in a slot, nil if there is none.
func (a *Arena) livePeer(slot int) *Peer {
	rec := a.member(slot)
	s := memberState(rec.state.Load())
	if s.status() != statusLive {
		return nil
	}
	return &Peer{a, memberID(slot, s.incarnation()), rec}
}

// ID returns the peer's identity.
func (p *Peer) ID() MemberID { return p.id }

// Gone tells whether the peer has been marked as dead or departed. It is one
// load and does not look whether the process still runs; see [Member.Watch].
func (p *Peer) Gone() bool {
	s := memberState(p.rec.state.Load()) // ORDER member-live, member-dead: pairs with the stores in take and markDead
	return s.status() != statusLive || memberID(p.id.Slot(), s.incarnation()) != p.id
}

// Ring wakes whoever sleeps in the peer: its waits first, since they serve
// everything while they are awake, else its engine.
func (p *Peer) Ring() { ring(p.rec) }

// Quiet tells whether a ring would wake nobody. The conditions of [Doorbell.Ring]
// hold.
func (p *Peer) Quiet() bool {
	return (Doorbell{&p.rec.waiters}).Quiet() && (Doorbell{&p.rec.engine}).Quiet()
}

func ring(rec *memberRecord) {
	if !(Doorbell{&rec.waiters}).Ring() {
		(Doorbell{&rec.engine}).Ring()
	}
}

// String names the peer for messages: its rank if it has one, and its process.
func (p *Peer) String() string { return fmt.Sprintf("%s (pid %d)", p.Name(), p.rec.pid.Load()) }

// Name returns "rank 3" for a member that has a rank, and the member's identity for others.
func (p *Peer) Name() string {
	if r := p.rec.rank.Load(); r != 0 {
		return fmt.Sprintf("rank %d", r-1)
	}
	return p.id.String()
}

// lockOf returns the position of the byte on which the member in a slot holds a lock:
// the first of its record.
func (a *Arena) lockOf(slot int) Offset { return a.geo.memberTable + Offset(slot)*memberStride }

func lockRecord(fd int, at Offset) (bool, error) {
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(at), Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("locking a member record: %w", err)
	}
	return true, nil
}

func unlockRecord(fd int, at Offset) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: int64(at), Len: 1})
}

// pidNamespace identifies the namespace in which our process number means
// something; 0 if it cannot be told.
var pidNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
})
