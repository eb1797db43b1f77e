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

	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
)

// contest measures softnd and peers, a repeat of each in turn.
type contest struct {
	ctx      context.Context
	repeats  int
	duration time.Duration
	pinned   bool
	runners  []*peers.Runner
	tell     func(error) // reports a missing program
	failures int
}

// open prepares the peers that are installed.
func (c *contest) open(chosen []peers.Peer, o peers.Options) {
	for _, p := range chosen {
		if p.Missing() != "" || c.ctx.Err() != nil {
			continue
		}
		r, err := peers.Open(c.ctx, p, o)
		if err != nil {
			c.note(err)
			continue
		}
		c.runners = append(c.runners, r)
	}
}

func (c *contest) close() {
	for _, r := range c.runners {
		r.Close()
	}
}

// figure measures one figure in rounds: softnd, then each peer. Softnd makes one
// more repeat at the end. So changes of the machine affect all providers alike,
// and the limits that softnd's repeats are compared with lie around the repeats
// of the peers.
func (c *contest) figure(f peers.Figure) []report.Result {
	var results []report.Result
	var limits []*report.Limit
	var having []*peers.Runner
	for _, r := range c.runners {
		if r.Has(f) {
			having = append(having, r)
		}
	}
	for round := range c.repeats + 1 {
		ours := c.softnd(f)
		results = report.Pool(results, ours)
		if len(ours) > 0 {
			limits = append(limits, ours[0].Limit)
		}
		for i := range having {
			if round < c.repeats {
				having[(i+round)%len(having)].Repeat(c.ctx, f) // none of them is always the first
			}
		}
	}
	limit := around(limits, c.repeats+1)
	for _, r := range having {
		one, err := r.Result(f, limit)
		c.note(err)
		if one != nil {
			results = append(results, *one)
		}
	}
	return results
}

// around is the limit in each round, nil if a round lacks it.
func around(limits []*report.Limit, rounds int) *peers.Around {
	if len(limits) != rounds {
		return nil
	}
	a := &peers.Around{}
	for _, l := range limits {
		if l == nil {
			return nil
		}
		a.Name, a.Unit, a.Values = l.Name, l.Unit, append(a.Values, l.Value)
	}
	return a
}

// note counts and reports a failure. An interruption is no failure.
func (c *contest) note(err error) {
	if err == nil || c.ctx.Err() != nil {
		return
	}
	c.failures++
	c.tell(err)
}

// softnd makes one repeat of softnd. It has nothing if that fails.
func (c *contest) softnd(f peers.Figure) []report.Result {
	args := []string{"--duration", c.duration.String(), "--repeats", "1"}
	if t, _ := testNamed(f.Test); t.Ranks == 0 {
		args = append(args, "--ranks", strconv.Itoa(f.Ranks))
	}
	found, err := c.alone(f, args...)
	if err != nil {
		c.note(fmt.Errorf("softnd: %w", err))
	}
	return found
}

// alone runs this program with one test, as a user would: between the figures
// there is no process left that could disturb those of the peers.
func (c *contest) alone(f peers.Figure, more ...string) ([]report.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{f.Test, "--json", "-", "--no-pin"}, more...)
	if c.pinned {
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
