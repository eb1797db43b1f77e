package waiter

import "time"

const (
	yieldRounds = 200
	// With more processes per core than this a wait sleeps at once: after a yield its next time
	// slice would be far away.
	maxPerCoreToYield = 64
	// For each process per core. After a yield a relay on this core runs for long, and it needs the
	// core to bring the answer.
	yieldLimit = 100 * time.Microsecond
)

// Phase is a part of a wait that does not sleep. It ends after Rounds checks, or at the first reading
// of the clock after Limit (0: no limit).
type Phase struct {
	Rounds int
	Limit  time.Duration
}

// Yields returns how long a wait yields its core before it sleeps, after it has spun. processes share cores.
// withRelay says that answers may come from other hosts.
//
// A wait first spins for about as long as an answer from another core takes: see [Spin]. Then it yields
// its core, because the answer may have to come from a process that waits for this core. Then it
// sleeps. A yield costs almost nothing while no other process wants the core, so the number of yields
// is small enough that a long wait uses no noticeable processor time. Beside a relay the yields end
// after some time, too: a process that sleeps leaves the whole core to the relay.
func Yields(processes, cores int, withRelay bool) (yield Phase) {
	if processes <= cores*maxPerCoreToYield {
		yield.Rounds = yieldRounds
		if withRelay {
			yield.Limit = yieldLimit * time.Duration((processes-1)/cores+1)
		}
	}
	return yield
}
