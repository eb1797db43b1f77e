package linux

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The processors on which this process may run. Nothing else in this module reads or sets the affinity mask.

// MaxCPU is the highest processor number that can be represented.
const MaxCPU = len(unix.CPUSet{})*64 - 1

// CPUs returns the numbers of the processors on which the calling thread may run, in ascending
// order.
func CPUs() ([]int, error) { return cpusOf(0) }

// ProcessCPUs is [CPUs] for the main thread of this process. Threads that [BindThread] has bound do not
// affect it.
func ProcessCPUs() ([]int, error) { return cpusOf(os.Getpid()) }

func cpusOf(thread int) ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(thread, &set); err != nil {
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

// BindThread binds the calling thread, and the processes that it starts from now on, to the given
// processors. restore restores the previous affinity. The caller has locked the goroutine to its
// thread. Without processors, BindThread does nothing.
func BindThread(cpus []int) (restore func() error, err error) {
	if len(cpus) == 0 {
		return func() error { return nil }, nil
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	wanted := setOf(cpus)
	if err := unix.SchedSetaffinity(0, &wanted); err != nil {
		return nil, err
	}
	return func() error { return unix.SchedSetaffinity(0, &before) }, nil
}

// BindProcess binds all threads of this process to those of the given processors that the host allows, and with them the
// threads that it starts from now on.
func BindProcess(cpus []int) error {
	wanted, bound := setOf(cpus), make(map[int]bool)
	for isNew := true; isNew; { // a thread that is not bound yet may have started another one
		isNew = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, entry := range threads {
			thread, err := strconv.Atoi(entry.Name())
			if err != nil || bound[thread] {
				continue
			}
			if err := unix.SchedSetaffinity(thread, &wanted); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			bound[thread], isNew = true, true
		}
	}
	return nil
}

func setOf(cpus []int) (set unix.CPUSet) {
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return set
}
