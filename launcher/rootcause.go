package launcher

import (
	"slices"
	"time"
)

// causeTimeout is how long the front end waits for a rank that may have caused the failure of
// another one. If that rank fails in this time, it is the first to fail.
const causeTimeout = time.Second

// causeSearch determines the rank whose failure stops the job. A rank that fails because a peer
// left the job often exits before that peer has reported its own error.
type causeSearch struct {
	victim   int
	suspects []int            // ranks that may have caused the victim's failure, nearest first
	limit    <-chan time.Time // nil before the first failure and after the search
	begun    bool
}

// recordFirstFailure records a rank that has failed as the first to fail. It does nothing if
// another rank is already recorded, or if a rank that has aborted the job may have caused this
// failure.
func (f *frontEnd) recordFirstFailure(rank int) {
	if f.report.First >= 0 || f.causeSearch.limit != nil || f.pipesLost || slices.ContainsFunc(f.causes(rank), f.hasAborted) {
		return
	}
	f.report.First = rank
}

func (f *frontEnd) causes(victim int) []int {
	if f.cfg.Causes == nil {
		return nil
	}
	return f.cfg.Causes(victim)
}

// searchCause starts the search at the first failure or abort of a rank. The search ends, and the
// job is stopped, at once if no suspect runs.
func (f *frontEnd) searchCause(victim int) {
	if f.causeSearch.begun {
		return
	}
	f.causeSearch = causeSearch{victim: victim, suspects: f.causes(victim), limit: time.After(causeTimeout), begun: true}
	f.decideCause(false)
}

// decideCause ends the search if the fate of each suspect is known or if expired is set.
func (f *frontEnd) decideCause(expired bool) {
	if f.causeSearch.limit == nil {
		return
	}
	for _, rank := range slices.Backward(f.causeSearch.suspects) {
		r := &f.report.Ranks[rank]
		if f.hasAborted(rank) || r.failed() && !r.Stopped {
			f.report.First, f.report.victims = rank, []int{f.causeSearch.victim}
			break
		}
		if !r.Ended && !expired {
			return
		}
	}
	f.causeSearch.limit = nil
	f.end(order{Kind: orderStop})
}

func (f *frontEnd) hasAborted(rank int) bool {
	return slices.ContainsFunc(f.aborts, func(a Abort) bool { return a.Rank == rank })
}
