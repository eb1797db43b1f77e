package ndtest

import (
	"fmt"
	"os"
	"testing"
)

// Stress makes random legal requests of all kinds on several connections at once. It compares every
// result and every byte of memory with a small sequential model. Both sides derive the same plan from
// seed. The plan has the given number of rounds, each with up to a few hundred requests. The same seed
// produces the same plan, but not the same timing. Stress prints the seed before the first request.
// Atomics and immediate data are part of the plan if both adapters have [nd.AtomicsSupported] or
// [nd.ImmediateSupported]. Some numbers are then changed by all connections and by their owner at once.
//
// Stress calls cfg.Open for the active side first. If cfg.Spawn is nil, it calls cfg.Open again for the
// passive side. The two providers may be configured differently, but must be able to connect to each
// other.
func Stress(t *testing.T, cfg Config, seed uint64, rounds int) {
	t.Helper()
	again := fmt.Sprintf("Stress(t, cfg, %d, %d) repeats this plan", seed, rounds)
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), again) // t.Log would be lost if the program crashes
	r := newRunner(t, cfg)
	for _, part := range []role{active, passive} {
		if part == passive && cfg.Spawn != nil {
			continue
		}
		if _, err := r.providers.forRole(part); err != nil {
			t.Fatal(err)
		}
	}
	sc := stressScenario
	sc.active = func(s *side) {
		task := stressTask{Seed: seed, Rounds: rounds}
		s.tell(task)
		s.stress(task)
	}
	if skipped := r.run(t, sc); skipped != "" {
		t.Skip(skipped)
	}
	if t.Failed() {
		t.Log(again)
	}
}

// stressTask is the part of the plan's parameters that the passive side is told.
type stressTask struct {
	Seed   uint64
	Rounds int
}

// stressScenario is the passive side of Stress. Serve finds it by its id.
var stressScenario = scenario{id: "stress", title: "random requests", passive: func(s *side) {
	s.stress(hear[stressTask](s))
}}
