package bench

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
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
	before, err := moveTo(n)
	if err != nil {
		return err
	}
	err = f()
	if back := unix.SchedSetaffinity(0, &before); back != nil {
		err = errors.Join(err, fmt.Errorf("bench: leave core %d: %w", n, back))
	}
	return err
}

// moveTo moves the calling thread to the n-th of its cores, and returns all of
// them.
func moveTo(n int) (allowed unix.CPUSet, err error) {
	var one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return allowed, fmt.Errorf("bench: pin: %w", err)
	}
	n %= allowed.Count()
	for cpu := 0; ; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if n == 0 {
			one.Set(cpu)
			break
		}
		n--
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return allowed, fmt.Errorf("bench: pin: %w", err)
	}
	return allowed, nil
}
