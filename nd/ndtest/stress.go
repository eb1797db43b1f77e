package ndtest

import (
	"testing"
)

// Stress lets two halves keep each other busy over several connections at once, with legal
// requests of all kinds in random order, and compares every result and every byte with what a
// small sequential model says. The two halves make the same plan from seed; steps is the number
// of rounds, each of up to some hundred requests. A failure tells the seed, and the same seed
// gives the same plan again.
//
// The adapters of the two halves may work in different ways, but have to be of one provider.
func Stress(t *testing.T, cfg Config, seed uint64, steps int) {
	t.Helper()
	home := &house{open: cfg.Open}
	t.Cleanup(home.close)
	r := &runner{cfg: cfg, terms: cfg.terms(), home: home}
	t.Cleanup(r.dismiss)
	sc := stressScenario
	sc.active = func(s *side) {
		task := stressTask{Seed: seed, Steps: steps}
		s.tell(task)
		s.stress(task)
	}
	if skipped := r.run(t, sc); skipped != "" {
		t.Skip(skipped)
	}
	if t.Failed() {
		t.Logf("Stress(t, cfg, %d, %d) makes the same plan again", seed, steps)
	}
}

// stressTask is what the passive half has to know.
type stressTask struct {
	Seed  uint64
	Steps int
}

// stressScenario is no row of the table; Serve finds it by its name.
var stressScenario = scenario{id: "stress", title: "random requests", passive: func(s *side) {
	s.stress(hear[stressTask](s))
}}
