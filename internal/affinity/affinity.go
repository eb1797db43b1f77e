// Package affinity reads the processors on which this process may run.
package affinity

import "golang.org/x/sys/unix"

// MaxCPU is the highest processor number that can be represented.
const MaxCPU = len(unix.CPUSet{})*64 - 1

// CPUs returns the numbers of the processors on which the calling thread may run, in ascending
// order.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := range MaxCPU + 1 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Bind binds the calling thread, and the processes that it starts from now on, to the given
// processors. undo restores the previous affinity. The caller has locked the goroutine to its
// thread. Without processors, Bind does nothing.
func Bind(cpus []int) (undo func(), err error) {
	if len(cpus) == 0 {
		return func() {}, nil
	}
	var before, wanted unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	for _, cpu := range cpus {
		wanted.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &wanted); err != nil {
		return nil, err
	}
	// A failure is harmless: the next Bind sets the affinity again.
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil
}
