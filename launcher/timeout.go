package launcher

import (
	"slices"
	"time"
)

// startTimeout starts the timer of the job; it returns nil if there is no limit.
func (f *frontEnd) startTimeout() <-chan time.Time {
	if f.cfg.Timeout <= 0 {
		return nil
	}
	return time.After(f.cfg.Timeout)
}

// isEnding reports whether an order or the failure of a rank ends the job.
func (f *frontEnd) isEnding() bool { return f.ending || f.report.First >= 0 && !f.report.GoesOn }

// expire diagnoses and stops the job because Config.Timeout has expired, unless all ranks have
// ended.
func (f *frontEnd) expire() {
	ended := !slices.ContainsFunc(f.report.Ranks, func(r Result) bool { return !r.Ended })
	if ended || f.isEnding() {
		return
	}
	f.diagnose(TriggerTimeout, func() {
		if f.isEnding() {
			return
		}
		f.expired = true
		f.end(order{Kind: orderStop})
	})
}
