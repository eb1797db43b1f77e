package waiter

import "time"

const (
	spinRounds  = 500
	yieldRounds = 160
	// With more processes per core than this a wait sleeps at once: after a yield its next time
	// slice would be far away.
	maxPerCoreToYield = 64
	// Rounds that drive many endpoints take long.
	spinLimit = 20 * time.Microsecond
	// A relay keeps the core for long after each yield, and needs it to bring the answer.
	yieldLimit = 100 * time.Microsecond // for each process per core
)

// Phase is a part of a wait that does not sleep. It ends after Rounds checks, or soon after it has
// taken Limit (0: no limit).
type Phase struct {
	Rounds int
	Limit  time.Duration
}

// Budget returns how long a wait spins and how long it then yields before it sleeps, if processes
// share cores. withRelay says that answers may come from other hosts.
//
// A wait first spins for about as long as an answer from another core takes. Then it yields its
// core, because the answer may have to come from a process that waits for this core. Then it
// sleeps. If processes outnumber cores it does not spin. A yield costs almost nothing while no
// other process wants the core, so the number of yields is small enough that a long wait uses no
// noticeable processor time. Beside a relay they end after some time too: a process that sleeps
// leaves it the whole core.
func Budget(processes, cores int, withRelay bool) (spin, yield Phase) {
	if processes <= cores {
		spin = Phase{spinRounds, spinLimit}
	}
	if processes <= cores*maxPerCoreToYield {
		yield.Rounds = yieldRounds
	}
	if withRelay {
		yield.Limit = yieldLimit * time.Duration(max(1, (processes+cores-1)/cores))
	}
	return spin, yield
}
