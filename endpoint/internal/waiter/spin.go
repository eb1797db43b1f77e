package waiter

// TWIN c/src/endpoint/progress_wait.c.

import (
	"sync/atomic"
	"time"
)

const (
	// SpinRounds is the number of rounds that a wait spins at most, unless the program has set another.
	SpinRounds = 500
	// It ends SpinRounds early if a round takes long because it drives many endpoints.
	spinLimit = 20 * time.Microsecond

	maxHalvings = 3 // after one more, waits do not spin
	// After this many waits that do not spin, one tries. Each failed try doubles the number, at most maxDoublings times.
	firstRest    = 64
	maxDoublings = 4
)

// Spin adapts the spins of waits to the outcome of the earlier ones. Their number of rounds doubles after
// a spin that has found its event, and is divided by two after one that has not. After some of these divisions
// waits do not spin, and only from time to time one tries the full number. So waits spin where the answer comes
// from another core, and not where it comes late, or from a process that needs this core. The number of processors
// does not tell: the kernel may put two ranks on one core when other programs run.
//
// The zero value begins with the full number. Waits of several goroutines may share a Spin.
type Spin struct {
	halvings  atomic.Uint32 // more than maxHalvings: waits do not spin
	rest      atomic.Uint32 // waits until the next try
	doublings atomic.Uint32 // of firstRest
}

// Rounds returns how many rounds a wait spins, at most most. The caller calls Ended after the spin unless it is 0.
func (s *Spin) Rounds(most int) int {
	if h := s.halvings.Load(); h <= maxHalvings {
		return most >> h
	}
	if rest := s.rest.Load(); rest > 0 {
		s.rest.Store(rest - 1)
		return 0
	}
	return most
}

// Ended stores whether a spin has found its event.
func (s *Spin) Ended(found bool) {
	h := s.halvings.Load()
	switch isTry := h > maxHalvings; {
	case isTry && found:
		s.halvings.Store(0)
	case found && h > 0:
		s.halvings.Store(h - 1)
	case found: // the number is as large as it can be
	case isTry:
		doublings := min(s.doublings.Load()+1, maxDoublings)
		s.doublings.Store(doublings)
		s.rest.Store(firstRest << doublings)
	case h == maxHalvings:
		s.doublings.Store(0)
		s.rest.Store(firstRest)
		s.halvings.Store(h + 1)
	default:
		s.halvings.Store(h + 1)
	}
}

// Phase returns how long a wait spins. The number of rounds is that of Rounds.
func (s *Spin) Phase() Phase {
	rounds := s.Rounds(SpinRounds)
	return Phase{rounds, spinLimit * time.Duration(rounds) / SpinRounds}
}

// FixedSpin returns how long the waits of a program spin that has set the number of rounds. Only more than the usual
// number have no limit of time.
func FixedSpin(rounds int) Phase {
	if rounds > SpinRounds {
		return Phase{Rounds: rounds}
	}
	return Phase{rounds, spinLimit}
}
