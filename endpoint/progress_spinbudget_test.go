package endpoint

import (
	"runtime"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/waiter"
)

func TestSpinBudget(t *testing.T) {
	usual, _ := waiter.Budget(1, runtime.NumCPU())
	for budget, want := range map[int]int{0: usual, NoSpin: 0, 7: 7} {
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
