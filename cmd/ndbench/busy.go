package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// busyness counts how often other processes wanted a core just before a job of the suite started.
type busyness struct{ checks, busy int }

func (b *busyness) check() {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	b.checks++
	if running(string(text)) > 1 { // this process is one
		b.busy++
	}
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
