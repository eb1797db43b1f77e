package waiter

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// maxSleep is longer than any of these tests takes.
const maxSleep = time.Minute

func newSet(t *testing.T, onIdle func()) *Set {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	member, err := arena.Join(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { member.Leave() })
	s := new(Set)
	s.Init(member.WaitDoorbell(), onIdle)
	return s
}

func TestYields(t *testing.T) {
	const cores = 4
	for _, test := range []struct {
		processes int
		withRelay bool
		want      Phase
	}{
		{1, false, Phase{yieldRounds, 0}},
		{cores * maxPerCoreToYield, false, Phase{yieldRounds, 0}},
		{cores*maxPerCoreToYield + 1, false, Phase{}},
		{cores, true, Phase{yieldRounds, yieldLimit}},
		{cores + 1, true, Phase{yieldRounds, 2 * yieldLimit}},
		{cores*maxPerCoreToYield + 1, true, Phase{}},
	} {
		if yield := Yields(test.processes, cores, test.withRelay); yield != test.want {
			t.Errorf("%d processes, relay %v: %+v, want %+v", test.processes, test.withRelay, yield, test.want)
		}
	}
}

// A value that is stored before Wake is seen by a wait that checks it after Arm, or the wait is
// woken.
func TestWakeIsNotLost(t *testing.T) {
	s := newSet(t, func() {})
	var turn atomic.Int64
	const rounds = 2000
	play := func(mine int64) {
		for i := mine; i < rounds; i += 2 {
			for turn.Load() != i {
				ticket := s.Arm()
				if turn.Load() != i {
					s.Sleep(ticket, maxSleep)
				}
				s.Disarm()
			}
			turn.Add(1)
			s.Wake()
		}
	}
	other := make(chan struct{})
	go func() { play(1); close(other) }()
	play(0)
	<-other
	if n := s.Sleeping(); n != 0 || s.IsArmed() {
		t.Errorf("%d waits sleep after all have ended, armed %v", n, s.IsArmed())
	}
}

func TestCloseEndsCalls(t *testing.T) {
	s := newSet(t, func() {})
	if !s.BeginCall() {
		t.Fatal("a call is refused before Close")
	}
	ticket := s.Arm()
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	s.Sleep(ticket, maxSleep) // Close rings
	s.Disarm()
	for !s.IsClosed() {
		time.Sleep(time.Millisecond)
	}
	if s.BeginCall() {
		t.Error("a call begins after Close")
	}
	select {
	case <-closed:
		t.Error("Close has returned before the call has ended")
	case <-time.After(10 * time.Millisecond):
	}
	s.EndCall()
	<-closed
}

func TestWaitCounters(t *testing.T) {
	idle := 0
	s := newSet(t, func() { idle++ })
	s.BeginWait()
	s.BeginWait()
	s.EndWait()
	if s.Started() != 2 || s.Waiting() != 1 || idle != 0 {
		t.Errorf("started %d, waiting %d, idle %d", s.Started(), s.Waiting(), idle)
	}
	s.Complete()
	s.EndWait()
	if s.Completed() != 1 || s.Waiting() != 0 || idle != 1 {
		t.Errorf("completed %d, waiting %d, idle %d", s.Completed(), s.Waiting(), idle)
	}
}

func TestListedCalls(t *testing.T) {
	s := newSet(t, func() {})
	before := linux.HostClock()
	first, second := s.List(statuspage.Call{Op: "wait"}), s.List(statuspage.Call{Op: "connect"})
	s.Unlist(first)
	calls := s.Calls()
	if len(calls) != 1 || calls[0].Op != "connect" || calls[0].Since < before-int64(time.Second) || calls[0].Since > linux.HostClock() {
		t.Errorf("calls: %+v, listed after %d", calls, before)
	}
	s.Unlist(second)
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("calls that have ended are listed: %+v", calls)
	}
}
