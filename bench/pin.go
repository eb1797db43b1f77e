package bench

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Pin keeps the calling goroutine on one core: the n-th, modulo their number,
// of those that the process may use. The rest of the process stays free.
func Pin(n int) error {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("bench: pin: %w", err)
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
		return fmt.Errorf("bench: pin: %w", err)
	}
	return nil
}
