package endpoint

import (
	"math"
	"runtime"

	"github.com/softnd/softnd/endpoint/internal/waiter"
)

// NoSpin is a value of Options.SpinBudget: a wait yields at once.
const NoSpin = -1

// spinBudget returns how many rounds a wait spins and how many it then yields before it sleeps.
func (p *Provider) spinBudget() (spins, yields int) {
	spins, yields = waiter.Budget(int(p.processes.Load()), runtime.NumCPU())
	switch {
	case spins == 0: // processes outnumber cores
	case p.options.SpinBudget == NoSpin:
		spins = 0
	case p.options.SpinBudget > 0:
		spins = min(p.options.SpinBudget, math.MaxInt-yields) // their sum must not overflow
	}
	return spins, yields
}
