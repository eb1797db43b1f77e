package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// onCores calls start. Processes started there may use only the first n of the
// cores that this process may use, or all if there are fewer. n = 0 means all.
// The calling goroutine is locked to its thread, see main.
func onCores(n int, start func() error) error {
	var allowed, few unix.CPUSet
	if n == 0 {
		return start()
	}
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("keep a job on %d cores: %w", n, err)
	}
	for cpu := 0; few.Count() < min(n, allowed.Count()); cpu++ {
		if allowed.IsSet(cpu) {
			few.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &few); err != nil {
		return fmt.Errorf("keep a job on %d cores: %w", n, err)
	}
	err := start()
	return errors.Join(err, unix.SchedSetaffinity(0, &allowed))
}
