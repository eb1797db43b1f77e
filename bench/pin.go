package bench

import (
	"fmt"
	"runtime"

	"github.com/softnd/softnd/internal/linux"
)

// Pin locks the calling goroutine to its thread, and the thread to one core: the n-th of those that the process may use,
// modulo their number. The other threads of the process stay free. restore undoes both; calling it is optional.
func Pin(n int) (restore func() error, err error) {
	runtime.LockOSThread()
	cpus, err := linux.CPUs()
	var undo func() error
	if err == nil {
		undo, err = linux.BindThread([]int{cpus[n%len(cpus)]})
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("bench: pin: %w", err)
	}
	return func() error {
		defer runtime.UnlockOSThread()
		if err := undo(); err != nil {
			return fmt.Errorf("bench: leave core %d: %w", n, err)
		}
		return nil
	}, nil
}
