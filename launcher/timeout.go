package launcher

import (
	"slices"
	"time"
)

// Running lists the ranks that have been started and not ended, as far as is known.
func (r *Report) Running() []int {
	var running []int
	for rank, r := range r.Ranks {
		if r.PID != 0 && !r.Ended {
			running = append(running, rank)
		}
	}
	return running
}

// limit starts the clock of the job, and returns nil if it has no limit.
func (f *front) limit() <-chan time.Time {
	if f.cfg.Timeout <= 0 {
		return nil
	}
	return time.After(f.cfg.Timeout)
}

// expire explains the job and brings the job down because its time is over, unless its ranks have ended.
func (f *front) expire() {
	over := !slices.ContainsFunc(f.report.Ranks, func(r Result) bool { return !r.Ended })
	down := func() bool { return f.ending || f.report.First >= 0 } // for another reason
	if over || down() {
		return
	}
	f.explain(TimeOver, func() {
		if down() {
			return
		}
		f.expired = true
		f.end(order{Kind: orderStop})
	})
}
