package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/bench/suite"
)

// suiteCommand runs the measurements of the suite.
type suiteCommand struct {
	quick, check bool
	from         string
	others       busyness
	output
}

// runLimit ends a job of the suite that hangs.
const runLimit = 2 * time.Minute

// Options of the measurement of UCX.
const (
	ucxDuration = 20 * time.Millisecond
	ucxRepeats  = 3
)

func newSuite() *cobra.Command {
	var s suiteCommand
	cmd := &cobra.Command{
		Use:   "suite",
		Short: "Measure the required figures and compare them with their bars",
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.valid(); err != nil {
				return usagef("suite: %w", err)
			}
			return s.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&s.quick, "quick", false, "fewer and shorter repeats: less than three minutes in all")
	f.BoolVar(&s.check, "check", false, "show each figure next to its bar; the exit status is 1 unless every bar is met")
	f.StringVar(&s.from, "from", "", "with --check, measure nothing and take the figures from a `file` of --json")
	s.output.addFlags(f)
	return cmd
}

func (s *suiteCommand) valid() error {
	if s.from != "" && (!s.check || s.quick) {
		return errors.New("--from: measures nothing: give --check and omit --quick")
	}
	if inJob() {
		return errors.New("ndbench suite runs as a rank of a job: start it without a launcher, and without SOFTND_ROOT")
	}
	return s.output.check()
}

func (s *suiteCommand) run(stdout, stderr io.Writer) error {
	if s.from != "" {
		rep, err := readReport(s.from)
		if err != nil {
			return fmt.Errorf("suite: %w", err)
		}
		return s.decide(rep, stdout)
	}
	results, err := s.measure(stderr)
	out := s.output
	out.quiet = out.quiet || s.check // which shows the figures in a table of its own
	err = errors.Join(err, out.emit(results, stdout))
	if s.check {
		err = errors.Join(err, s.decide(&report.Report{Results: results}, stdout))
	}
	return err
}

func readReport(path string) (*report.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := report.ReadJSON(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// measure measures the figures of the suite, and reports its progress.
func (s *suiteCommand) measure(stderr io.Writer) ([]report.Result, error) {
	return suite.Measure(s.quick, func(round int, r suite.Run) ([]report.Result, error) {
		s.others.check()
		start := time.Now()
		results, err := runJob(r, stderr)
		if !s.quiet {
			fmt.Fprintf(stderr, "round %d  %-17s %2d ranks  %5.1f s\n", round, r.Test, r.Ranks, time.Since(start).Seconds())
		}
		return results, err
	}, func() []report.Result { return s.besideUCX(stderr) })
}

// besideUCX measures UCX for the bars of small requests, if it is installed. Its figures are only shown, so a failure
// is only reported.
func (s *suiteCommand) besideUCX(stderr io.Writer) []report.Result {
	o := peers.Options{Tests: []string{"write_lat", "posted", "send_lat", "msg_rate"}, Sizes: []int{8}, Duration: ucxDuration, Repeats: ucxRepeats, Pinned: true}
	ucx := slices.DeleteFunc(peers.All(), func(p peers.Peer) bool { return p.Name != suite.UCX || p.Missing() != "" })
	if len(ucx) == 0 {
		return nil
	}
	start := time.Now()
	failed := func(err error) { fmt.Fprintf(stderr, "ndbench: suite: %v\n", err) }
	found, err := besidePeers(context.Background(), ucx, o, languageOptions{langs: []string{"go"}}, failed)
	if err != nil {
		failed(err)
	}
	found = slices.DeleteFunc(found, func(r report.Result) bool { return r.Provider != suite.UCX })
	if !s.quiet {
		fmt.Fprintf(stderr, "UCX, %d repeats of each figure      %5.1f s\n", o.Repeats, time.Since(start).Seconds())
	}
	return found
}

// runJob runs this program again, as a job of its own. Its ranks start with fresh memory, and use the executor of the
// run.
func runJob(r suite.Run, stderr io.Writer) ([]report.Result, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, arguments(r)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stdout, cmd.Stderr = &out, stderr
	if err := onCores(r.Cores, cmd.Start); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	rep, err := report.ReadJSON(&out)
	if err != nil {
		return nil, err
	}
	return rep.Results, nil
}

// arguments returns the command line of a run.
func arguments(r suite.Run) []string {
	o, pin, memory := r.Options, "--no-pin", "arena"
	if o.Pinned {
		pin = "--pin"
	}
	if o.Private {
		memory = "private"
	}
	args := []string{r.Test, "--json=-", pin, "--memory=" + memory, "--executor=" + o.Executor,
		"--ranks=" + strconv.Itoa(r.Ranks), "--pairs=" + strconv.Itoa(o.Pairs), "--repeats=" + strconv.Itoa(o.Repeats),
		"--warmup=" + strconv.Itoa(o.WarmUp), "--iterations=" + strconv.Itoa(o.Iterations), "--duration=" + o.Duration.String()}
	if len(o.Sizes) > 0 {
		args = append(args, "--size="+strings.Trim(strings.Join(strings.Fields(fmt.Sprint(o.Sizes)), ","), "[]"))
	}
	return args
}

// decide prints the result of each bar.
func (s *suiteCommand) decide(rep *report.Report, stdout io.Writer) error {
	if s.json == "-" || s.csv == "-" {
		stdout = io.Discard
	}
	err := suite.Check(stdout, rep)
	_, writing := io.WriteString(stdout, s.others.String())
	return errors.Join(err, writing)
}
