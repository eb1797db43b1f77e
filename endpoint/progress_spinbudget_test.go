package endpoint

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/waiter"
	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/internal/statuspage"
)

func TestSpinBudget(t *testing.T) {
	usual, yields := waiter.Budget(1, runtime.NumCPU())
	for budget, want := range map[int]int{0: usual, NoSpin: 0, 7: 7, math.MaxInt: math.MaxInt - yields} {
		p := newParty(t, newArena(t), "alone", sideOptions{Options: Options{SpinBudget: budget}}, false).local.provider
		p.processes.Store(1)
		if spins, _ := p.spinBudget(); spins != want {
			t.Errorf("SpinBudget %d: %d rounds, want %d", budget, spins, want)
		}
		p.processes.Store(int32(runtime.NumCPU() + 1))
		if spins, _ := p.spinBudget(); spins != 0 {
			t.Errorf("SpinBudget %d, more processes than cores: %d rounds, want 0", budget, spins)
		}
	}
}

// Observers see a wait that spins without end.
func TestSpinningWaitIsListed(t *testing.T) {
	p := newParty(t, newArena(t), "alone", sideOptions{Options: Options{SpinBudget: math.MaxInt}}, false).local.provider
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
