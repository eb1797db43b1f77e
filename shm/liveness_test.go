package shm

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/doorbell"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestKilledMemberIsFound(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, id := startMember(t, a)
	p := peerOf(t, m, id)
	if !m.checkAlive(p) || a.Deaths() != 0 {
		t.Fatalf("alive: %v, deaths: %d", m.checkAlive(p), a.Deaths())
	}
	// A stopped process is not dead.
	c.Stop()
	if !m.checkAlive(p) {
		t.Error("a stopped process is called dead")
	}
	c.Kill()
	if m.checkAlive(p) || !p.Gone() || a.Deaths() != 1 {
		t.Errorf("after the kill: gone %v, deaths %d", p.Gone(), a.Deaths())
	}
	if m.checkAlive(p) || a.Deaths() != 1 {
		t.Errorf("the death was counted again: %d", a.Deaths())
	}
}

func TestCheckLivenessDropsAndReclaims(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, id := startMember(t, a)
	c.Say("alloc %d", 3*chunkSize)
	c.Hear()
	c.Say("alloc %d", 100)
	c.Hear()
	before := blocks(t, a)
	c.Kill()
	var gone []MemberID
	m.CheckLiveness(func(id MemberID) {
		gone = append(gone, id)
		if n := chunksOf(a, id.Slot()); n != 4 {
			t.Errorf("the dead one's %d chunks were taken before we let go of them", 4-n)
		}
	})
	if !slices.Equal(gone, []MemberID{id}) {
		t.Errorf("let go of %v, want %v", gone, id)
	}
	if s := stateIn(a, id.Slot()); s.status() != statusFree || chunksOf(a, id.Slot()) != 0 {
		t.Errorf("the record is %#x and has %d chunks", uint64(s), chunksOf(a, id.Slot()))
	}
	if got := before - blocks(t, a); got != 4*chunkSize {
		t.Errorf("%d bytes were given back, want %d", got, 4*chunkSize)
	}
	m.CheckLiveness(func(id MemberID) { t.Errorf("asked again to let go of %v", id) })
}

// The memory of a dead member is not reclaimed while a live member may still use it.
func TestReclaimWaitsForEveryLiveMember(t *testing.T) {
	a := newArena(t, 0)
	first, second := join(t, a, NoRank), join(t, again(t, a), NoRank)
	third, thirdID := startMember(t, a)
	dead, id := startMember(t, a)
	dead.Say("alloc %d", 2*chunkSize)
	dead.Hear()
	found := func(id MemberID) {
		t.Helper()
		if first.checkAlive(peerOf(t, first, id)) {
			t.Fatalf("%v is killed, and called alive", id)
		}
	}
	dead.Kill()
	found(id)
	kept := func(after string) {
		t.Helper()
		if s := stateIn(a, id.Slot()); s.status() != statusDead || chunksOf(a, id.Slot()) != 2 {
			t.Fatalf("after %s the record is %#x and has %d chunks", after, uint64(s), chunksOf(a, id.Slot()))
		}
	}
	first.CheckLiveness(noDrop)
	kept("the first liveness check")
	first.CheckLiveness(noDrop)
	kept("the same member's second liveness check")
	third.Say("check")
	third.Expect("checked")
	kept("the third member's liveness check")
	// A member that joins now has no memory of the dead member, and need not acknowledge the death.
	late := join(t, a, NoRank)
	late.CheckLiveness(noDrop)
	kept("the check of a new member")
	second.acknowledge(noDrop)
	if s := stateIn(a, id.Slot()); s.status() != statusFree || chunksOf(a, id.Slot()) != 0 {
		t.Fatalf("after all checks the record is %#x and has %d chunks", uint64(s), chunksOf(a, id.Slot()))
	}

	// A member that has not acknowledged the death dies: the reclaim does not wait for it.
	dead, id = startMember(t, a)
	dead.Say("alloc %d", 2*chunkSize)
	dead.Hear()
	dead.Kill()
	found(id)
	for _, m := range []*Member{first, second, late} {
		m.CheckLiveness(noDrop)
		kept("a check without the third member")
	}
	third.Kill()
	found(thirdID)
	for _, m := range []*Member{first, second, late} {
		m.CheckLiveness(noDrop)
	}
	for _, slot := range []int{id.Slot(), thirdID.Slot()} {
		if s := stateIn(a, slot); s.status() != statusFree || chunksOf(a, slot) != 0 {
			t.Errorf("slot %d in the end: %#x, %d chunks", slot, uint64(s), chunksOf(a, slot))
		}
	}
}

// A member drops a dead member before it acknowledges the death. A reclaim in between would be a bug.
func TestAcknowledgeComesAfterDrop(t *testing.T) {
	a := newArena(t, 0)
	first, second := join(t, a, NoRank), join(t, a, NoRank)
	leaver := join(t, a, NoRank)
	if _, err := leaver.heap.Alloc(1); err != nil {
		t.Fatal(err)
	}
	slot := leaver.ID().Slot()
	if err := leaver.Leave(); err != nil {
		t.Fatal(err)
	}
	second.CheckLiveness(noDrop)
	first.CheckLiveness(func(MemberID) {
		second.CheckLiveness(noDrop) // it must find that first has not acknowledged
		if chunksOf(a, slot) != 1 {
			t.Error("reclaimed while a member was letting go")
		}
	})
	if chunksOf(a, slot) != 0 {
		t.Error("not reclaimed afterwards")
	}
}

func TestAcknowledgedDeathsNeverDecrease(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	nested := false
	for range 2 {
		if err := join(t, a, NoRank).Leave(); err != nil {
			t.Fatal(err)
		}
	}
	m.acknowledge(func(MemberID) {
		if nested {
			return
		}
		nested = true
		// Another goroutine of this process acknowledges a later death meanwhile.
		x, err := a.Join(NoRank)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Leave(); err != nil {
			t.Fatal(err)
		}
		m.acknowledge(noDrop)
	})
	if seen, deaths := m.rec.deathsSeen.Load(), a.Deaths(); seen != deaths {
		t.Errorf("acknowledged %d of %d deaths", seen, deaths)
	}
}

// A member is killed while it changes the shared owner map.
func TestKillDuringAllocationLosesNothing(t *testing.T) {
	a := newArena(t, 0)
	m, other := join(t, a, NoRank), join(t, again(t, a), NoRank)
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	caught := 0
	for i := range rounds {
		c := proctest.StartWith(t, a.File(), roleChurn, i, "1000000000")
		id := memberIDFrom(t, c.Hear())
		time.Sleep(time.Duration(i) * 500 * time.Microsecond) // at a different step in each round
		c.Kill()
		if chunksOf(a, id.Slot()) > 0 {
			caught++
		}
		m.CheckLiveness(noDrop)
		other.CheckLiveness(noDrop)
		if s := stateIn(a, id.Slot()); s.status() != statusFree || chunksOf(a, id.Slot()) != 0 {
			t.Fatalf("round %d: the record is %#x and has %d chunks", i, uint64(s), chunksOf(a, id.Slot()))
		}
	}
	t.Logf("%d of %d were killed with memory in their hands", caught, rounds)
	// No chunk is lost, and all free chunks are zero.
	off, err := m.heap.Alloc(a.geo.chunks * chunkSize)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := a.Bytes(off, a.geo.chunks*chunkSize); err != nil || !isZero(b) {
		t.Errorf("memory of the dead is not zero (%v)", err)
	}
}

// A reaper dies in the middle, and another member continues.
func TestReaperDeathIsContinued(t *testing.T) {
	a := newArena(t, 0)
	m, b := join(t, a, NoRank), again(t, a)
	numbers := a.words(a.geo.numberOwners, numberBlocks)
	for round := range 3 {
		x := join(t, a, NoRank)
		for range 2 {
			if _, err := x.heap.Alloc(chunkSize); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Leave(); err != nil {
			t.Fatal(err)
		}
		for _, block := range []int{1, numberBlocks - 1} { // as a process with numbers leaves them
			numbers[block].Store(uint32(x.slot) + 1)
		}
		numbers[5].Store(uint32(m.slot) + 1)
		at := a.lockOf(x.slot)
		if ok, err := lockRecord(int(b.file.Fd()), at); !ok { // first step of the reaper
			t.Fatalf("the record of one that has left is locked (%v)", err)
		}
		if round > 0 { // part of its second step
			words := ownerMap{b.words(b.geo.chunkOwners, b.geo.chunks), uint32(x.slot) + 1}
			words.runs(0, b.geo.chunks, func(first, _ uint64) { words.releaseRun(first, uint64(round)) })
		}
		keeps := chunksOf(a, x.slot)
		m.CheckLiveness(noDrop)
		if s := stateIn(a, x.slot); s.status() != statusDead || chunksOf(a, x.slot) != keeps {
			t.Errorf("round %d: another member has reaped meanwhile: state %#x, %d chunks", round, uint64(s), chunksOf(a, x.slot))
		}
		if err := unlockRecord(int(b.file.Fd()), at); err != nil { // the reaper dies
			t.Fatal(err)
		}
		m.CheckLiveness(noDrop)
		if s := stateIn(a, x.slot); s.status() != statusFree || chunksOf(a, x.slot) != 0 {
			t.Errorf("round %d: no member continues: state %#x, %d chunks", round, uint64(s), chunksOf(a, x.slot))
		}
		if numbers[1].Load() != 0 || numbers[numberBlocks-1].Load() != 0 || numbers[5].Load() != uint32(m.slot)+1 {
			t.Errorf("round %d: the blocks of numbers are those of %d, %d and %d", round, numbers[1].Load(), numbers[numberBlocks-1].Load(), numbers[5].Load())
		}
	}
}

// A peer can mark a live member dead, or store an invalid state. No member reclaims its memory while
// it lives. It detects the mark, and the others drop it.
func TestLiveMemberMarkedDeadKeepsMemory(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	for _, lie := range []memberState{
		stateOf(statusDead, 0), stateOf(statusFree, 0), stateOf(statusLive, 9), stateOf(statusDead, 9), stateOf(77, 0), ^memberState(0),
	} {
		x := join(t, again(t, a), NoRank)
		off, err := x.heap.Alloc(3 * chunkSize)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Bytes(off, 3*chunkSize)
		if err != nil {
			t.Fatal(err)
		}
		fill(b, 7)
		if lie.incarnation() == 0 {
			lie = stateOf(status(lie), uint32(x.id>>16))
		}
		x.rec.state.Store(uint64(lie))
		deaths := a.Deaths()
		var gone []MemberID
		for range 3 {
			m.CheckLiveness(func(id MemberID) { gone = append(gone, id) })
			x.CheckLiveness(noDrop)
		}
		if !x.Gone() || a.Deaths() == deaths || !slices.Contains(gone, x.id) {
			t.Errorf("state %#x: marked dead: %v, %d deaths (%d before), let go of %v", uint64(lie), x.Gone(), a.Deaths(), deaths, gone)
		}
		if chunksOf(a, x.slot) != 3 || slices.Contains(b, 0) {
			t.Fatalf("state %#x: %d of 3 chunks are left to a living member, or their contents are gone", uint64(lie), chunksOf(a, x.slot))
		}
		if err := x.Leave(); err != nil {
			t.Fatal(err)
		}
		m.CheckLiveness(noDrop)
		if s := stateIn(a, x.slot); s.status() != statusFree || chunksOf(a, x.slot) != 0 {
			t.Errorf("state %#x: after it has left: %#x, %d chunks", uint64(lie), uint64(s), chunksOf(a, x.slot))
		}
	}
}

// A process that counts a death is delayed between its check and its store. It must not change the
// next owner's deathEpoch: that owner's death would never be acknowledged.
func TestDelayedCountSparesNextOwner(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	x := join(t, a, NoRank)
	slot, mark := x.ID().Slot(), x.rec.deathEpoch.Load()
	if err := x.Leave(); err != nil {
		t.Fatal(err)
	}
	m.CheckLiveness(noDrop)
	y := join(t, a, NoRank)
	if y.ID().Slot() != slot {
		t.Fatalf("slot %d was not reused", slot)
	}
	if y.rec.deathEpoch.CompareAndSwap(mark, 1) {
		t.Error("a delayed count hits the next owner")
	}
}

func TestDeathsAreCountedOnce(t *testing.T) {
	a := newArena(t, 0)
	var members []*Member
	for range 4 {
		members = append(members, join(t, again(t, a), NoRank))
	}
	const children = 3
	var dead []*proctest.Process
	for range children {
		c, _ := startMember(t, a)
		dead = append(dead, c)
	}
	for _, c := range dead {
		c.Kill()
	}
	var done sync.WaitGroup
	for _, m := range members {
		done.Go(func() {
			for range 3 {
				m.CheckLiveness(noDrop)
			}
		})
	}
	done.Wait()
	for _, m := range members { // the last member may have found a death after the others had finished
		m.CheckLiveness(noDrop)
	}
	// Two processes that count one death at the same time skip a number. No death is lost.
	if got := a.Deaths(); got < children || got > children*uint64(len(members)) {
		t.Errorf("%d deaths counted of %d", got, children)
	}
	for slot := range maxMembers {
		if s := stateIn(a, slot).status(); slot >= len(members) && s != statusFree {
			t.Errorf("slot %d is in state %d", slot, s)
		}
	}
}

func TestDeathWakesAllMembers(t *testing.T) {
	a := newArena(t, 0)
	armed, unarmed := join(t, a, NoRank), join(t, a, NoRank)
	x, id := startMember(t, a)
	x.Kill()
	var awake sync.WaitGroup
	for _, m := range []*Member{armed, unarmed} {
		for _, bell := range []*doorbell.Doorbell{m.WaitDoorbell(), m.EngineDoorbell()} {
			ticket := bell.Arm()
			if m == unarmed { // the dead member may have disarmed the doorbell without waking the waiters
				bell.Disarm()
			}
			awake.Go(func() { bell.Sleep(ticket, 0) })
		}
	}
	if armed.checkAlive(peerOf(t, armed, id)) {
		t.Fatal("the dead member lives")
	}
	awake.Wait()
	if a.Deaths() != 1 {
		t.Errorf("%d deaths", a.Deaths())
	}
}

func TestLeaveWakesWaitingMembers(t *testing.T) {
	a := newArena(t, 0)
	x := join(t, a, NoRank)
	for range 2 * neighbours { // the last of these members do not watch the leaver
		join(t, a, NoRank)
	}
	m := join(t, a, NoRank)
	ticket := m.WaitDoorbell().Arm()
	if err := x.Leave(); err != nil {
		t.Fatal(err)
	}
	if m.WaitDoorbell().Armed() {
		t.Error("Leave does not ring a waiting member")
	}
	m.WaitDoorbell().Sleep(ticket, 0)
}

// A member leaves, and its process continues.
func TestLeaveIsSeenWhileProcessRuns(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c, id := startMember(t, a)
	p := peerOf(t, m, id)
	c.Say("alloc %d", chunkSize)
	c.Hear()
	c.Say("stay")
	c.Expect("left")
	if !p.Gone() || m.checkAlive(p) || a.Deaths() != 1 {
		t.Errorf("gone %v, deaths %d", p.Gone(), a.Deaths())
	}
	m.CheckLiveness(noDrop)
	if chunksOf(a, id.Slot()) != 0 {
		t.Error("its memory was kept")
	}
	c.Say("go")
	c.Wait()
	if a.Deaths() != 1 {
		t.Errorf("the end of its process counts as another death: %d", a.Deaths())
	}
}

func TestPIDNamespaceIsKnown(t *testing.T) {
	if pidNamespace() == 0 {
		t.Error("no PID namespace")
	}
	if got := fmt.Sprint(memberID(3, 4)); got != "member 3.4" || !strings.HasPrefix(memberID(0xffff, 1<<32-1).String(), "member 65535.") {
		t.Errorf("identity reads %q", got)
	}
}
