package scribble

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// scribbledRules are the fault rules of a scribbled job. None stops a process. One makes results late, as a copy or
// a peer can.
var scribbledRules = []faults.Rule{
	{Operations: []string{"write", "read", "send", "receive"}, Probability: 0.0005, Action: "fail", Status: nd.IOTimeout},
	{Operations: []string{"write", "read", "send"}, Probability: 0.01, Action: "delay", Delay: 300 * time.Microsecond},
	{Operations: []string{"write", "receive"}, Probability: 0.01, Action: "corrupt", Offset: 3},
	{Operations: []string{"bind", "fast-register"}, Probability: 0.01, Action: "fail", Status: nd.InternalError},
	{Operations: []string{"allocate", "connect", "accept"}, Probability: 0.01, Action: "fail", Status: nd.InsufficientResources},
	{Operations: []string{"write", "read"}, Probability: 0.0005, Action: "invalidate", After: 16},
	{Operations: []string{"write", "send"}, Probability: 0.0005, Action: "drop"},
}

// newScribbledArena creates the arena of a job. The job has a fault plan, a weak order or the checker, or none of them.
// The variables tell the ranks.
func newScribbledArena(t *testing.T, r *rand.Rand) (arena *shm.Arena, variables []string) {
	t.Helper()
	config := shm.Config{Ranks: scribbleRanks, Size: 192 << 20}
	mode := r.IntN(5)
	if mode == 0 {
		config.FaultRules = len(scribbledRules)
	}
	arena, err := shm.Create(config)
	if err != nil {
		t.Fatal(err)
	}
	switch mode {
	case 0:
		plan, err := faults.New(r.Uint64(), scribbledRules...)
		if err != nil {
			t.Fatal(err)
		}
		records, err := shm.Slice[faultplan.Record](arena, arena.Info().FaultRules, uint64(len(scribbledRules)))
		if err != nil {
			t.Fatal(err)
		}
		compiled := (*faultplan.Plan)(plan)
		compiled.Store(records)
		variables = []string{softnd.EnvFaults + "=" + faultplan.Digest(compiled.Rules())}
	case 1:
		variables = []string{fmt.Sprintf("%s=%d", softnd.EnvWeakOrder, r.Uint64())}
	case 2:
		variables = []string{softnd.EnvCheck + "=1"}
	}
	return arena, variables
}
