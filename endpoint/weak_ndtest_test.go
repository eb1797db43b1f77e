package endpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// lenient are the scenarios that need more than the model promises. A weak order takes it away.
var lenient = []string{
	"C058",                 // more scatter/gather entries than the program has asked for
	"C111",                 // more results in a completion queue than its depth
	"C119", "C120", "C121", // nd.InOrderDMASupported
}

// weakSeeds returns the number of seeds of a test: few, or full with SOFTND_STRESS=1.
func weakSeeds(few, full int) int {
	if os.Getenv("SOFTND_STRESS") == "1" {
		return full
	}
	return few
}

// weakConfig returns the configuration of the suite for a seed.
func weakConfig(t *testing.T, seed uint64) ndtest.Config {
	arena := newArena(t)
	open := func() (nd.Provider, error) {
		member, err := arena.Join(shm.NoRank)
		if err != nil {
			return nil, err
		}
		p, err := New(member, Options{
			Executor: Executor(seed % 2), ReceiveTimeout: conformanceTimeout, disconnectTimeout: conformanceTimeout, WeakOrder: &seed,
		})
		if err != nil {
			return nil, errors.Join(err, member.Leave())
		}
		return hosted{p, member}, nil
	}
	return ndtest.Config{Open: open, PrivateMemory: seed/2%2 == 1, ReceiveTimeout: conformanceTimeout, DisconnectTimeout: conformanceTimeout}
}

// TestWeakOrderConforms runs the scenarios of the model.
func TestWeakOrderConforms(t *testing.T) {
	t.Parallel() // with the other runs of the suite
	var only []string
	for _, sc := range ndtest.Scenarios() {
		if !slices.Contains(lenient, sc.ID) {
			only = append(only, sc.ID)
		}
	}
	few := 4
	if raceDetector {
		few = 1
	}
	for seed := range uint64(weakSeeds(few, 100)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // a run sleeps most of the time
			cfg := weakConfig(t, seed)
			cfg.Only = only
			ndtest.Run(t, cfg)
		})
	}
}

// TestWeakOrderStress runs the stress test of the suite, which checks the bytes of each transfer.
func TestWeakOrderStress(t *testing.T) {
	for seed := range uint64(weakSeeds(4, 100)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { ndtest.Stress(t, weakConfig(t, seed), seed, 3) })
	}
}
