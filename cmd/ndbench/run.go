package main

import (
	"context"
	"encoding/json"
	"errors"
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
	if err := o.adapt(t, cmd.Flags()); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	results, err := s.run(ctx, plan{t.Name, o.Options, o.beside}, t)
	if err != nil && !errors.Is(err, errIncomplete) {
		return err
	}
	incomplete := err
	rank := s.world.Job.Rank()
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("%s: end: %w", t.Name, err)
	}
	if rank != 0 && !s.shared {
		return nil
	}
	return errors.Join(o.emit(results, cmd.OutOrStdout()), incomplete)
}

// plan is what the ranks have to agree on.
type plan struct {
	Test    string
	Options measure.Options
	Beside  bool // a program of libfabric runs, too
}

// run runs one test with rank 0's options. It returns the results on rank 0, and on all ranks if they share them.
// The results are valid if the error is errIncomplete, too.
func (s *session) run(ctx context.Context, own plan, t measure.Test) ([]report.Result, error) {
	job := s.world.Job
	if have := job.Size(); t.Ranks != 0 && have != t.Ranks || have < 2 {
		need := max(t.Ranks, 2)
		return nil, fmt.Errorf("%s: wrong number of ranks (asked %[3]d, the job has %[2]d): start it with ndrun -n %[3]d, or without ndrun", t.Name, have, need)
	}
	p, err := s.agree(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	if p.Beside {
		return s.runBeside(ctx, t, p.Options)
	}
	results, err := t.Run(ctx, s.world, p.Options)
	if err != nil || !s.shared {
		return results, err
	}
	return share(ctx, s.world, results)
}

// agree returns rank 0's plan. It returns an error if the ranks want different tests.
func (s *session) agree(ctx context.Context, own plan) (first plan, err error) {
	blob, err := json.Marshal(own)
	if err != nil {
		return own, err
	}
	all, err := s.world.Job.Exchange(ctx, blob)
	if err != nil {
		return own, err
	}
	for rank, b := range all {
		var p plan
		if err := json.Unmarshal(b, &p); err != nil {
			return own, fmt.Errorf("the options of rank %d: %w", rank, err)
		}
		if rank == 0 {
			first = p
		}
		if p.Test != first.Test || p.Options.Executor != first.Options.Executor {
			return own, fmt.Errorf("rank 0 runs %s with executor %s, but rank %d runs %s with %s: give all ranks the same test and options",
				first.Test, first.Options.Executor, rank, p.Test, p.Options.Executor)
		}
	}
	return first, nil
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
