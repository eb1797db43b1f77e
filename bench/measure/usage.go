package measure

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what all threads of this process have used so far, in user
// mode and in the kernel.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("measure: processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
