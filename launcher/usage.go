package launcher

import (
	"syscall"
	"time"
)

// usage is the resource usage of a rank, including its children that it waited for.
type usage struct {
	Wall         time.Duration // from its start until the supervisor noticed its exit
	User, System time.Duration // CPU time

	// MaxRSS is the peak resident memory in bytes of the rank or of any one of those children.
	// The kernel counts from before the exec, so it is at least that of the supervisor, a few
	// MiB.
	MaxRSS int64
}

func usageOf(wall time.Duration, ru *syscall.Rusage) usage {
	return usage{wall, time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano()), ru.Maxrss << 10}
}

// recordFailureDetails adds standard error output and core files of failed ranks to the report.
// The streams have ended.
func (f *frontEnd) recordFailureDetails(pattern corePattern) {
	for rank := range f.report.Ranks {
		r := &f.report.Ranks[rank]
		if !r.failed() || r.Stopped {
			continue
		}
		if s := f.streams[2*rank+1]; s != nil {
			r.stderrTail = s.tailText()
		}
		if r.Status.CoreDump() {
			r.coreHandler = pattern.handler()
			r.corePath = pattern.find(f.cfg.app(rank).Dir, r.PID, r.Status.Signal(), f.report.began)
		}
	}
}
