package launcher

import (
	"fmt"
	"slices"
)

// Abort is a rank's wish that the job ends, whatever becomes of the rank itself: a
// shell that the rank runs in may hide its exit code.
type Abort struct {
	Rank   int
	Code   int    // of the job: 1 to 255; any other counts as 1
	Reason string // for the user; "" if the rank has said enough

	ended bool // by itself, with 0, and wrongly; it wished for nothing
}

func (a *Abort) exitCode() int {
	if a.Code < 1 || a.Code > 255 {
		return 1
	}
	return a.Code
}

// abort brings the job down for a rank. An abort that comes after the front has ordered
// the end of the job for another reason is an effect of that end. Whether a rank had
// failed before shows when the keeper has told of all that happened before it got the
// order, see settle.
func (f *front) abort(a Abort) {
	if a.Rank < 0 || a.Rank >= len(f.report.Ranks) || f.ending {
		return
	}
	f.aborts = append(f.aborts, a)
	f.inquire(a.Rank)
	f.decide(false)
}

// settle enters an abort into the report of a job that has ended: that of the rank that
// failed first, or the first of all, unless something else had brought the job down before.
func (f *front) settle() {
	for more := true; more; {
		select {
		case a := <-f.cfg.Aborts: // too late to bring anything down
			f.abort(a)
		default:
			more = false
		}
	}
	r := f.report
	if r.Abort != nil || r.Signal != 0 {
		return
	}
	if i := slices.IndexFunc(f.aborts, func(a Abort) bool { return r.First < 0 || r.First == a.Rank }); i >= 0 {
		r.Abort = &f.aborts[i]
	}
}

// judge asks whether a rank that ended with 0 has really ended well.
func (f *front) judge(e event) {
	if f.cfg.Ended == nil || e.Stopping || exitCode(e.Status) != 0 {
		return
	}
	err := f.cfg.Ended(e.Rank)
	if err == nil {
		return
	}
	if f.report.First < 0 && f.report.Abort == nil && len(f.aborts) == 0 {
		f.report.Abort = &Abort{Rank: e.Rank, Code: 1, Reason: err.Error(), ended: true}
	}
	f.end(order{Kind: orderStop})
}

// aborted is the message about an aborted job.
func (r *Report) aborted() string {
	rank := r.Ranks[r.Abort.Rank]
	how := fmt.Sprintf("aborted the job with code %d", r.Abort.exitCode())
	if r.Abort.ended {
		how = "exited with code 0, which counts as 1"
	}
	if r.Abort.Reason != "" {
		how += ": " + r.Abort.Reason
	}
	return fmt.Sprintf("rank %d (%s, pid %d) %s%s", r.Abort.Rank, rank.Program, rank.PID, how, r.others(r.Abort.Rank))
}
