package endpoint

import (
	"runtime"

	"github.com/softnd/softnd/endpoint/internal/waiter"
)

// Spin adapts the spins of calls that wait for something else than this package.
type Spin = waiter.Spin

// NoSpin is a value of Options.SpinBudget: a wait yields at once.
const NoSpin = -1

// spinBudget returns how long a wait spins and how long it then yields before it sleeps.
func (p *Provider) spinBudget() (spin, yield waiter.Phase) {
	yield = waiter.Yields(int(p.processes.Load()), runtime.NumCPU(), p.isBesideRelay())
	switch {
	case p.options.SpinBudget > 0:
		spin = waiter.FixedSpin(p.options.SpinBudget)
	case p.options.SpinBudget == NoSpin:
	case p.isStepwise: // each round is a step of the delays
		spin.Rounds = waiter.SpinRounds
	default:
		spin = p.spins.Phase()
	}
	if p.isStepwise {
		spin.Limit, yield.Limit = 0, 0
	}
	return spin, yield
}

// isBesideRelay reports whether the arena has a relay, or has had one since this process saw it. Until there is one it costs two
// loads, and then one.
func (p *Provider) isBesideRelay() bool {
	if p.besideRelay.Load() {
		return true
	}
	_, err := p.arena.Relay()
	if err == nil {
		p.besideRelay.Store(true)
	}
	return err == nil
}
