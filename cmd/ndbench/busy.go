package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// busyness counts how often other processes wanted a core just before a job of the suite started.
type busyness struct{ checks, busy int }

// A process that computes is runnable in each look. The kernel's own work, and the ranks that have just ended, are not.
const (
	looks     = 5
	lookPause = 3 * time.Millisecond
)

func (b *busyness) check() {
	for i := range looks {
		text, err := os.ReadFile("/proc/loadavg")
		if err != nil {
			return
		}
		if i == 0 {
			b.checks++
		}
		if running(string(text))-ownRunning() < 1 {
			return
		}
		time.Sleep(lookPause)
	}
	b.busy++
}

// ownRunning returns the number of runnable threads of this process, one of which asks.
func ownRunning() (n int) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 1
	}
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if _, state, found := strings.Cut(string(text), ") "); err == nil && found && strings.HasPrefix(state, "R") {
			n++
		}
	}
	return max(n, 1)
}

// running returns the number of runnable threads in the text of /proc/loadavg: "0.42 0.50 0.61 3/812 4711".
func running(loadavg string) int {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0
	}
	now, _, _ := strings.Cut(fields[3], "/")
	n, _ := strconv.Atoi(now)
	return n
}

// String warns about busy cores. It returns "" if there is nothing to report.
func (b *busyness) String() string {
	if 4*b.busy <= b.checks {
		return ""
	}
	return fmt.Sprintf("\nOther processes ran at the start of %d of %d jobs. They can cause TOO NOISY, and MISSED for a barrier of more ranks than cores;\nrun it again on a machine that does nothing else.\n", b.busy, b.checks)
}
