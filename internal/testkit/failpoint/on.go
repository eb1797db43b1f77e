//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

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
	point Point
	left  atomic.Int64 // how often the process must still reach it
	act   func()
	slow  bool
}

var armed atomic.Pointer[plan]

func init() {
	text := os.Getenv(Env)
	if err := ArmFrom(text); err != nil {
		fmt.Fprintf(os.Stderr, "%s=%s: %v\n", Env, text, err)
		os.Exit(2)
	}
}

// ArmFrom arms the point of a value of SOFTND_FAILPOINT; "" arms none.
func ArmFrom(text string) error {
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("want name:n or name:n:action")
	}
	p, ok := Named(parts[0])
	if !ok {
		return fmt.Errorf("no point %q: internal/testkit/failpoint lists them", parts[0])
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
// Every second time before that, the step is slow, as if the thread had lost its core there. Other goroutines
// and processes then meet it in the middle of the step.
func Arm(p Point, n int64, action Action) {
	arm(p, n, &plan{slow: true, act: func() { signal(p, action) }})
}

// ArmFunc makes f run the n-th time from now that the process reaches p, in the middle of the step.
func ArmFunc(p Point, n int64, f func()) { arm(p, n, &plan{act: f}) }

func arm(p Point, n int64, next *plan) {
	next.point = p
	next.left.Store(n)
	armed.Store(next)
}

// Disarm disarms every point.
func Disarm() { armed.Store(nil) }

// slowStep is how long a slow step takes.
const slowStep = 3 * time.Millisecond

// Reach notes that the process has reached p, and acts if p is armed.
func Reach(p Point) {
	a := armed.Load()
	if a == nil || a.point != p {
		return
	}
	switch left := a.left.Add(-1); {
	case left == 0:
		a.act()
	case left > 0 && left%2 == 0 && a.slow:
		time.Sleep(slowStep)
	}
}

// signal sends this process the signal of an action. Before that it writes the time of the system's monotonic clock to
// standard error. The signal goes to the calling thread, which handles it before it returns to the protocol.
func signal(p Point, action Action) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	fmt.Fprintf(os.Stderr, "failpoint %s %s at %d\n", Steps[p].Name, action, now.Nano())
	number := syscall.SIGKILL
	if action == Stop {
		number = syscall.SIGSTOP
	}
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), number)
}
