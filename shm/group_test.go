package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// rendezvous waits in a barrier as a rank does: it polls, yields, and then sleeps on its doorbell
// until the last rank rings it.
func rendezvous(g *Group, m *Member) {
	ticket := g.Arrive()
	for i := 0; !g.Passed(ticket); i++ {
		if i < 50 {
			linux.Yield()
			runtime.Gosched()
			continue
		}
		sleep := m.WaitDoorbell().Arm()
		if g.Passed(ticket) {
			break
		}
		m.WaitDoorbell().Sleep(sleep, 0)
	}
	m.WaitDoorbell().Disarm()
}

// exchange runs rounds of barriers and publications. It fails if a rank reads anything but the bytes
// that the others published in this round.
func exchange(m *Member, rounds int) error {
	g, err := m.JoinGroup()
	if err != nil {
		return err
	}
	for !g.Formed() {
		sleep := m.WaitDoorbell().Arm()
		if !g.Formed() {
			m.WaitDoorbell().Sleep(sleep, 0)
		}
		m.WaitDoorbell().Disarm()
	}
	off, err := m.heap.Alloc(4096)
	if err != nil {
		return err
	}
	b, err := m.Arena().Bytes(off, 4096)
	if err != nil {
		return err
	}
	words := func(rank, round int) []byte { return fmt.Appendf(nil, "rank %d, round %d", rank, round) }
	for round := range rounds {
		mine := words(g.rank, round)
		copy(b, mine)
		g.Publish(off, uint64(len(mine)))
		rendezvous(g, m)
		for rank := range g.size() {
			theirs, err := g.Published(rank, noLimit)
			if err != nil {
				return err
			}
			if !bytes.Equal(theirs, words(rank, round)) {
				return fmt.Errorf("rank %d sees %q from rank %d in round %d", g.rank, theirs, rank, round)
			}
		}
		rendezvous(g, m)
	}
	return nil
}

const noLimit = math.MaxUint64

func joinGroup(t *testing.T, m *Member) *Group {
	t.Helper()
	g, err := m.JoinGroup()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// form forms a group of members that have joined it. The first one has rank 0.
func form(t *testing.T, groups ...*Group) {
	t.Helper()
	for _, g := range groups {
		g.Formed() // it is ready
	}
	for _, g := range groups {
		if !g.Formed() {
			t.Fatalf("rank %d: the group is not formed", g.rank)
		}
	}
}

func TestBarrierSynchronisesGoroutines(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			a := newArena(t, ranks)
			rounds := 100
			if testing.Short() {
				rounds = 30
			}
			var done sync.WaitGroup
			for rank := range ranks {
				m := join(t, a, rank)
				done.Go(func() {
					if err := exchange(m, rounds); err != nil {
						t.Error(err)
					}
				})
			}
			done.Wait()
			arrivals := a.header().arrived.Load()
			if ranks == 2 {
				arrivals = a.rankRecord(0).round.Load() + a.rankRecord(1).round.Load()
			}
			if arrivals != uint64((1+2*rounds)*ranks) { // the group begins with 1
				t.Errorf("%d arrivals, want %d in each of %d rounds", arrivals, ranks, 1+2*rounds)
			}
		})
	}
}

// No rank passes before the last rank has arrived.
func TestBarrierWaitsForLastRank(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			a := newArena(t, ranks)
			var groups []*Group
			for rank := range ranks {
				g, err := join(t, a, rank).JoinGroup()
				if err != nil {
					t.Fatal(err)
				}
				groups = append(groups, g)
			}
			for round := range 2 * ranks {
				tickets := make([]uint64, ranks)
				for i := range ranks {
					for rank, ticket := range tickets {
						if ticket != 0 && groups[rank].Passed(ticket) {
							t.Fatalf("round %d: rank %d passes with %d of %d", round, rank, i, ranks)
						}
					}
					late := (round + i) % ranks // each rank is the last one in some rounds
					tickets[late] = groups[late].Arrive()
				}
				for rank, ticket := range tickets {
					if !groups[rank].Passed(ticket) {
						t.Fatalf("round %d: rank %d does not pass", round, rank)
					}
				}
			}
		})
	}
}

var roleRank = proctest.Role("rank", func(self *proctest.Self) error {
	var rank, rounds int
	if _, err := fmt.Sscan(strings.Join(self.Args, " "), &rank, &rounds); err != nil {
		return err
	}
	m, err := joinInherited(self, rank)
	if err != nil {
		return err
	}
	if err := exchange(m, rounds); err != nil {
		return err
	}
	return m.Leave()
})

func TestBarrierSynchronisesProcesses(t *testing.T) {
	const ranks = 5 // more than most test machines have idle cores
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	a := newArena(t, ranks)
	var children []*proctest.Process
	for rank := range ranks {
		children = append(children, proctest.StartWith(t, a.File(), roleRank, rank, rounds))
	}
	for _, c := range children {
		c.Wait()
	}
}

func TestJoinGroupRefusesTakenRanks(t *testing.T) {
	a := newArena(t, 2)
	m, guest := join(t, a, 0), join(t, a, NoRank)
	if g, err := guest.JoinGroup(); err == nil {
		t.Errorf("a guest is rank %d", g.rank)
	}
	g, err := m.JoinGroup()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.JoinGroup(); err != nil || again.rank != 0 {
		t.Errorf("the same member, once more: %v, %v", again, err)
	}
	if id, ok := g.member.arena.MemberOf(0); !ok || id != m.ID() {
		t.Errorf("rank 0 is %v, %v", id, ok)
	}
	for _, rank := range []int{-1, 1, 2, 1 << 30} {
		if id, ok := g.member.arena.MemberOf(rank); ok {
			t.Errorf("rank %d is %v", rank, id)
		}
		if b, err := g.Published(rank, noLimit); !errors.Is(err, errGone) {
			t.Errorf("rank %d publishes %q, %v", rank, b, err)
		}
	}
	double := join(t, again(t, a), 0)
	if _, err := double.JoinGroup(); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("a second rank 0: %v", err)
	}
	// The rank of a dead member is free again, and its publication is gone.
	off, err := m.heap.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	g.Publish(off, 5)
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	h, err := double.JoinGroup()
	if err != nil {
		t.Fatalf("the rank of one that has left: %v", err)
	}
	form(t, h, joinGroup(t, join(t, a, 1)))
	if b, err := h.Published(0, noLimit); b != nil || !errors.Is(err, ErrNotPublished) {
		t.Errorf("the successor publishes %q, %v", b, err)
	}
	b := newArena(t, 0)
	if g, err := join(t, b, 0).JoinGroup(); err == nil {
		t.Errorf("a group of none: %v", g)
	}
}

func TestJoinGroupRaceHasOneWinner(t *testing.T) {
	a := fakeArena(1)
	one, two := fakeMember(a, 0, 0), fakeMember(a, 1, 0)
	var won [2]atomic.Bool
	take := func(who int, m *Member) func(uint64) {
		return func(uint64) {
			_, err := m.JoinGroup()
			if err != nil && !errors.Is(err, ErrTaken) {
				t.Error(err)
			}
			won[who].Store(err == nil)
		}
	}
	proctest.Lockstep(5000, take(0, one), take(1, two), func(i uint64) {
		if won[0].Load() == won[1].Load() {
			t.Fatalf("round %d: both, or none, are rank 0: %v", i, won[0].Load())
		}
		a.rankRecord(0).member.Store(0)
	})
}

func TestPublishedIsChecked(t *testing.T) {
	a := newArena(t, 2)
	attacker, m := join(t, a, 0), join(t, a, 1)
	theirs, ours := joinGroup(t, attacker), joinGroup(t, m)
	form(t, theirs, ours)
	if b, err := ours.Published(0, noLimit); b != nil || !errors.Is(err, ErrNotPublished) {
		t.Errorf("nothing was published, but there is %q, %v", b, err)
	}
	meet := func() { theirs.Arrive(); ours.Arrive() }
	off, err := attacker.heap.Alloc(2 * chunkSize)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := m.heap.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Publish(off+10, 2*chunkSize-10)
	if b, err := ours.Published(0, noLimit); !errors.Is(err, ErrNotPublished) || b != nil {
		t.Errorf("before the barrier: %q, %v", b, err)
	}
	meet()
	if b, err := ours.Published(0, noLimit); len(b) != 2*chunkSize-10 || err != nil {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	for _, tc := range []struct {
		name string
		off  Offset
		n    uint64
	}{
		{"the header", 0, 100},
		{"a table", a.geo.memberTable, 100},
		{"one byte before the heap", a.geo.heap - 1, 2},
		{"another member's memory", foreign, 10},
		{"a free chunk", a.geo.heap + Offset((a.geo.chunks-1)*chunkSize), 10},
		{"one byte beyond its memory", off + 1, 2 * chunkSize},
		{"as much as the arena has", a.geo.heap, a.geo.chunks * chunkSize},
		{"the end of the arena", Offset(a.geo.size), 1},
		{"beyond the arena", Offset(a.geo.size), 1 << 40},
		{"a length that wraps", off, 1<<64 - 1},
		{"an offset that wraps", 1<<64 - 1, 2},
	} {
		theirs.Publish(tc.off, tc.n)
		meet()
		if peerOf(t, m, attacker.ID()).Owns(tc.off, tc.n) {
			t.Errorf("%s: the peer owns it", tc.name)
		}
		if b, err := ours.Published(0, noLimit); !errors.Is(err, ErrDamaged) || b != nil {
			t.Errorf("%s: %d bytes, %v", tc.name, len(b), err)
		}
	}
	if !peerOf(t, m, attacker.ID()).Owns(off+1, 2*chunkSize-1) || !peerOf(t, m, m.ID()).Owns(foreign, 100) {
		t.Error("a peer does not own its own memory")
	}
	theirs.Publish(0, 0)
	meet()
	if b, err := ours.Published(0, noLimit); b != nil || err != nil {
		t.Errorf("nothing is published, but there is %q, %v", b, err)
	}
	meet()
	if b, err := ours.Published(0, noLimit); !errors.Is(err, ErrNotPublished) || b != nil {
		t.Errorf("after another barrier: %q, %v", b, err)
	}
}

// The last rank rings the other ranks' wait doorbells, even if a rank record is damaged.
func TestBarrierRingsWaitDoorbellsOnly(t *testing.T) {
	a := newArena(t, 3)
	m, last := join(t, a, 0), join(t, a, 1)
	g, err := m.JoinGroup()
	if err != nil {
		t.Fatal(err)
	}
	h, err := last.JoinGroup()
	if err != nil {
		t.Fatal(err)
	}
	a.rankRecord(2).member.Store(^uint64(0)) // a rank whose record is damaged
	ticket := g.Arrive()
	a.header().arrived.Add(1) // that rank arrives nevertheless
	woken := make(chan struct{})
	sleep := m.WaitDoorbell().Arm()
	go func() {
		m.WaitDoorbell().Sleep(sleep, 0)
		close(woken)
	}()
	h.Arrive()
	proctest.Receive(t, "a rank is woken", woken)
	if !g.Passed(ticket) {
		t.Error("not passed")
	}
}

// A rank that leaves has not died, nor has the next member of the rank.
func TestHasDied(t *testing.T) {
	a := newArena(t, 2)
	m := join(t, a, 1)
	if a.HasDied(0) || a.HasDied(2) || a.HasDied(NoRank) {
		t.Error("a rank that no member has taken has died")
	}
	for range 2 {
		other := join(t, a, 0)
		if _, err := other.JoinGroup(); err != nil {
			t.Fatal(err)
		}
		if a.HasDied(0) {
			t.Error("a live rank has died")
		}
		if err := other.Leave(); err != nil {
			t.Fatal(err)
		}
		if a.HasDied(0) {
			t.Error("a rank that has left has died")
		}
	}
	c := proctest.StartWith(t, a.File(), roleRankOnly)
	c.Expect("joined")
	c.Kill()
	proctest.Eventually(t, "the death is found", func() bool { m.CheckLiveness(noDrop); return a.HasDied(0) })
}

// roleRankOnly takes rank 0.
var roleRankOnly = proctest.Role("rank only", func(s *proctest.Self) error {
	a, err := Attach(s.Ctx, s.File(0))
	if err != nil {
		return err
	}
	m, err := a.Join(0)
	if err == nil {
		_, err = m.JoinGroup()
	}
	if err != nil {
		return err
	}
	s.Say("joined")
	_, err = s.Hear()
	return err
})
