package shm

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestJoinPrefersTheSlotOfTheRank(t *testing.T) {
	a := newArena(t, 4)
	for _, tc := range []struct{ rank, slot int }{{2, 2}, {0, 0}, {NoRank, 4}, {NoRank, 5}, {3, 3}} {
		m := join(t, a, tc.rank)
		if m.ID().Slot() != tc.slot {
			t.Errorf("rank %d sits in slot %d, want %d", tc.rank, m.ID().Slot(), tc.slot)
		}
	}
	// Join skips a slot that is taken.
	if m := join(t, a, 2); m.ID().Slot() != 6 {
		t.Errorf("a second rank 2 sits in slot %d", m.ID().Slot())
	}
	for _, rank := range []int{-2, 4, 1 << 30} {
		if m, err := a.Join(rank); err == nil {
			t.Errorf("rank %d of 4 joined as %v", rank, m.ID())
		}
	}
	if a.LiveMemberCount() != 6 {
		t.Errorf("%d live members", a.LiveMemberCount())
	}
}

func TestJoinFillsTheTable(t *testing.T) {
	a := newArena(t, 0)
	for slot := range maxMembers {
		if slot == maxMembers-2 {
			continue
		}
		a.member(slot).state.Store(uint64(stateOf(statusDead, 1)))
	}
	m := join(t, a, NoRank)
	if m.ID().Slot() != maxMembers-2 {
		t.Errorf("the last free slot is %d, got %d", maxMembers-2, m.ID().Slot())
	}
	if _, err := a.Join(NoRank); !errors.Is(err, ErrFull) {
		t.Errorf("join a full arena: %v", err)
	}
}

func TestJoinRaceGivesDistinctSlots(t *testing.T) {
	a := newArena(t, 0)
	b := again(t, a)
	var mu sync.Mutex
	var done sync.WaitGroup
	seen := map[int]bool{}
	for i := range 40 {
		done.Go(func() {
			m, err := []*Arena{a, b}[i%2].Join(NoRank)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[m.ID().Slot()] {
				t.Errorf("two live members in slot %d", m.ID().Slot())
			}
			seen[m.ID().Slot()] = true
			t.Cleanup(func() { m.Leave() })
		})
	}
	done.Wait()
	if a.LiveMemberCount() != 40 {
		t.Errorf("%d live members", a.LiveMemberCount())
	}
}

func TestSlotsAreReusedWithNewIncarnation(t *testing.T) {
	a := newArena(t, 2)
	watcher := join(t, a, 1)
	seen := map[MemberID]bool{}
	var last *Peer
	for i := range 5 {
		m := join(t, a, 0)
		if m.ID().Slot() != 0 || seen[m.ID()] {
			t.Fatalf("round %d: %v", i, m.ID())
		}
		seen[m.ID()] = true
		p := peerOf(t, watcher, m.ID())
		if p.Gone() || !watcher.checkAlive(p) {
			t.Fatalf("round %d: %v is gone", i, p)
		}
		if last != nil && (!last.Gone() || watcher.checkAlive(last)) {
			t.Errorf("round %d: the last owner of the slot lives", i)
		}
		last = p
		if off, err := m.heap.Alloc(1000); err != nil || off == 0 {
			t.Fatal(err)
		}
		if err := m.Leave(); err != nil {
			t.Fatal(err)
		}
		if !p.Gone() || watcher.checkAlive(p) {
			t.Errorf("round %d: a member that has left lives", i)
		}
		watcher.CheckLiveness(noDrop)
		if s := stateIn(a, 0); s.status() != statusFree || s.incarnation() != uint32(i)+1 || chunksOf(a, 0) != 0 {
			t.Fatalf("round %d: after the liveness check the record is %#x with %d chunks", i, uint64(s), chunksOf(a, 0))
		}
	}
}

func TestPeersAreFound(t *testing.T) {
	a := newArena(t, 2)
	m := join(t, a, 1)
	p, err := a.PeerInSlot(1)
	if err != nil || p.ID() != m.ID() {
		t.Fatalf("slot 1: %v, %v", p, err)
	}
	if want := fmt.Sprintf("rank 1 (pid %d)", os.Getpid()); p.String() != want {
		t.Errorf("the peer is called %q, want %q", p, want)
	}
	n := join(t, a, NoRank)
	if got := peerOf(t, m, n.ID()).String(); !strings.HasPrefix(got, "member 2.1 (pid") {
		t.Errorf("the peer is called %q", got)
	}
	for _, slot := range []int{-1, 0, 3, maxMembers, 1 << 30} {
		if p, err := a.PeerInSlot(slot); !errors.Is(err, errGone) {
			t.Errorf("slot %d: %v, %v", slot, p, err)
		}
	}
	for _, id := range []MemberID{memberID(3, 1), memberID(maxMembers, 1), memberID(0xffff, 1), 1<<48 | m.ID(), ^MemberID(0),
		0, memberID(1, 2), memberID(1, 1<<32-1)} {
		if p, err := a.Peer(id); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v: %v, %v", id, p, err)
		}
	}
	if m.Arena() != a || !m.checkAlive(p) {
		t.Error("a member does not know itself")
	}
}

var roleMember = proctest.Role("member", func(self *proctest.Self) error {
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	self.Say("%d", m.ID())
	for {
		line, err := self.Hear()
		if err != nil {
			return err
		}
		var arg uint64
		verb, rest, _ := strings.Cut(line, " ")
		if rest != "" {
			if _, err := fmt.Sscan(rest, &arg); err != nil {
				return err
			}
		}
		switch verb {
		case "leave":
			return m.Leave()
		case "stay":
			if err := m.Leave(); err != nil {
				return err
			}
			self.Say("left")
			_, err := self.Hear()
			return err
		case "alive":
			p, err := m.Arena().Peer(MemberID(arg))
			if err != nil {
				return err
			}
			self.Say("%v", m.checkAlive(p))
		case "relay":
			if err := m.BecomeRelay(); err != nil {
				return err
			}
			self.Say("relay")
		case "publish":
			if _, err := m.PublishName("server", addressOf(uint16(arg))); err != nil {
				return err
			}
			self.Say("published")
		case "check":
			m.CheckLiveness(noDrop)
			self.Say("checked")
		case "alloc":
			off, err := m.heap.Alloc(arg)
			if err != nil {
				return err
			}
			self.Say("%d", off)
		case "watch":
			p, err := m.Arena().Peer(MemberID(arg))
			if err != nil {
				return err
			}
			self.Say("%v", m.Watch(p, nil, func() { self.Say("gone") }))
		default:
			return fmt.Errorf("what is %q?", line)
		}
	}
})

// startMember starts a process that joins, and returns the member's identity.
func startMember(t *testing.T, a *Arena) (*proctest.Process, MemberID) {
	t.Helper()
	c := proctest.StartWith(t, a.File(), roleMember)
	return c, memberIDFrom(t, c.Hear())
}

func memberIDFrom(t *testing.T, line string) (id MemberID) {
	t.Helper()
	if _, err := fmt.Sscan(line, &id); err != nil {
		t.Fatalf("%q is no member: %v", line, err)
	}
	return id
}

func TestLocksAreSeenByOtherProcesses(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, id := startMember(t, a)
	d, _ := startMember(t, a)
	// In both directions, and with a record that holds only a live state.
	d.Say("alive %d", m.ID())
	d.Expect("true")
	d.Say("alive %d", id)
	d.Expect("true")
	if !m.checkAlive(peerOf(t, m, id)) {
		t.Error("a live process is called dead")
	}
	c.Kill()
	if peerOf(t, m, id).Gone() {
		t.Error("marked dead before any liveness check")
	}
	d.Say("alive %d", id)
	d.Expect("false")
	if !peerOf(t, m, id).Gone() {
		t.Error("not marked as gone by the process that looked")
	}
	d.Say("alive %d", m.ID())
	d.Expect("true")
	d.Say("leave")
	d.Wait()
}

// A child that inherits the arena's descriptor shares its open file description. The locks of both
// processes must not depend on that.
func TestInheritedDescriptorSharesNoLock(t *testing.T) {
	a := newArena(t, 0)
	watcher := join(t, a, NoRank)
	parent, err := a.Join(NoRank)
	if err != nil {
		t.Fatal(err)
	}
	heir, id := startMember(t, a)

	if !a.locked(parent.slot) {
		t.Fatal("the parent's record is not locked")
	}
	if err := parent.Leave(); err != nil {
		t.Fatal(err)
	}
	if a.locked(parent.slot) {
		t.Error("the child keeps the lock of a parent that has left")
	}
	second, id2 := startMember(t, a)
	second.Say("leave")
	second.Wait()
	if !watcher.checkAlive(peerOf(t, watcher, id)) {
		t.Errorf("the end of %v has freed the lock of %v", id2, id)
	}
	// Closing another descriptor of the file releases no lock.
	f, err := reopen(int(a.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	heir.Say("alive %d", watcher.ID())
	heir.Expect("true")
	heir.Say("leave")
	heir.Wait()
}

// TestPeerKeepsName: the name of a dead member in messages is its own, also if its record has another owner.
func TestPeerKeepsName(t *testing.T) {
	a := fakeArena(8)
	dead := fakeMember(a, 3, 5).ID()
	before, err := a.Peer(dead)
	if err != nil {
		t.Fatal(err)
	}
	fakeMember(a, 3, 6)
	if name := before.Name(); name != "rank 5" {
		t.Errorf("the dead member is now called %q", name)
	}
	after, err := a.Peer(dead)
	if err != nil {
		t.Fatal(err)
	}
	if name := after.Name(); name == "rank 6" {
		t.Error("the dead member has the name of the next owner of its record")
	}
}

// TestPeerKeepsPIDNamespace: the number of a process in another PID namespace stays unknown when the record has an owner in this one.
func TestPeerKeepsPIDNamespace(t *testing.T) {
	a := fakeArena(8)
	foreign := fakeMember(a, 3, 5)
	foreign.rec.pid.Store(1)
	foreign.rec.pidNS.Store(pidNamespace() + 1)
	p := peerOf(t, foreign, foreign.ID())
	foreign.rec.pidNS.Store(pidNamespace())
	if pid, ok := p.PID(); ok {
		t.Errorf("process %d of another namespace is known here", pid)
	}
	fakeMember(a, 3, 6).rec.pid.Store(2)
	if pid, ok := p.PID(); ok {
		t.Errorf("process %d of another namespace is known here", pid)
	}
}

// TestRecordThatIsBeingTaken: before it is live, a record already has words of its next owner.
func TestRecordThatIsBeingTaken(t *testing.T) {
	a := fakeArena(8)
	p := peerOf(t, fakeMember(a, 3, 5), memberID(3, 1))
	if p.HasNextOwner() {
		t.Error("a live member's record has another owner")
	}
	for _, s := range []status{statusDead, statusFree} {
		p.rec.deathEpoch.Store(7)
		p.rec.state.Store(uint64(stateOf(s, 1)))
		if p.HasNextOwner() {
			t.Errorf("status %d: the record has another owner", s)
		}
	}
	p.rec.deathEpoch.Store(notCounted(2))
	if !p.HasNextOwner() {
		t.Error("the record that is being taken has no other owner")
	}
	p.rec.deathEpoch.Store(8)
	p.rec.state.Store(uint64(stateOf(statusDead, 2)))
	if !p.HasNextOwner() {
		t.Error("the record has had another owner, which is not known")
	}
}
