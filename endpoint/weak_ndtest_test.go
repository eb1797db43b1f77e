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

// TestWeakOrderConforms runs the scenarios of the model with several seeds.
func TestWeakOrderConforms(t *testing.T) {
	var only []string
	for _, sc := range ndtest.Scenarios() {
		if !slices.Contains(lenient, sc.ID) {
			only = append(only, sc.ID)
		}
	}
	for seed := range uint64(weakSeeds(4, 100)) {
		executor := []Executor{Auto, Target}[seed%2]
		private := seed%4 >= 2
		t.Run(fmt.Sprintf("%d/%v/%v", seed, executor, private), func(t *testing.T) {
			t.Parallel() // a run sleeps most of the time
			arena := newArena(t)
			open := func() (nd.Provider, error) {
				member, err := arena.Join(shm.NoRank)
				if err != nil {
					return nil, err
				}
				p, err := New(member, Options{Executor: executor, ReceiveTimeout: conformanceTimeout, disconnectTimeout: conformanceTimeout, WeakOrder: &seed})
				if err != nil {
					return nil, errors.Join(err, member.Leave())
				}
				return hosted{p, member}, nil
			}
			ndtest.Run(t, ndtest.Config{Open: open, PrivateMemory: private, ReceiveTimeout: conformanceTimeout, DisconnectTimeout: conformanceTimeout, Only: only})
		})
	}
}

// weakSeeds returns the number of seeds of a test: few, or full if SOFTND_STRESS is set.
func weakSeeds(few, full int) int {
	if os.Getenv("SOFTND_STRESS") != "" {
		return full
	}
	return few
}
