package main

import (
	"errors"
	"fmt"

	"github.com/softnd/softnd/internal/linux"
)

// onCores calls start. Processes that start starts may use only the first n cores of this process, or all if there are
// fewer. n = 0 means all. The calling goroutine is locked to its thread; see main.
func onCores(n int, start func() error) error {
	if n == 0 {
		return start()
	}
	cpus, err := linux.CPUs()
	var restore func() error
	if err == nil {
		restore, err = linux.BindThread(cpus[:min(n, len(cpus))])
	}
	if err != nil {
		return fmt.Errorf("keep a job on %d cores: %w", n, err)
	}
	err = start()
	return errors.Join(err, restore())
}
