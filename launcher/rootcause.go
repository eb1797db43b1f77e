package launcher

import (
	"slices"
	"time"
)

// lastWords is how long a rank that caused the failure of another may take to end by itself.
// In that time it can report its error, and then counts as the first to fail.
const lastWords = time.Second

// inquiry finds out for which rank's failure the job comes down. A rank that fails
// because another has left the job or closed its connection often ends before the other,
// which has yet to report its own error.
type inquiry struct {
	victim   int
	suspects []int            // the ranks that may have caused the victim's failure, the nearest first
	limit    <-chan time.Time // nil: there has been no failure, or the inquiry is over
	begun    bool
}

// failedFirst enters a rank that has ended, and failed, as the first to fail, unless
// another has been before, or is to blame for this end.
func (f *front) failedFirst(rank int) {
	if f.report.First >= 0 || f.inquiry.limit != nil || f.deaf || slices.ContainsFunc(f.causes(rank), f.hasAborted) {
		return
	}
	f.report.First = rank
}

func (f *front) causes(victim int) []int {
	if f.cfg.Causes == nil {
		return nil
	}
	return f.cfg.Causes(victim)
}

// inquire begins the inquiry at the first failure of a rank, which has ended or aborted
// the job. The inquiry ends, and the job is stopped, at once unless a suspect still
// runs.
func (f *front) inquire(victim int) {
	if f.inquiry.begun {
		return
	}
	f.inquiry = inquiry{victim: victim, suspects: f.causes(victim), limit: time.After(lastWords), begun: true}
	f.decide(false)
}

// decide ends the inquiry if all is known that it waits for, or if its time is over.
func (f *front) decide(over bool) {
	if f.inquiry.limit == nil {
		return
	}
	for _, rank := range slices.Backward(f.inquiry.suspects) {
		r := &f.report.Ranks[rank]
		if f.hasAborted(rank) || r.failed() && !r.Stopped {
			f.report.First, f.report.Victims = rank, []int{f.inquiry.victim}
			break
		}
		if !r.Ended && !over {
			return
		}
	}
	f.inquiry.limit = nil
	f.end(order{Kind: orderStop})
}

func (f *front) hasAborted(rank int) bool {
	return slices.ContainsFunc(f.aborts, func(a Abort) bool { return a.Rank == rank })
}
