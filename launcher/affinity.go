package launcher

import "golang.org/x/sys/unix"

// bind lets this thread, and so what it starts from here on, run on these processors
// only, and returns what takes that back. No processors: nothing changes.
func bind(cpus []int) (undo func(), err error) {
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
	// Should this fail, the next rank is bound all the same, or it would be bound here.
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil
}
