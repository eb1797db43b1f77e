package linux

// TWIN c/src/linux/clock.c.

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A clock that all processes of a host share. The clock of package time cannot be compared between processes.

// HostClock returns the time of the host's CLOCK_MONOTONIC in nanoseconds, which is the same in all processes of
// a host, also in different time namespaces. It does not advance while the machine is suspended.
func HostClock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: the clock exists, and t is valid memory
	return t.Nano() - offset()
}

// offset returns by how much the clock of this process's time namespace is ahead of that of the host. It does not change while the
// process runs.
var offset = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/self/timens_offsets") // none: the kernel has no time namespaces
	return parseOffset(string(text))
})

// parseOffset returns the offset of CLOCK_MONOTONIC in lines of a clock, seconds and nanoseconds. Linux before 5.11 writes the
// number of the clock.
func parseOffset(text string) int64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "monotonic" && fields[0] != strconv.Itoa(unix.CLOCK_MONOTONIC) {
			continue
		}
		seconds, err1 := strconv.ParseInt(fields[1], 10, 64)
		nanoseconds, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err1 == nil && err2 == nil {
			return seconds*int64(time.Second) + nanoseconds
		}
	}
	return 0
}
