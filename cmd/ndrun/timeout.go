package main

import (
	"fmt"

	"github.com/softnd/softnd/internal/numlist"
	"github.com/softnd/softnd/launcher"
)

// timedOut says that the job's time is over and what still runs.
func (p *plan) timedOut(r *launcher.Report) string {
	running, who := r.Running(), "all ranks still run"
	if len(running) < len(p.ranks) {
		who = fmt.Sprintf("of %d ranks %s still run", len(p.ranks), numlist.Format(running))
		if len(running) == 1 {
			who = fmt.Sprintf("of %d ranks only %d still runs", len(p.ranks), running[0])
		}
	}
	return "the time of " + p.command.timeout.String() + " is over: " + who + "; the job is stopped"
}
