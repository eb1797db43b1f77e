package shm

import (
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// patrolled checks liveness for a member, as a provider does, until the test ends.
func patrolled(t *testing.T, m *Member) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		due := time.Now()
		for ; ; time.Sleep(time.Millisecond) {
			select {
			case <-quit:
				return
			default:
			}
			if m.LivenessCheckDue() || !time.Now().Before(due) {
				due = time.Now().Add(m.CheckLiveness(noDrop))
			}
		}
	}()
	t.Cleanup(func() { close(quit); <-done })
}

// watchedBy returns the slots that a member watches.
func watchedBy(m *Member) (slots []int) {
	for _, x := range m.watched {
		if x != nil {
			slots = append(slots, x.peer.id.Slot())
		}
	}
	return slots
}

// A liveness check watches the next live members and checks one more, however many members there are.
func TestCheckLivenessWatchesNextLiveMembers(t *testing.T) {
	a := fakeArena(0)
	const slot, others = 5, 1023
	m := fakeMember(a, slot, NoRank)
	m.lastChecked = m.slot
	for i := range others {
		fakeMember(a, (slot+3+2*i)%maxMembers, NoRank) // 8, 10, ...: slots between them are free
	}
	a.member(8).state.Store(uint64(stateOf(statusDead, 1)))
	defer m.unwatch()
	visited := map[int]bool{}
	for range others - 1 {
		m.CheckLiveness(noDrop)
		if got := watchedBy(m); !slices.Equal(got, []int{10, 12}) {
			t.Fatalf("member in slot %d watches %v", slot, got)
		}
		visited[m.lastChecked] = true
	}
	if len(visited) != others-1 || visited[8] {
		t.Errorf("%d liveness checks have checked %d of %d members", others-1, len(visited), others-1)
	}
	// Slot 0 follows the last slot.
	last := fakeMember(a, maxMembers-1, NoRank)
	defer last.unwatch()
	last.CheckLiveness(noDrop)
	if got := watchedBy(last); len(got) != 2 || got[0] != slot && got[0] > slot {
		t.Errorf("the member in the last slot watches %v", got)
	}
}

// An event reports a neighbour's death before the next liveness check.
func TestNeighbourDeathIsReportedByEvent(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, _ := startMember(t, a)
	if again := m.CheckLiveness(noDrop); again != livenessIntervalLong {
		t.Errorf("the end of a child makes no event: next check after %v", again)
	}
	c.Kill()
	proctest.Eventually(t, "the death is counted", func() bool { return a.Deaths() != 0 })
}

// All neighbours of a member die together, and so do their neighbours.
func TestNeighboursDyingTogetherAreFound(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	var dead []*proctest.Process
	for range 2*neighbours + 1 {
		c, _ := startMember(t, a)
		dead = append(dead, c)
	}
	patrolled(t, m)
	proctest.Eventually(t, "the neighbours are watched", func() bool { return !m.LivenessCheckDue() })
	for _, c := range dead {
		c.Cmd.Process.Kill()
	}
	proctest.Eventually(t, "all deaths are found", func() bool { return a.LiveMemberCount() == 1 })
	if got := a.Deaths(); got < uint64(len(dead)) {
		t.Errorf("%d deaths are counted of %d", got, len(dead))
	}
}

// A member that joins or leaves requests a liveness check of the members whose neighbours change.
func TestWatchersAreAskedToCheck(t *testing.T) {
	a := newArena(t, 0)
	var members []*Member
	for range neighbours + 2 {
		members = append(members, join(t, a, NoRank))
	}
	called := func() (slots []int) {
		for i, m := range members {
			if m.rec.livenessRequests.Load() != m.livenessRequestsSeen.Load() {
				slots = append(slots, i)
			}
			m.CheckLiveness(noDrop)
		}
		return slots
	}
	called()
	x := join(t, a, NoRank)
	want := []int{neighbours, neighbours + 1}
	if got := called(); !slices.Equal(got, want) {
		t.Errorf("a newcomer calls %v, want %v", got, want)
	}
	if err := x.Leave(); err != nil {
		t.Fatal(err)
	}
	if got := called(); !slices.Equal(got, want) {
		t.Errorf("a member that leaves calls %v, want %v", got, want)
	}
}

// Members that check others in turn find the death of a member whose watchers are stopped.
func TestStoppedWatchersHideNoDeath(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	var watchers []*proctest.Process
	for range neighbours {
		c, _ := startMember(t, a)
		c.Say("check")
		c.Expect("checked")
		c.Stop()
		watchers = append(watchers, c)
	}
	x, id := startMember(t, a)
	p := peerOf(t, m, id)
	x.Kill()
	for range len(watchers) + 1 {
		m.CheckLiveness(noDrop)
	}
	if !p.Gone() {
		t.Error("no member has checked it")
	}
}

// A peer, or the owner, can write any word of a record. One word does not hide a death.
func TestHostileWordHidesNoDeath(t *testing.T) {
	for name, scribble := range map[string]func(a *Arena, rec *memberRecord){
		"deathEpoch 0":             func(_ *Arena, rec *memberRecord) { rec.deathEpoch.Store(0) },
		"deathEpoch of a past one": func(_ *Arena, rec *memberRecord) { rec.deathEpoch.Store(1) },
		"deathEpoch of the future": func(_ *Arena, rec *memberRecord) { rec.deathEpoch.Store(1 << 62) },
		"deathsSeen":               func(_ *Arena, rec *memberRecord) { rec.deathsSeen.Store(0) },
		"process number":           func(_ *Arena, rec *memberRecord) { rec.pid.Store(1) },
		"calls":                    func(_ *Arena, rec *memberRecord) { rec.livenessRequests.Store(77) },
		"slots":                    func(a *Arena, _ *memberRecord) { a.header().slots.Store(0) },
		"the word after the counts": func(a *Arena, _ *memberRecord) {
			a.words(Offset(512), 1)[0].Store(0) // padding
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 0)
			m := join(t, a, NoRank)
			if err := join(t, a, NoRank).Leave(); err != nil { // so that death number 1 belongs to another member
				t.Fatal(err)
			}
			m.CheckLiveness(noDrop)
			c, id := startMember(t, a)
			p := peerOf(t, m, id)
			scribble(a, p.rec)
			before := a.Deaths()
			c.Kill()
			var gone []MemberID
			m.CheckLiveness(func(id MemberID) { gone = append(gone, id) })
			if !p.Gone() || a.Deaths() != before+1 || !slices.Equal(gone, []MemberID{id}) {
				t.Errorf("gone %v, deaths %d after %d, let go of %v", p.Gone(), a.Deaths(), before, gone)
			}
			if s := stateIn(a, id.Slot()); s.status() != statusFree {
				t.Errorf("the record is %#x", uint64(s))
			}
		})
	}
}

// A member that has seen a record finds its death, and says how many records there are, after a peer has lowered the number.
func TestLoweredSlotsAreRaised(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, id := startMember(t, a) // in a record that no member has had
	m.CheckLiveness(noDrop)
	if n := a.usedSlots(); n != 2 {
		t.Fatalf("%d records count as used, want 2", n)
	}
	a.header().slots.Store(0)
	m.CheckLiveness(noDrop)
	if n := a.header().slots.Load(); n != 2 {
		t.Errorf("the number of records is %d, want 2 again", n)
	}
	a.header().slots.Store(0)
	c.Kill()
	m.CheckLiveness(noDrop)
	if p := peerOf(t, m, id); !p.Gone() {
		t.Error("the death is hidden")
	}
}

// BenchmarkCheckLiveness checks liveness among many members, all in this process.
func BenchmarkCheckLiveness(b *testing.B) {
	a := newArena(b, 0)
	var members []*Member
	for range MaxRanks {
		members = append(members, join(b, a, NoRank))
	}
	for _, m := range members {
		m.CheckLiveness(noDrop)
	}
	for i := 0; b.Loop(); i++ {
		members[i%len(members)].CheckLiveness(noDrop)
	}
}

// The process of a neighbour has ended, and the lock on its record is not released yet: a new liveness
// check is due at once.
func TestProcessEndBeforeLockReleaseIsRechecked(t *testing.T) {
	a := newArena(t, 0)
	m, other := join(t, a, NoRank), join(t, a, NoRank)
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	other.rec.pid.Store(uint32(child.Process.Pid))
	defer m.unwatch()
	if again := m.CheckLiveness(noDrop); again != livenessIntervalLong {
		t.Errorf("no event would report the end of the process: next check after %v", again)
	}
	child.Process.Kill()
	child.Wait()
	proctest.Eventually(t, "a liveness check is due", m.LivenessCheckDue)
	if again := m.CheckLiveness(noDrop); again != livenessIntervalShort {
		t.Errorf("next check after %v", again)
	}
}

func TestWatchReportsEndOnce(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, id := startMember(t, a)
	p := peerOf(t, m, id)
	stop := make(chan struct{})
	defer close(stop)
	gone := make(chan string, 3)
	if !m.Watch(p, stop, func() { gone <- "killed" }) {
		t.Fatal("the process of a child cannot be watched here")
	}
	stopped := make(chan struct{})
	if !m.Watch(p, stopped, func() { gone <- "stopped" }) {
		t.Fatal("a second watch is refused")
	}
	close(stopped)
	c.Stop()
	select {
	case what := <-gone:
		t.Fatalf("the watch fires for a stopped process (%s)", what)
	case <-time.After(20 * time.Millisecond):
	}
	c.Cmd.Process.Kill() // the parent has not waited for it: a zombie counts as ended
	if what := proctest.Receive(t, "the watch fires", gone); what != "killed" {
		t.Error(what)
	}
	if !p.Gone() || a.Deaths() != 1 {
		t.Errorf("when the watch fires: gone %v, deaths %d", p.Gone(), a.Deaths())
	}
	c.Kill()
	// The peer has ended already: gone is called at once.
	if !m.Watch(p, stop, func() { gone <- "late" }) {
		t.Error("the death of the gone is not told")
	}
	if what := <-gone; what != "late" {
		t.Errorf("%s", what)
	}
}

func TestWatchWorksAcrossProcesses(t *testing.T) {
	a := newArena(t, 0)
	watcher, _ := startMember(t, a)
	target, id := startMember(t, a)
	watcher.Say("watch %d", id)
	watcher.Expect("true")
	target.Kill()
	watcher.Expect("gone")
	watcher.Say("leave")
	watcher.Wait()
}

func TestWatchDoesNotTrustTheRecord(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	attacker := join(t, a, NoRank)
	other, _ := startMember(t, a)
	stop := make(chan struct{})
	defer close(stop)
	var fired atomic.Bool
	for _, pid := range []int{other.PID(), 0, 1 << 30} {
		attacker.rec.pid.Store(uint32(pid))
		m.Watch(peerOf(t, m, attacker.ID()), stop, func() { fired.Store(true) })
	}
	attacker.rec.pidNS.Store(1)
	if m.Watch(peerOf(t, m, attacker.ID()), stop, func() { fired.Store(true) }) {
		t.Error("a process of another namespace is watched")
	}
	other.Kill()
	time.Sleep(20 * time.Millisecond) // a wrong call would happen about now
	if fired.Load() {
		t.Error("a live member was called gone")
	}
}
