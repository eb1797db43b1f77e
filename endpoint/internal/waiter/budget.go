package waiter

const (
	spinRounds  = 500
	yieldRounds = 160
	// With more processes per core than this a wait sleeps at once: after a yield its next time
	// slice would be far away.
	maxPerCoreToYield = 64
)

// Budget returns how many rounds a wait spins and how many it then yields before it sleeps, if
// processes share cores.
//
// A wait first spins for about as long as an answer from another core takes. Then it yields its
// core, because the answer may have to come from a process that waits for this core. Then it
// sleeps. If processes outnumber cores it does not spin. A yield costs almost nothing while no
// other process wants the core, so the number of yields is small enough that a long wait uses no
// noticeable processor time.
func Budget(processes, cores int) (spins, yields int) {
	switch {
	case processes <= cores:
		return spinRounds, yieldRounds
	case processes <= cores*maxPerCoreToYield:
		return 0, yieldRounds
	}
	return 0, 0
}
