package shm

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How deaths are found. A member watches its next live neighbours, in the slots behind its
// own (behind the last slot comes the first): the kernel announces the end of a process
// through a pidfd. The member that finds a death wakes all. When a neighbour is dead, the
// one behind it is the next, so neighbours that die together are found together.
//
// Sweep finds deaths without an event: the end of a process in another PID namespace, and
// of a member whose watchers are stopped. A member that joins or leaves calls the members
// whose neighbours change.

const (
	// neighbours is how many neighbours a member watches, and by how many it is watched.
	neighbours = 2
	// sweepSoon is when Sweep is due again if the end of a neighbour makes no event, sweepLate
	// if it does.
	sweepSoon = 100 * time.Millisecond
	sweepLate = 4 * time.Second
)

// neighbour is a live member that this one watches.
type neighbour struct {
	peer  *Peer
	stop  chan struct{}
	blind atomic.Bool // no event will announce its death
}

// Sweep checks that the neighbours that this member has to watch still run, and another
// member, a different one each time. Then it does what [Member.Acknowledge] does, if a
// death is new or what it left is not reclaimed yet. It makes one system call for each
// member that it checks, however many there are.
//
// Sweep is due when [Arena.Deaths] has changed, when [Member.Called] reports true, and
// again after the time that it returns. To be called by one goroutine at a time.
func (m *Member) Sweep(letGo func(MemberID)) (again time.Duration) {
	a := m.arena
	m.calls.Store(m.rec.calls.Load())
	again = m.watchNeighbours()
	m.checkAnother()
	if m.rec.deathsSeen.Load() != a.Deaths() || a.unfinished() || m.MarkedDead() {
		m.Acknowledge(letGo)
	}
	return again
}

// watchNeighbours finds the neighbours and watches them, and returns when to do so again.
func (m *Member) watchNeighbours() (again time.Duration) {
	var found [neighbours]*neighbour
	n := 0
	for i := 1; i < MaxMembers && n < neighbours; i++ {
		if p := m.arena.livePeer((m.slot + i) % MaxMembers); p != nil && m.CheckAlive(p) {
			found[n] = m.neighbour(p)
			n++
		}
	}
	again = sweepLate
	for _, x := range found[:n] {
		if x.blind.Load() {
			again = sweepSoon
		}
	}
	for _, x := range m.watched {
		if x != nil && x != found[0] && x != found[1] {
			close(x.stop)
		}
	}
	m.watched = found
	return again
}

// neighbour returns the peer as a neighbour whose death is announced, if it can be.
func (m *Member) neighbour(p *Peer) *neighbour {
	for _, x := range m.watched {
		if x != nil && x.peer.id == p.id {
			return x
		}
	}
	x := &neighbour{peer: p, stop: make(chan struct{})}
	if pid, ok := p.PID(); ok && pid == os.Getpid() {
		return x // it cannot die alone
	}
	if !m.watchProcess(p, x.stop, func() {
		// The kernel may tell of the end of a process a moment before it releases the lock.
		if m.CheckAlive(p) {
			x.blind.Store(true)
			(&Peer{m.arena, m.id, m.rec}).call()
		}
	}) {
		x.blind.Store(true)
	}
	return x
}

// checkAnother checks the next member in the order of slots: each member has its turn,
// and a different member checks it each time.
func (m *Member) checkAnother() {
	for range MaxMembers {
		m.turn = (m.turn + 1) % MaxMembers
		if p := m.arena.livePeer(m.turn); p != nil && p.id != m.id {
			m.CheckAlive(p)
			return
		}
	}
}

// unfinished reports whether any record is waiting to be cleared.
func (a *Arena) unfinished() bool {
	for slot := range MaxMembers {
		if a.member(slot).status() == statusDead {
			return true
		}
	}
	return false
}

// callWatchers calls the members that watch this one, because it has come, or those that
// are to watch its neighbours, because it leaves.
func (m *Member) callWatchers() {
	for i, n := 1, 0; i < MaxMembers && n < neighbours; i++ {
		if p := m.arena.livePeer((m.slot + MaxMembers - i) % MaxMembers); p != nil {
			p.call()
			n++
		}
	}
}

// call makes a sweep of the peer due.
func (p *Peer) call() {
	p.rec.calls.Add(1) // ORDER calls: before the ring; pairs with the load in Called
	p.Ring()
}

// Called reports whether another member has called this one since its last Sweep. It costs
// two loads.
func (m *Member) Called() bool {
	return m.rec.calls.Load() != m.calls.Load() // ORDER calls: pairs with the addition in call
}

// unwatch ends the watch over the neighbours.
func (m *Member) unwatch() {
	for i, x := range m.watched {
		if x != nil {
			close(x.stop)
			m.watched[i] = nil
		}
	}
}

// Watch calls gone once when the peer's process has ended, where the kernel
// can tell that by an event (the peer's process number is visible here). The
// peer has been marked as gone then. Watch reports whether it can; if not,
// [Member.Sweep] finds out in time. The watch ends with stop, or when the member
// leaves; Leave waits for a gone that is running.
func (m *Member) Watch(p *Peer, stop <-chan struct{}, gone func()) bool {
	return m.watchProcess(p, stop, func() {
		// A child that the process left behind may hold its memory still,
		// and a record can lie about the process number.
		if !m.CheckAlive(p) {
			gone()
		}
	})
}

// watchProcess calls ended when the process that the peer's record names has ended, or at
// once if the peer is gone. It reports whether it can.
func (m *Member) watchProcess(p *Peer, stop <-chan struct{}, ended func()) bool {
	pid, ok := p.PID()
	if !ok {
		return false
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == nil && m.CheckAlive(p) { // so the number was the peer's when we opened it
		return m.watch(os.NewFile(uintptr(fd), "pidfd"), stop, ended)
	}
	if err == nil {
		unix.Close(fd)
	}
	if m.CheckAlive(p) {
		return false
	}
	go m.whileHere(ended)
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

func (m *Member) watch(pidfd *os.File, stop <-chan struct{}, ended func()) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		pidfd.Close()
		return false
	}
	end := make(chan error, 1)
	go func() {
		// The runtime's poller wakes us when the descriptor becomes readable,
		// which for a pidfd means that the process has ended.
		end <- conn.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return err == nil && n > 0
		})
	}()
	go func() {
		defer pidfd.Close()
		select {
		case <-stop:
		case err := <-end:
			if err == nil {
				m.whileHere(ended)
			}
		}
	}()
	return true
}
