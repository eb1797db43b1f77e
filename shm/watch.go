package shm

// TWIN c/src/shm/watch.c, c/src/shm/liveness.c.

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// How members find deaths. Each member watches its neighbours: the next two live members in the
// slots after its own, where slot 0 follows the last used one. A pidfd reports the end of a neighbour's
// process. The member that finds a death wakes all members. The watchers of a dead neighbour then
// watch the next live member, so neighbours that die together are found together.
//
// CheckLiveness finds the deaths that no event reports: the end of a process in another PID
// namespace, and the death of a member whose watchers are stopped. A member that joins or leaves
// requests a liveness check of the members whose neighbours change.

const (
	// neighbours is how many members each member watches.
	neighbours = 2
	// The interval between two liveness checks is short if no event would report the death of some
	// neighbour, else long. After the short one, calls that wait for a dead member still end within
	// 100 ms of its death.
	livenessIntervalShort = 50 * time.Millisecond
	livenessIntervalLong  = 4 * time.Second
)

// neighbour is a live member that this member watches.
type neighbour struct {
	peer    *Peer
	stop    chan struct{}
	noEvent atomic.Bool // no event will report its death
}

// CheckLiveness checks that this member's neighbours and one more member, a different one each time,
// are alive. It makes one system call for each of them. If a death is new, or its memory is not
// reclaimed yet, it calls drop for each dead member. After drop returns, this process must never
// again access anything that the dead member owned. Then CheckLiveness acknowledges the deaths, and
// reclaims the memory of dead members that all live members have acknowledged. If a member never
// calls it, the memory of members that die after it joined is never reclaimed.
//
// Call it when [Member.LivenessCheckDue] reports true, and again after the returned time. Not safe
// for concurrent use. TWIN c/src/endpoint/progress_housekeeper.c.
func (m *Member) CheckLiveness(drop func(MemberID)) (again time.Duration) {
	a := m.arena
	m.livenessRequestsSeen.Store(m.rec.livenessRequests.Load())
	m.deathsChecked.Store(a.Deaths())
	died := false
	again = m.watchNeighbours(&died)
	m.checkNext(&died)
	if died {
		a.wakeAll()
	}
	if m.rec.deathsSeen.Load() != a.Deaths() || a.hasDeadRecords() || m.Gone() {
		m.acknowledge(drop)
	}
	return again
}

// watchNeighbours determines the neighbours, watches them, and returns when to do so again. It sets
// died if it has found a death.
func (m *Member) watchNeighbours(died *bool) (again time.Duration) {
	var found [neighbours]*neighbour
	n, slots := 0, m.arena.usedSlots()
	for i := 1; i < slots && n < neighbours; i++ {
		if p := m.arena.livePeer((m.slot + i) % slots); p != nil && m.isAlive(p, died) {
			found[n] = m.watchNeighbour(p)
			n++
		}
	}
	again = livenessIntervalLong
	for _, x := range found[:n] {
		if x.noEvent.Load() {
			again = livenessIntervalShort
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

// watchNeighbour starts to watch the peer, or returns the existing neighbour.
func (m *Member) watchNeighbour(p *Peer) *neighbour {
	for _, x := range m.watched {
		if x != nil && x.peer.id == p.id {
			return x
		}
	}
	x := &neighbour{peer: p, stop: make(chan struct{})}
	if pid, ok := p.PID(); ok && pid == os.Getpid() {
		return x // a member of this process does not die alone
	}
	if !m.watchProcess(p, x.stop, func() {
		// The pidfd may report the end of the process a moment before the kernel releases the lock.
		if m.checkAlive(p) {
			x.noEvent.Store(true)
			m.requestLivenessCheck()
		}
	}) {
		x.noEvent.Store(true)
	}
	return x
}

// checkNext checks the next live member in slot order after the one that it checked last. It sets
// died if that has died.
func (m *Member) checkNext(died *bool) {
	slots := m.arena.usedSlots()
	for range slots {
		m.lastChecked = (m.lastChecked + 1) % slots
		if p := m.arena.livePeer(m.lastChecked); p != nil && p.id != m.id {
			m.isAlive(p, died)
			return
		}
	}
}

// hasDeadRecords reports whether the memory of any dead member is not reclaimed yet.
func (a *Arena) hasDeadRecords() bool {
	for slot := range a.usedSlots() {
		if a.member(slot).status() == statusDead {
			return true
		}
	}
	return false
}

// requestLivenessChecks requests a liveness check of the members whose neighbours change because
// this member joins or leaves.
func (m *Member) requestLivenessChecks() {
	slots := m.arena.usedSlots()
	for i, n := 1, 0; i < slots && n < neighbours; i++ {
		if p := m.arena.livePeer((m.slot + slots - i) % slots); p != nil {
			p.requestLivenessCheck()
			n++
		}
	}
}

// requestLivenessCheck asks the peer to call CheckLiveness.
func (p *Peer) requestLivenessCheck() {
	p.rec.livenessRequests.Add(1) // ORDER liveness-request: before Wake; pairs with the load in LivenessCheckDue
	failpoint.Reach(failpoint.LivenessRequested)
	p.Wake()
}

// LivenessCheckDue reports whether a member has died or left, or another member has requested a
// liveness check, since this member's last one. It costs four loads.
func (m *Member) LivenessCheckDue() bool {
	return m.arena.Deaths() != m.deathsChecked.Load() ||
		m.rec.livenessRequests.Load() != m.livenessRequestsSeen.Load() // ORDER liveness-request: pairs with the addition in requestLivenessCheck
}

// unwatch stops watching the neighbours.
func (m *Member) unwatch() {
	for i, x := range m.watched {
		if x != nil {
			close(x.stop)
			m.watched[i] = nil
		}
	}
}

// Watch calls gone once when the peer's process has ended, after the peer is marked dead. It reports
// whether an event can report that end, which requires that this process sees the peer's process
// number. If not, [Member.CheckLiveness] finds the death later. The watch ends when stop is closed,
// or when the member leaves. Leave blocks until a running gone returns.
func (m *Member) Watch(p *Peer, stop <-chan struct{}, gone func()) bool {
	return m.watchProcess(p, stop, func() {
		// The lock decides: a record can hold a wrong process number, and a forked child may still
		// hold the memory.
		if !m.checkAlive(p) {
			gone()
		}
	})
}

// watchProcess calls ended when the process that the peer's record names has ended, or at once if
// the peer is gone. It reports whether it can.
func (m *Member) watchProcess(p *Peer, stop <-chan struct{}, ended func()) bool {
	pid, ok := p.PID()
	if !ok {
		return false
	}
	fd, err := linux.AboveStandard(unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK))
	if err == nil && m.checkAlive(p) { // so the process number was still the peer's when the pidfd was opened
		return m.watch(os.NewFile(uintptr(fd), "pidfd"), stop, ended)
	}
	if err == nil {
		unix.Close(fd)
	}
	if m.checkAlive(p) {
		return false
	}
	go m.unlessLeft(ended)
	return true
}

// unlessLeft calls f unless the member has left. Leave blocks until f returns, because the arena may
// be closed after Leave.
func (m *Member) unlessLeft(f func()) {
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
	over := make(chan struct{})
	go func() {
		goruntime.SetLabel("liveness check")
		defer close(over)
		// The runtime's poller waits until the pidfd is readable, which means that the process has
		// ended. Read fails if the file is closed.
		if conn.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return err == nil && n > 0
		}) == nil {
			m.unlessLeft(ended)
		}
	}()
	go func() {
		goruntime.SetLabel("liveness check")
		defer pidfd.Close()
		select {
		case <-stop:
		case <-over:
		}
	}()
	return true
}
