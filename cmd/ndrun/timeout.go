package main

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/launcher"
)

// timedOut returns the message about the expired --timeout and the ranks that still run.
func (p *plan) timedOut(r *launcher.Report) string {
	running, still := runningRanks(r), "all ranks still run"
	isStarted := func(r launcher.Result) bool { return r.PID != 0 }
	isUnstarted := func(r launcher.Result) bool { return r.PID == 0 }
	switch {
	case !slices.ContainsFunc(r.Ranks, isStarted):
		still = "no rank has been started"
	case len(running) == 0 && slices.ContainsFunc(r.Ranks, isUnstarted):
		still = "no rank runs, and some have not been started"
	case len(running) == 0:
		still = "all ranks have ended"
	case len(running) == 1 && len(p.ranks) > 1:
		still = fmt.Sprintf("of %d ranks, only %d still runs", len(p.ranks), running[0])
	case len(running) < len(p.ranks):
		still = fmt.Sprintf("of %d ranks, %s still run", len(p.ranks), linux.FormatList(running))
	}
	return "timeout of " + p.command.timeout.String() + " expired: " + still + "; stopping the job"
}

// runningRanks returns the ranks that have been started and are not known to have ended.
func runningRanks(r *launcher.Report) []int {
	var running []int
	for rank, r := range r.Ranks {
		if r.PID != 0 && !r.Ended {
			running = append(running, rank)
		}
	}
	return running
}
