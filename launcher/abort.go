package launcher

import (
	"fmt"
	"slices"
)

// Abort is a rank's request to end the job. It counts regardless of the exit code of the rank's
// process, which a shell around the rank may hide.
type Abort struct {
	Rank   int
	Code   int    // exit status of the job: 1 to 255; any other value counts as 1
	Reason string // message for the user; may be ""

	exited bool // not a request: the rank exited with 0 and Config.CheckExit returned an error
}

func (a *Abort) exitCode() int {
	if a.Code < 1 || a.Code > 255 {
		return 1
	}
	return a.Code
}

// abort stops the job for a rank. An abort that arrives after the front end has ordered the end
// of the job is usually an effect of that end. But the rank may have exited before the order: then
// the abort explains the first failure. That is known only when the supervisor has reported all
// earlier exits, see recordAbort.
func (f *frontEnd) abort(a Abort) {
	if a.Rank < 0 || a.Rank >= len(f.report.Ranks) {
		return
	}
	if f.ending {
		f.lateAborts = append(f.lateAborts, a)
		return
	}
	f.aborts = append(f.aborts, a)
	if f.report.GoesOn { // earlier failures do not explain it
		f.end(order{Kind: orderStop})
		return
	}
	f.searchCause(a.Rank)
	f.decideCause(false)
}

// recordAbort enters an abort into the report of a job that has ended: the abort of the rank that
// failed first, or the first abort. A late abort counts only if its rank failed first. recordAbort
// does nothing if something else stopped the job before.
func (f *frontEnd) recordAbort() {
	for more := true; more; {
		select {
		case a := <-f.cfg.Aborts: // may have arrived after the last event
			f.abort(a)
		default:
			more = false
		}
	}
	r := f.report
	if r.Abort != nil || r.Signal != 0 {
		return
	}
	if i := slices.IndexFunc(f.aborts, func(a Abort) bool { return r.First < 0 || r.First == a.Rank || r.GoesOn }); i >= 0 {
		r.Abort = &f.aborts[i]
	} else if i := slices.IndexFunc(f.lateAborts, func(a Abort) bool { return r.First == a.Rank }); i >= 0 {
		r.Abort = &f.lateAborts[i]
	}
}

// checkExit calls Config.CheckExit for a rank that exited with 0.
func (f *frontEnd) checkExit(e event) {
	if f.cfg.CheckExit == nil || e.Stopping || exitCode(e.Status) != 0 {
		return
	}
	err := f.cfg.CheckExit(e.Rank)
	if err == nil {
		return
	}
	if f.report.First < 0 && f.report.Abort == nil && len(f.aborts) == 0 {
		f.report.Abort = &Abort{Rank: e.Rank, Code: 1, Reason: err.Error(), exited: true}
	}
	if f.report.GoesOn {
		f.cfg.OnDeath(e.Rank, fmt.Sprintf("%s, but failed: %v", f.report.describe(e.Rank), err))
		return
	}
	f.end(order{Kind: orderStop})
}

// abortMessage returns the message about an aborted job.
func (r *Report) abortMessage() string {
	rank := r.Ranks[r.Abort.Rank]
	how := fmt.Sprintf("aborted the job with code %d", r.Abort.exitCode())
	if r.Abort.exited {
		how = "exited with code 0, but failed (status 1)"
	}
	if r.Abort.Reason != "" {
		how += ": " + r.Abort.Reason
	}
	return fmt.Sprintf("rank %d (%s, pid %d) %s%s", r.Abort.Rank, rank.Program, rank.PID, how, r.otherRanks(r.Abort.Rank))
}
