package launcher

import (
	"slices"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// listenPeriod is the time between two checks whether ranks listen for connections.
const listenPeriod = 20 * time.Millisecond

// delayed returns the program whose first rank is rank if it starts later than the rank before it,
// else nil.
func (j *jobSpec) delayed(rank int) *appSpec {
	for i := range j.Apps {
		if a := &j.Apps[i]; rank == 0 && (a.After > 0 || a.Listeners > 0) {
			return a
		}
		rank -= j.Apps[i].Ranks
	}
	return nil
}

// startTogether returns the number of ranks of the batch that begins with rank first.
func (j *jobSpec) startTogether(first int) int {
	n := 1
	for n < startBatch && first+n < j.Ranks && j.delayed(first+n) == nil {
		n++
	}
	return n
}

// untilStart returns the time after which the next ranks may be ready to start; 0 means now.
func (k *supervisor) untilStart() time.Duration {
	if !k.starting() {
		return 0
	}
	app := k.job.delayed(k.started)
	switch {
	case app == nil:
		return 0
	case !k.listen(k.started-app.Listeners, k.started):
		return listenPeriod
	}
	return max(0, time.Until(k.since[k.started-1].Add(app.After)))
}

// listen reports whether each rank from first to end-1 listens for connections, itself or by a process
// that it has started, or has ended.
func (k *supervisor) listen(first, end int) bool {
	for pid, rank := range k.rankOf {
		if rank < first || rank >= end || linux.Listens(pid) {
			continue
		}
		started, _ := descendants(pid) // on error the next check repeats it
		if !slices.ContainsFunc(started, func(p linux.Process) bool { return linux.Listens(p.PID) }) {
			return false
		}
	}
	return true
}
