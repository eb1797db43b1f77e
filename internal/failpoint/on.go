//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Enabled reports whether this build has failpoints.
const Enabled = true

// Action is what happens at an armed point.
type Action string

// Actions.
const (
	Kill Action = "kill" // SIGKILL
	Stop Action = "stop" // SIGSTOP
)

// plan is the armed point.
type plan struct {
	point  Point
	left   atomic.Int64 // how often the process must still reach it
	action Action
}

var armed atomic.Pointer[plan]

func init() {
	if text := os.Getenv(Env); text != "" {
		if err := armFrom(text); err != nil {
			fmt.Fprintf(os.Stderr, "%s=%s: %v\n", Env, text, err)
			os.Exit(2)
		}
	}
}

func armFrom(text string) error {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("want name:n or name:n:action")
	}
	p, ok := Named(parts[0])
	if !ok {
		return fmt.Errorf("no point %q: internal/failpoint lists them", parts[0])
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a number of 1 or more", parts[1])
	}
	action := Kill
	if len(parts) == 3 {
		action = Action(parts[2])
	}
	if action != Kill && action != Stop {
		return fmt.Errorf("action %q: want kill or stop", action)
	}
	Arm(p, n, action)
	return nil
}

// Named returns the point with a name.
func Named(name string) (Point, bool) {
	for i := range Steps {
		if Steps[i].Name == name {
			return Point(i), true
		}
	}
	return 0, false
}

// Arm makes the action happen the n-th time from now that the process reaches p. It replaces what was armed before.
func Arm(p Point, n int64, action Action) {
	next := &plan{point: p, action: action}
	next.left.Store(n)
	armed.Store(next)
}

// Reach notes that the process has reached p, and acts if p is armed. Before that it writes the time of the system's
// monotonic clock to standard error.
func Reach(p Point) {
	a := armed.Load()
	if a == nil || a.point != p || a.left.Add(-1) != 0 {
		return
	}
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	fmt.Fprintf(os.Stderr, "failpoint %s %s at %d\n", Steps[p].Name, a.action, now.Nano())
	signal := syscall.SIGKILL
	if a.action == Stop {
		signal = syscall.SIGSTOP
	}
	_ = syscall.Kill(os.Getpid(), signal)
	if a.action == Kill {
		select {} // the signal ends this thread before it returns to the protocol, or soon after
	}
}
