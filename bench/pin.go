package bench

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/softnd/softnd/internal/affinity"
)

// Pin keeps the calling goroutine on one core: the n-th, modulo their number,
// of those that the process may use. The rest of the process stays free.
func Pin(n int) error {
	runtime.LockOSThread()
	_, err := moveTo(n)
	return err
}

// OnCore calls f on one core, as Pin chooses it, and then lets the goroutine use
// all the cores again that it could use before.
func OnCore(n int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore, err := moveTo(n)
	if err != nil {
		return err
	}
	err = f()
	if restoreErr := restore(); restoreErr != nil {
		err = errors.Join(err, fmt.Errorf("bench: leave core %d: %w", n, restoreErr))
	}
	return err
}

// moveTo binds the calling thread to the n-th of its cores, modulo their number. restore undoes that.
func moveTo(n int) (restore func() error, err error) {
	cpus, err := affinity.CPUs()
	if err == nil {
		restore, err = affinity.Bind([]int{cpus[n%len(cpus)]})
	}
	if err != nil {
		return nil, fmt.Errorf("bench: pin: %w", err)
	}
	return restore, nil
}
