package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// runTest runs one test in a job of its own, and reports.
func (o *options) runTest(cmd *cobra.Command, t measure.Test) error {
	ctx := context.Background() // a signal ends the process, and that the others
	ranks := t.Ranks
	if ranks == 0 {
		ranks = max(o.ranks, 2)
	}
	if o.ranks != 0 && o.ranks != ranks {
		return usagef("%s: --ranks %d: the test has %d ranks: omit the option", t.Name, o.ranks, ranks)
	}
	switch {
	case len(o.langs) > 1:
		return o.measureInTurn(ctx, t, cmd.OutOrStdout())
	case o.langs[0] != "go":
		results, err := o.runHelped(ctx, t, o.langs[0])
		if err != nil {
			return err
		}
		return o.emit(results, cmd.OutOrStdout())
	}
	s, err := o.start(ctx, ranks)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	results, err := s.run(ctx, t, o.Options)
	if err != nil {
		return err
	}
	rank := s.world.Job.Rank()
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("%s: end: %w", t.Name, err)
	}
	if rank != 0 && !s.shared {
		return nil
	}
	return o.emit(results, cmd.OutOrStdout())
}

// plan is what the ranks have to agree on.
type plan struct {
	Test    string
	Options measure.Options
}

// run runs one test with rank 0's options. It returns the results on rank 0, and on all ranks if they share them.
func (s *session) run(ctx context.Context, t measure.Test, o measure.Options) ([]report.Result, error) {
	job := s.world.Job
	if have := job.Size(); t.Ranks != 0 && have != t.Ranks || have < 2 {
		need := max(t.Ranks, 2)
		return nil, fmt.Errorf("%s: wrong number of ranks (asked %[3]d, the job has %[2]d): start it with ndrun -n %[3]d, or without ndrun", t.Name, have, need)
	}
	o, err := s.agree(ctx, plan{t.Name, o})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	results, err := t.Run(ctx, s.world, o)
	if err != nil || !s.shared {
		return results, err
	}
	return share(ctx, s.world, results)
}

// agree returns rank 0's options. It returns an error if the ranks want different tests.
func (s *session) agree(ctx context.Context, own plan) (measure.Options, error) {
	blob, err := json.Marshal(own)
	if err != nil {
		return own.Options, err
	}
	all, err := s.world.Job.Exchange(ctx, blob)
	if err != nil {
		return own.Options, err
	}
	var first plan
	for rank, b := range all {
		var p plan
		if err := json.Unmarshal(b, &p); err != nil {
			return own.Options, fmt.Errorf("the options of rank %d: %w", rank, err)
		}
		if rank == 0 {
			first = p
		}
		if p.Test != first.Test || p.Options.Executor != first.Options.Executor {
			return own.Options, fmt.Errorf("rank 0 runs %s with executor %s, but rank %d runs %s with %s: give all ranks the same test and options",
				first.Test, first.Options.Executor, rank, p.Test, p.Options.Executor)
		}
	}
	return first.Options, nil
}

// share gives the results of rank 0 to all ranks.
func share(ctx context.Context, w *measure.World, results []report.Result) ([]report.Result, error) {
	blob, err := json.Marshal(results)
	if err != nil {
		return nil, err
	}
	all, err := w.Job.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	results = nil
	return results, json.Unmarshal(all[0], &results)
}
