package ndtest

import (
	"fmt"
	"os"
	"testing"
)

// Stress lets two halves keep each other busy over several connections at once, with legal
// requests of all kinds in random order, and compares every result and every byte with what a
// small sequential model says. The two halves make the same plan from seed, of so many rounds
// of up to some hundred requests each. The same seed gives the same plan again.
//
// The adapters of the two halves may work in different ways, but have to be of one provider: the
// first provider that cfg opens is that of the active half, the second, without Spawn, that of the
// passive one.
func Stress(t *testing.T, cfg Config, seed uint64, rounds int) {
	t.Helper()
	again := fmt.Sprintf("Stress(t, cfg, %d, %d) makes the same plan again", seed, rounds)
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), again) // t's own log would be lost with a crash
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

// stressTask is what the passive half has to know.
type stressTask struct {
	Seed   uint64
	Rounds int
}

// stressScenario is no row of the table; Serve finds it by its name.
var stressScenario = scenario{id: "stress", title: "random requests", passive: func(s *side) {
	s.stress(hear[stressTask](s))
}}
