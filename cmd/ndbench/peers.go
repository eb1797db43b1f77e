package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
)

const peersHelp = `Compare softnd with other transports between processes of this host: UCX,
libfabric, Open MPI and MPICH, as far as they are installed.

Sizes, pinning, repeats and their length are the same for all. A figure is
measured in rounds. In each round, softnd makes one repeat, and then each peer
makes one, so all are measured under the same conditions. Each repeat is compared
with the limit of the machine before and after it. A star marks the best of a row
if its interval does not overlap the others.

--lang selects the languages of softnd's ranks. Each has a column of its own. The
default is Go, and C if softnd_perf, the program of ranks in C, is found.

The exit status is 0 if all went well; 1 if not; 2 if the command line is wrong;
3 if --compare found a change beyond the noise; 4 if a figure is missing because
a peer or softnd failed, or because a peer that --only names is not installed.
After 3 and 4 the report is complete apart from these figures. Without --only, a
peer that is not installed is no failure.`

// peersOptions are the options of "ndbench peers". It has only a few of the embedded ones.
type peersOptions struct {
	options
	tests, only []string
	quick       bool
	chosen      []peers.Peer
	noPerf      error // why ranks in C are left out
}

func newPeers() *cobra.Command {
	o := &peersOptions{options: options{memory: "arena"}}
	o.Pairs = 1
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Compare softnd with other transports: UCX, libfabric, Open MPI, MPICH",
		Long:  peersHelp,
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.quick {
				o.hurry(cmd.Flags())
			}
			if err := o.prepare(); err != nil {
				return usagef("peers: %w", err)
			}
			return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&o.tests, "tests", nil, "some of "+strings.Join(peerTests(), ", ")+" (default all)")
	f.StringSliceVar(&o.only, "only", nil, "some of "+strings.Join(peerNames(), ", ")+" (default all that are installed)")
	f.StringSliceVarP(&o.sizes, "size", "s", nil, "bytes of an operation: 8, 64K, 1M, or a list (default 8,64K,1M)")
	f.BoolVarP(&o.allSizes, "all-sizes", "a", false, "all powers of two from 1 to 4M bytes")
	f.DurationVarP(&o.Duration, "duration", "D", measure.Defaults().Duration, "length of a repeat")
	f.IntVarP(&o.Repeats, "repeats", "r", measure.Defaults().Repeats, "repeats; the figure is their median")
	f.BoolVar(&o.quick, "quick", false, fmt.Sprintf("short run: defaults --duration %v --repeats %d --size 8,64K", quickDuration, quickRepeats))
	f.BoolVar(&o.pin, "pin", false, "bind each process to a core of its own (default if there are enough)")
	f.BoolVar(&o.noPin, "no-pin", false, "let processes move between cores")
	o.languageOptions.addFlags(f, "", " (default go, and c if its program is found)")
	o.output.addFlags(f)
	return cmd
}

const (
	quickDuration = 20 * time.Millisecond
	quickRepeats  = 3
)

// peerTests returns the tests of both softnd and a peer.
func peerTests() []string {
	all, _ := peers.Figures(peers.Options{})
	var names []string
	for _, f := range all {
		if _, ours := testNamed(f.Test); ours && !slices.Contains(names, f.Test) {
			names = append(names, f.Test)
		}
	}
	return names
}

func testNamed(name string) (measure.Test, bool) {
	all := measure.Tests()
	i := slices.IndexFunc(all, func(t measure.Test) bool { return t.Name == name })
	if i < 0 {
		return measure.Test{}, false
	}
	return all[i], true
}

func peerNames() []string {
	var names []string
	for _, p := range peers.All() {
		names = append(names, p.Name)
	}
	return names
}

// hurry changes the defaults of options that were not given.
func (o *peersOptions) hurry(given *pflag.FlagSet) {
	if !given.Changed("duration") {
		o.Duration = quickDuration
	}
	if !given.Changed("repeats") {
		o.Repeats = quickRepeats
	}
	if len(o.sizes) == 0 && !o.allSizes && o.plot == "" {
		o.sizes = []string{"8", "64K"}
	}
}

// prepare finds errors before the measurement.
func (o *peersOptions) prepare() error {
	if o.lang == "" {
		o.lang = "go"
		if _, o.noPerf = findPerf(o.perf); o.noPerf == nil {
			o.lang = "go,c"
		}
	}
	if err := o.check(); err != nil {
		return err
	}
	if inJob() {
		return errors.New("ndbench peers runs as a rank of a job: start it without a launcher, and without SOFTND_ROOT")
	}
	if o.Duration == 0 {
		return errors.New("--duration 0s: out of range: want 1ms or more")
	}
	if err := unknown("--tests", o.tests, peerTests()); err != nil {
		return err
	}
	if err := unknown("--only", o.only, peerNames()); err != nil {
		return err
	}
	for _, p := range peers.All() {
		if len(o.only) == 0 || slices.Contains(o.only, p.Name) {
			o.chosen = append(o.chosen, p)
		}
	}
	if len(o.tests) == 0 {
		o.tests = peerTests()
	}
	o.Pinned = o.pinned(2)
	o.table = o.writeTable
	figures, err := peers.Figures(o.measured())
	if err != nil || o.plot == "" {
		return err
	}
	largest := slices.Max(o.Sizes)
	if !slices.ContainsFunc(figures, func(f peers.Figure) bool { return f.Size == largest }) {
		return fmt.Errorf("--plot %s: no test with sizes in %s: add one, such as write_lat or write_bw", o.plot, strings.Join(o.tests, ", "))
	}
	return nil
}

// measured returns the options of the measurement.
func (o *peersOptions) measured() peers.Options {
	return peers.Options{Tests: o.tests, Sizes: o.Sizes, Duration: o.Duration, Repeats: o.Repeats, Pinned: o.Pinned}
}

func unknown(option string, given, known []string) error {
	for _, name := range given {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown value %q: want some of %s", option, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// run measures one figure after the other, and writes the report.
func (o *peersOptions) run(stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missing := 0
	results, err := besidePeers(ctx, o.chosen, o.measured(), o.languageOptions, func(err error) {
		missing++
		fmt.Fprintf(stderr, "ndbench: %v\n", err)
	})
	if ctx.Err() != nil {
		return errors.New("peers: interrupted: no report is written")
	}
	if err != nil {
		return err
	}
	if err := o.emit(results, stdout); err != nil {
		return err
	}
	for _, p := range o.chosen {
		if p.Missing() != "" && len(o.only) > 0 {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("peers: %w: see the lines above", errIncomplete)
	}
	return nil
}

// writeTable writes the table, and below it the programs that are not installed.
func (o *peersOptions) writeTable(r *report.Report, w io.Writer) error {
	if err := r.WriteProviders(w); err != nil {
		return err
	}
	var lines string
	if o.noPerf != nil {
		lines = fmt.Sprintf("  %-10s %s\n", "ranks in C", perfHelp)
	}
	for _, p := range o.chosen {
		if packages := p.Missing(); packages != "" {
			lines += fmt.Sprintf("  %-10s apt-get install %s\n", p.Title, packages)
		}
	}
	if lines != "" {
		lines = "\nnot installed:\n" + lines
	}
	_, err := io.WriteString(w, lines)
	return err
}

// curves returns the report with one line for each provider, whatever else its figures differ in.
func curves(r *report.Report) *report.Report {
	r = r.Best()
	for i := range r.Results {
		s := &r.Results[i].Settings
		*s = report.Settings{Size: s.Size, Ranks: s.Ranks, Pinned: s.Pinned}
	}
	return r
}
