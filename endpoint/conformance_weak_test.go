package endpoint

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd/ndtest"
)

// lenient are the scenarios that need more than the model promises. A weak order takes it away.
var lenient = []string{
	"C058",                 // more scatter/gather entries than the program has asked for
	"C111",                 // more results in a completion queue than its depth
	"C119", "C120", "C121", // nd.InOrderDMASupported
}

// fewer returns how many of n seeds a test has that takes seconds with the race detector.
func fewer(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// weakConfig returns the configuration of the suite for a seed. suffix is a part of the kind of the providers.
func weakConfig(t *testing.T, seed uint64, processes bool, suffix string) ndtest.Config {
	arena := newArena(t)
	kind := [...]string{"auto", "target"}[seed%2] + suffix
	cfg := configIn(arena, kind, &seed)
	cfg.PrivateMemory = seed/2%2 == 1
	if processes {
		cfg.Spawn = func() (io.ReadWriteCloser, error) { return startConformance(t, arena, kind, &seed) }
	}
	return cfg
}

// onWeakSeeds runs a test with seeds, in one process and between two: few seeds, which differ, or the same 100 with SOFTND_STRESS=1.
func onWeakSeeds(t *testing.T, few int, test func(t *testing.T, seed uint64, processes bool)) {
	if raceDetector {
		few = 1
	}
	first, n := uint64(0), uint64(scale.Of(few, 100))
	for _, processes := range []bool{false, true} {
		for seed := first; seed < first+n; seed++ { // not grouped, so that parallel runs of both kinds overlap
			t.Run(fmt.Sprintf("%s/%d", choose(processes, "processes", "goroutines"), seed), func(t *testing.T) { test(t, seed, processes) })
		}
		if n < 100 {
			first = 4 - n // the four combinations of executor and memory are those of seeds 0 to 3, the first and the last differ in both
		}
	}
}

// TestWeakOrderConforms runs the scenarios of the model.
func TestWeakOrderConforms(t *testing.T) {
	t.Parallel() // with the other runs of the suite

	var parts [2][]string // side by side, since a run waits for half a minute: delays of a responder last for rounds of its engine
	n := 0
	for _, sc := range ndtest.Scenarios() {
		if !slices.Contains(lenient, sc.ID) {
			parts[n%len(parts)] = append(parts[n%len(parts)], sc.ID)
			n++
		}
	}
	few := 1
	if scale.WholeSuite() {
		few = 2
	}
	onWeakSeeds(t, few, func(t *testing.T, seed uint64, processes bool) {
		t.Parallel() // a run sleeps most of the time
		for i, only := range parts {
			t.Run(fmt.Sprintf("part %d", i+1), func(t *testing.T) {
				t.Parallel()
				cfg := weakConfig(t, seed, processes, "")
				cfg.Only = only
				ndtest.Run(t, cfg)
			})
		}
	})
}

// TestWeakOrderStress runs the stress test of the suite, which checks the bytes of each transfer.
func TestWeakOrderStress(t *testing.T) {
	t.Parallel()
	onWeakSeeds(t, 2, func(t *testing.T, seed uint64, processes bool) {
		ndtest.Stress(t, weakConfig(t, seed, processes, ""), seed, 3)
	})
}
