package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
)

// contest is one run of "ndbench peers".
type contest struct {
	ctx      context.Context
	o        *peersOptions
	tell     func(error) // of what is missing
	failures int
}

// test measures one test with all peers that are installed.
func (c *contest) test(name string) []report.Result {
	ours := map[peers.Figure][]report.Result{} // of all rounds
	var theirs []report.Result
	for _, p := range c.o.chosen {
		if p.Missing() == "" && c.ctx.Err() == nil {
			theirs = append(theirs, c.round(p, name, ours)...)
		}
	}
	var results []report.Result
	for _, f := range c.o.figures {
		if f.Test != name {
			continue
		}
		if _, tried := ours[f]; !tried { // no peer has it
			ours[f] = c.softnd(f)
		}
		results = append(results, ours[f]...)
	}
	return append(results, theirs...)
}

// round measures one test with one peer, and softnd directly before each figure.
func (c *contest) round(p peers.Peer, name string, ours map[peers.Figure][]report.Result) []report.Result {
	beside := map[peers.Figure]string{}
	found, err := peers.Run(c.ctx, p, peers.Options{
		Tests: []string{name}, Sizes: c.o.Sizes, Duration: c.o.Duration, Repeats: c.o.Repeats, Pinned: c.o.Pinned,
		Before: func(f peers.Figure) {
			one := c.softnd(f)
			ours[f] = pool(ours[f], one)
			for _, r := range (&report.Report{Results: one}).Best().Results {
				beside[f] = "; softnd directly before: " + report.Figure(r.Value, r.Unit)
			}
		},
		Limit: c.limit,
	})
	c.note(err)
	for i := range found {
		r := &found[i]
		r.Note += beside[peers.Figure{Test: r.Test, Size: r.Size, Ranks: r.Ranks}]
	}
	return found
}

// note counts and tells what has failed. An interruption is no failure.
func (c *contest) note(err error) {
	if err == nil || c.ctx.Err() != nil {
		return
	}
	c.failures++
	c.tell(err)
}

// softnd measures softnd. It has nothing if that fails.
func (c *contest) softnd(f peers.Figure) []report.Result {
	args := []string{"--duration", c.o.Duration.String(), "--repeats", strconv.Itoa(c.o.Repeats)}
	if t, _ := testNamed(f.Test); t.Ranks == 0 {
		args = append(args, "--ranks", strconv.Itoa(f.Ranks))
	}
	found, err := c.alone(f, args...)
	if err != nil {
		c.note(fmt.Errorf("softnd: %w", err))
	}
	return found
}

// limit is the one that a figure of softnd has, from a run that is too short for
// the figure itself. Tests of many ranks have none.
func (c *contest) limit(test string, size int) (*report.Limit, error) {
	t, _ := testNamed(test)
	if t.Ranks == 0 {
		return nil, nil
	}
	found, err := c.alone(peers.Figure{Test: test, Size: size, Ranks: t.Ranks}, "--iterations", "1", "--warmup", "0", "--repeats", "5", "--depth", "1")
	if err != nil {
		return nil, fmt.Errorf("limit of the machine: %w", err)
	}
	return found[0].Limit, nil
}

// alone runs this program with one test, as a user would: between the figures
// there is no process left that could disturb those of the peers.
func (c *contest) alone(f peers.Figure, more ...string) ([]report.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{f.Test, "--json", "-", "--no-pin"}, more...)
	if c.o.Pinned {
		args[3] = "--pin"
	}
	if f.Size > 0 {
		args = append(args, "--size", strconv.Itoa(f.Size))
	}
	cmd := exec.CommandContext(c.ctx, self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second // its ranks die with it, and close its output
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", f, err, strings.TrimSpace(errOut.String()))
	}
	r, err := report.ReadJSON(&out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	return r.Results, nil
}

// pool adds the repeats of another round to those of the same settings.
func pool(all, round []report.Result) []report.Result {
	for _, r := range round {
		r.Distribution = nil // that of one round would stand for all
		merged := false
		for i := range all {
			if sameSettings(all[i].Settings, r.Settings) {
				merge(&all[i], r)
				merged = true
			}
		}
		if !merged {
			all = append(all, r)
		}
	}
	return all
}

// sameSettings leaves the iterations aside, which follow from the duration.
func sameSettings(a, b report.Settings) bool {
	a.Iterations, b.Iterations = 0, 0
	return a == b
}

func merge(into *report.Result, r report.Result) {
	limits := append(limitsOf(into), limitsOf(&r)...)
	into.Iterations = max(into.Iterations, r.Iterations)
	into.Repeats = append(into.Repeats, r.Repeats...)
	into.Value = measure.Median(into.Repeats)
	into.Low, into.High = measure.Confidence(into.Repeats)
	if into.Limit == nil || r.Limit == nil {
		into.Limit = nil
		return
	}
	l := *into.Limit
	l.Ratios = append(l.Ratios[:len(l.Ratios):len(l.Ratios)], r.Limit.Ratios...)
	l.Value, l.Ratio = measure.Median(limits), measure.Median(l.Ratios)
	into.Limit = &l
}

// limitsOf works out what the machine did next to each repeat.
func limitsOf(r *report.Result) []float64 {
	if r.Limit == nil {
		return nil
	}
	var limits []float64
	for i, ratio := range r.Limit.Ratios {
		limits = append(limits, r.Repeats[i]/ratio)
	}
	return limits
}
