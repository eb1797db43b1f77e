package launcher

import (
	"syscall"
	"time"
)

// Usage is what a rank took, with those of its children that it waited for.
type Usage struct {
	Wall         time.Duration // from its start until its end was seen
	User, System time.Duration // time on a core

	// MaxRSS is the most memory in bytes that was in use at once by the rank or by any one
	// of those children. The kernel counts from before the program is loaded, so it is
	// never less than what the keeper took, a few MiB.
	MaxRSS int64
}

func usage(wall time.Duration, ru *syscall.Rusage) Usage {
	return Usage{wall, time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano()), ru.Maxrss << 10}
}

// sumUp adds to the report what only the front knows. The streams have ended.
func (f *front) sumUp(pattern corePattern) {
	for rank := range f.report.Ranks {
		r := &f.report.Ranks[rank]
		if !r.failed() || r.Stopped {
			continue
		}
		if s := f.streams[2*rank+1]; s != nil {
			r.LastWords = s.lastWords()
		}
		if r.Status.CoreDump() {
			r.CoreHandler = pattern.handler()
			r.CorePath = pattern.find(f.cfg.part(rank).Dir, r.PID, r.Status.Signal(), f.report.Began)
		}
	}
}
