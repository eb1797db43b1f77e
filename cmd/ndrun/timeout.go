package main

import (
	"fmt"

	"github.com/softnd/softnd/internal/numlist"
	"github.com/softnd/softnd/launcher"
)

// timedOut returns the message about the expired --timeout and the ranks that still run.
func (p *plan) timedOut(r *launcher.Report) string {
	running, still := r.Running(), "all ranks still run"
	if len(running) < len(p.ranks) {
		still = fmt.Sprintf("of %d ranks, %s still run", len(p.ranks), numlist.Format(running))
		if len(running) == 1 {
			still = fmt.Sprintf("of %d ranks, only %d still runs", len(p.ranks), running[0])
		}
	}
	return "timeout of " + p.command.timeout.String() + " expired: " + still + "; stopping the job"
}
