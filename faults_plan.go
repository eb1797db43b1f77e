package softnd

import (
	"errors"
	"fmt"
	"os"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/shm"
)

// WithFaults makes this rank follow a fault plan: see package faults. Ranks of one process may share the
// plan. ndrun --faults does the same for all ranks of a job.
//
// Init and Join fail if plan is nil, or if the job was started with ndrun --faults.
func WithFaults(plan *faults.Plan) Option {
	return func(s *settings) error {
		if plan == nil {
			return errors.New("fault plan is nil: pass a plan of faults.New, or omit the option")
		}
		s.provider.Faults = (*faultplan.Plan)(plan).For
		return nil
	}
}

// loadFaults sets the plan that the launcher has written into the arena, if there is one. The digest in
// the environment tells this process which rules to expect: a peer can write into the arena, but not there.
func (s *settings) loadFaults(arena *shm.Arena) error {
	n, digest := arena.Info().FaultRuleCount, os.Getenv(EnvFaults)
	switch {
	case n == 0:
		return nil
	case s.provider.Faults != nil:
		return fmt.Errorf("both WithFaults and ndrun --faults give a fault plan: remove one of them")
	case digest == "":
		return fmt.Errorf("the job has a fault plan, but %s is not set: let the wrapper of the rank keep the environment", EnvFaults)
	}
	records, err := shm.Slice[faultplan.Record](arena, arena.Info().FaultRules, uint64(n))
	if err != nil {
		return err
	}
	plan, err := faultplan.Load(records, digest)
	if err != nil {
		return fmt.Errorf("fault plan: %w", err)
	}
	s.provider.Faults = plan.For
	return nil
}
