package endpoint

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/waiter"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestSpinBudget(t *testing.T) {
	usual := new(waiter.Spin).Phase()
	for budget, want := range map[int]waiter.Phase{0: usual, NoSpin: {}, 7: {Rounds: 7, Limit: usual.Limit}, math.MaxInt: {Rounds: math.MaxInt}} {
		p := newSide(t, newArena(t), "alone", sideOptions{Options: Options{SpinBudget: budget}}, false).provider
		for _, processes := range []int{1, runtime.NumCPU() + 1} { // the processors are not counted: a binding counts only those of this process
			p.processes.Store(int32(processes))
			if spins, _ := p.spinBudget(); spins != want {
				t.Errorf("SpinBudget %d, %d processes: %+v, want %+v", budget, processes, spins, want)
			}
		}
	}
}

// After waits whose events come late, a wait does not spin. One whose event comes soon makes the next ones spin.
func TestSpinsAdapt(t *testing.T) {
	p := newUnconnected(t).provider
	p.processes.Store(1)
	wait := func(ready func(checks int) bool) (checks int) {
		err := p.WaitFor(t.Context(), statuspage.Call{Op: "wait"}, func() bool {
			checks++
			return ready(checks)
		})
		if err != nil {
			t.Fatal(err)
		}
		return checks
	}
	for range 10 {
		wait(func(int) bool { return p.waiters.Sleeping() > 0 })
	}
	want := waiter.Yields(1, runtime.NumCPU(), false).Rounds + 2 // before the yields, and when the doorbell is armed
	if checks := wait(func(int) bool { return p.waiters.Sleeping() > 0 }); checks != want {
		t.Errorf("%d checks after waits that have spun in vain, want %d", checks, want)
	}
	for p.spins.Rounds(waiter.SpinRounds) == 0 { // the rest is over
	}
	wait(func(checks int) bool { return checks > 2 })
	if rounds := p.spins.Rounds(waiter.SpinRounds); rounds != waiter.SpinRounds {
		t.Errorf("%d rounds after a spin that has found its event, want %d", rounds, waiter.SpinRounds)
	}
}

// A wait whose rounds take long ends each of its phases before all rounds are over. That does not hold with a weak order, for more
// spins than usual that the program asks for, and for yields on a host without a relay.
func TestSlowWaitSleepsSooner(t *testing.T) {
	t.Parallel()
	const (
		fewSpins = 2 * spinsPerClock
		others   = 2 // before the spins, and when the doorbell is armed
	)
	yields := waiter.Yields(1, runtime.NumCPU(), false)
	for name, test := range map[string]struct {
		Options
		withRelay bool
		want      int
	}{
		"with a relay":    {Options{}, true, fewSpins + 1 + others},
		"without a relay": {Options{}, false, fewSpins + yields.Rounds + others},
		"own budget":      {Options{SpinBudget: 2 * waiter.SpinRounds}, true, 2*waiter.SpinRounds + 1 + others},
		"with weak order": {Options{WeakOrder: new(uint64)}, true, waiter.SpinRounds + yields.Rounds + others},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSide(t, newArena(t), "alone", sideOptions{Options: test.Options}, false).provider
			p.processes.Store(1)
			if test.withRelay {
				if err := p.member.BecomeRelay(); err != nil {
					t.Fatal(err)
				}
			}
			checks := 0
			err := p.WaitFor(t.Context(), statuspage.Call{Op: "wait"}, func() bool {
				checks++
				time.Sleep(200 * time.Microsecond)
				return p.waiters.Sleeping() > 0
			})
			if err != nil || checks != test.want {
				t.Errorf("%d checks, %v; want %d", checks, err, test.want)
			}
		})
	}
}

// Observers see a wait that spins without end.
func TestSpinningWaitIsListed(t *testing.T) {
	p := newSide(t, newArena(t), "alone", sideOptions{Options: Options{SpinBudget: math.MaxInt}}, false).provider
	p.processes.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() {
		ended <- p.WaitFor(ctx, statuspage.Call{Op: "spin"}, func() bool { return false })
	}()
	proctest.Eventually(t, "the wait is listed", func() bool {
		calls := p.waiters.Calls()
		return len(calls) == 1 && calls[0].Op == "spin"
	})
	if n := p.waiters.Sleeping(); n != 0 {
		t.Errorf("%d waits sleep, want none", n)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
