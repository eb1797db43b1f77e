package endpoint

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

var stressSeed = flag.Uint64("stress.seed", 0, "seed of TestConformanceStress; 0 = another one each time")

// TestConformanceStress runs the suite's stress test with every executor at
// either side.
func TestConformanceStress(t *testing.T) {
	executors := []string{"auto", "target"}
	for i, here := range executors {
		for k, there := range executors {
			for _, processes := range []bool{false, true} {
				private := (i+k)%2 == 1 != processes
				name := fmt.Sprintf("%s+%s/%s/%s", here, there, choose(private, "private", "arena"), choose(processes, "processes", "goroutines"))
				t.Run(name, func(t *testing.T) {
					if processes {
						t.Parallel()
					}
					rounds := scale(10, 30)
					if testing.Short() {
						rounds = 5
					}
					arena := newArena(t)
					cfg := ndtest.Config{Open: openersIn(arena, here, there), PrivateMemory: private}
					if processes {
						cfg.Open = openersIn(arena, here)
						cfg.Spawn = func() (io.ReadWriteCloser, error) { return startConformance(t, arena, there, nil) }
					}
					seed := *stressSeed
					if seed == 0 {
						seed = rand.Uint64()
					}
					ndtest.Stress(t, cfg, seed, rounds)
				})
			}
		}
	}
}

// openersIn returns what opens providers of the kinds alternately: Stress opens that of the active half
// first.
func openersIn(arena *shm.Arena, kinds ...string) func() (nd.Provider, error) {
	opened := 0
	return func() (nd.Provider, error) {
		kind := kinds[opened%len(kinds)]
		opened++
		return openerIn(arena, kind, nil)()
	}
}
