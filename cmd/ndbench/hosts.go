package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/pmi"
	"github.com/softnd/softnd/internal/meet/relayclient"
)

// inJob reports whether this process is a rank of a job that ndbench has not started.
func inJob() bool {
	for _, name := range []string{softnd.EnvArenaFD, bootstrap.EnvRoot, pmi.EnvFD} {
		if _, set := os.LookupEnv(name); set {
			return true
		}
	}
	return false
}

// adapt refuses options that have no meaning for the hosts of the job. Between hosts, ranks wait for events by default: one
// that polls takes a core from the relay.
func (o *options) adapt(t measure.Test, given *pflag.FlagSet) error {
	switch {
	case o.Hosts == 1 && o.beside:
		return errors.New("--beside: all ranks run on one host: use ndbench peers, or start one rank on each of two hosts")
	case o.Hosts == 1:
		return nil
	case o.pin:
		return errors.New("--pin: the ranks run on two hosts, and share the cores with relays: omit the option")
	}
	if err := t.Check(o.Options, [2]bool{}); err != nil {
		return err
	}
	if !given.Changed("events") {
		o.Events = true
		o.Events = t.Check(o.Options, [2]bool{}) == nil
	}
	return nil
}

// runBeside measures a test and a program of libfabric, one repeat of each at a time, so both are measured under the same
// conditions. The error is errIncomplete if only the program failed.
func (s *session) runBeside(ctx context.Context, t measure.Test, o measure.Options) ([]report.Result, error) {
	h := peers.OverHosts{Test: t.Name, Provider: relayclient.Provider(), Address: s.job.Hosts()[1].Address.String(), Iterations: o.Iterations,
		Duration: o.Duration, Repeats: o.Repeats}
	o.Repeats = 1
	var incomplete error
	results, err := peers.RunOverHosts(ctx, s.job, h, func() ([]report.Result, error) { return t.Run(ctx, s.world, o) }, func(err error) {
		fmt.Fprintf(os.Stderr, "ndbench: %v\n", err)
		incomplete = fmt.Errorf("%s: --beside: %w: see the line above", t.Name, errIncomplete)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: --beside: %w", t.Name, err)
	}
	return results, incomplete
}
