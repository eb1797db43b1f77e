package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// busyness counts how often other processes wanted a core just before a job of
// the suite began.
type busyness struct{ looks, busy int }

func (b *busyness) look() {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	b.looks++
	if running(string(text)) > 1 { // this process is one
		b.busy++
	}
}

// running returns how many threads run or want to, by the text of /proc/loadavg:
// "0.42 0.50 0.61 3/812 4711".
func running(loadavg string) int {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0
	}
	now, _, _ := strings.Cut(fields[3], "/")
	n, _ := strconv.Atoi(now)
	return n
}

// String is what a reader of the outcomes has to know, "" if that is nothing.
func (b *busyness) String() string {
	if 4*b.busy <= b.looks {
		return ""
	}
	return fmt.Sprintf("\nOther processes ran at the start of %d of %d jobs. They can cause TOO NOISY, and MISSED for a barrier of more ranks than cores;\nrun it again on a machine that does nothing else.\n", b.busy, b.looks)
}
