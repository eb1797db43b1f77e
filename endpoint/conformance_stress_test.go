package endpoint

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

var stressSeed = flag.Uint64("stress.seed", 0, "seed of TestConformanceStress; 0 = another one each time")

// TestConformanceStress runs the suite's stress test with every executor and memory at either side, within a process and across two.
func TestConformanceStress(t *testing.T) {
	kinds := []string{"auto", "target", "auto" + privately, "target" + privately}
	for _, here := range kinds {
		for _, there := range kinds {
			for _, processes := range []bool{false, true} {
				if raceDetector && processes && here != there {
					continue // the race detector sees nothing of another process, and slows it down
				}
				t.Run(fmt.Sprintf("%s+%s/%s", here, there, choose(processes, "processes", "goroutines")), func(t *testing.T) {
					if processes {
						t.Parallel()
					}
					rounds := scale.Of(5, 15)
					if testing.Short() {
						rounds = 2
					}
					arena := newArena(t)
					cfg := ndtest.Config{Open: openersIn(arena, here, there)}
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
		return openerIn(arena, kind, nil, longTimeout)()
	}
}

// privateProvider is a provider whose adapters allocate memory of the process instead of the arena.
type privateProvider struct{ nd.Provider }

func (p privateProvider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	a, err := p.Provider.OpenAdapter(ctx, id)
	return privateAdapter{a}, err
}

type privateAdapter struct{ nd.Adapter }

func (a privateAdapter) Allocate(ctx context.Context, size int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	return a.Register(ctx, make([]byte, size), flags)
}
