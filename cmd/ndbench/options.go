package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/measure"
)

// options are those of the command line: of the measurement, of how to start, and of the report.
type options struct {
	measure.Options
	sizes          []string
	allSizes       bool
	executor       string
	memory         string
	pin, noPin     bool
	ranks          int
	server, client string
	beside         bool
	languageOptions
	output
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringSliceVarP(&o.sizes, "size", "s", nil, "bytes of an operation: 8, 64K, 1M, or a list")
	f.BoolVarP(&o.allSizes, "all-sizes", "a", false, "all powers of two from 1 to 4M bytes")
	f.IntVarP(&o.Iterations, "iterations", "n", 0, "operations of a repeat")
	f.DurationVarP(&o.Duration, "duration", "D", 0, fmt.Sprintf("length of a repeat, instead of iterations (default %v)", measure.Defaults().Duration))
	f.IntVarP(&o.WarmUp, "warmup", "w", 1000, "operations before the first repeat, for at most the time of a repeat")
	f.IntVarP(&o.Repeats, "repeats", "r", measure.Defaults().Repeats, "repeats; the figure is their median")
	f.IntVarP(&o.Depth, "depth", "t", 0, "operations outstanding, on all queue pairs together (default by test and size)")
	f.IntVarP(&o.Pairs, "pairs", "q", 1, "queue pairs on one completion queue, used in turn")
	f.BoolVarP(&o.Bidirectional, "bidirectional", "b", false, "both directions at once; the figure is the sum")
	f.BoolVarP(&o.Events, "events", "e", false, "wait for events instead of polling (default between hosts, if the test supports it)")
	f.BoolVarP(&o.Inline, "inline", "I", false, "post Sends and Writes inline; for small sizes only")
	f.BoolVarP(&o.Validate, "validate", "c", false, "check the data that arrives, before the timed loops")
	f.StringVarP(&o.executor, "executor", "x", "", "which process moves the bytes: auto or target (default $"+softnd.EnvExec+" or auto)")
	f.StringVarP(&o.memory, "memory", "m", "arena", "arena, which both ranks map, or private, which only its owner maps")
	f.BoolVar(&o.pin, "pin", false, "bind each rank to a core of its own (default if there are enough; not between hosts)")
	f.BoolVar(&o.noPin, "no-pin", false, "let ranks move between cores")
	f.IntVarP(&o.ranks, "ranks", "N", 0, "number of ranks, for tests without a fixed number, if not started by ndrun (default 2)")
	f.StringVar(&o.server, "server", "", "become rank 0 of the job with this `name`, and wait for the client")
	f.StringVar(&o.client, "client", "", "become rank 1 of the job with this `name`; the server's options apply")
	f.BoolVar(&o.beside, "beside", false, "between hosts: measure fi_pingpong or fi_rma_bw of libfabric, too, over the same link")
	o.languageOptions.addFlags(f, "go", "")
	o.output.addFlags(f)
}

// check returns an error if the options are invalid, and fills in those of the measurement.
func (o *options) check() error {
	if err := o.checkNumbers(); err != nil {
		return err
	}
	if err := o.chooseSizes(); err != nil {
		return err
	}
	if o.executor == "" {
		o.executor = os.Getenv(softnd.EnvExec)
	}
	switch o.executor {
	case "":
		o.executor = "auto"
	case "auto", "target":
	default:
		return fmt.Errorf("unknown executor %q: want auto or target", o.executor)
	}
	o.Executor = o.executor
	switch o.memory {
	case "arena", "private":
		o.Private = o.memory == "private"
	default:
		return fmt.Errorf("--memory %s: unknown kind: want arena or private", o.memory)
	}
	switch {
	case o.pin && o.noPin:
		return fmt.Errorf("--pin and --no-pin exclude each other: omit one")
	case o.server != "" && o.client != "":
		return fmt.Errorf("--server and --client exclude each other: start a process for each")
	case o.Iterations > 0 && o.Duration > 0:
		return fmt.Errorf("--iterations and --duration exclude each other: omit one")
	}
	if err := o.languageOptions.check(); err != nil {
		return err
	}
	return o.output.check()
}

func (o *options) checkNumbers() error {
	for _, n := range []struct {
		name         string
		value, least int
		most         int
	}{
		{"--iterations", o.Iterations, 0, 1 << 40},
		{"--warmup", o.WarmUp, 0, 1 << 40},
		{"--repeats", o.Repeats, 1, 1 << 20},
		{"--depth", o.Depth, 0, measure.MaxDepth},
		{"--pairs", o.Pairs, 1, 1024},
		{"--ranks", o.ranks, 0, 1024},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%s %d: out of range: want %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	if o.Duration < 0 || o.Duration > time.Hour {
		return fmt.Errorf("--duration %v: out of range: want 0 to 1h", o.Duration)
	}
	return nil
}

func (o *options) chooseSizes() error {
	if o.allSizes && len(o.sizes) > 0 {
		return fmt.Errorf("--size and --all-sizes exclude each other: omit one")
	}
	if o.allSizes || o.plot != "" && len(o.sizes) == 0 { // a plot is one by size
		for size := 1; size <= 4<<20; size *= 2 {
			o.Sizes = append(o.Sizes, size)
		}
		return nil
	}
	for _, text := range o.sizes {
		size, err := parseSize(text)
		if err != nil {
			return fmt.Errorf("--size %s: %w", text, err)
		}
		if !slices.Contains(o.Sizes, size) {
			o.Sizes = append(o.Sizes, size)
		}
	}
	if o.plot != "" && len(o.Sizes) == 1 {
		return fmt.Errorf("--plot %s: only one size: give two or more, or omit --size", o.plot)
	}
	return nil
}

// pinned reports whether the ranks of a job of this size are pinned.
func (o *options) pinned(ranks int) bool {
	return o.pin || !o.noPin && runtime.NumCPU() >= ranks
}
