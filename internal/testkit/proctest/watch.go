package proctest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Watched is a process that the test has not started itself. It has a pidfd, which never refers to another process.
type Watched struct {
	PID   int
	t     testing.TB
	pidfd int
}

// Watch returns a running process. A test that has not failed waits at its end until the process has ended. If the
// process still runs after [Timeout], the test fails. The process is killed in any case.
//
// That wait precedes the cleanup functions that the test registered earlier, so none of them can end the process.
func Watch(t testing.TB, pid int) Watched {
	t.Helper()
	return watch(t, pid, Timeout)
}

func watch(t testing.TB, pid int, limit time.Duration) Watched {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d has ended: %v", pid, err)
	}
	w := Watched{pid, t, fd}
	t.Cleanup(func() {
		if !t.Failed() && !w.Ended(limit) {
			t.Errorf("process %d outlives the test", pid)
		}
		_ = w.Send(unix.SIGKILL) // it may have ended
		unix.Close(fd)
	})
	return w
}

// Ended reports whether the process ends within d. It may still be a zombie.
func (w Watched) Ended(d time.Duration) bool {
	w.t.Helper()
	fds := []unix.PollFd{{Fd: int32(w.pidfd), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// MustEnd waits until the process has ended.
func (w Watched) MustEnd() {
	w.t.Helper()
	if !w.Ended(Timeout) {
		w.t.Errorf("process %d still runs", w.PID)
	}
}

// MustRun fails the test if the process has ended.
func (w Watched) MustRun() {
	w.t.Helper()
	if w.Ended(0) {
		w.t.Errorf("process %d has ended", w.PID)
	}
}

// Send sends a signal to the process.
func (w Watched) Send(s syscall.Signal) error { return unix.PidfdSendSignal(w.pidfd, s, nil, 0) }

// Signal sends a signal to the process, and fails the test if it has ended.
func (w Watched) Signal(s syscall.Signal) {
	w.t.Helper()
	if err := w.Send(s); err != nil {
		w.t.Fatalf("signal %d to process %d: %v", s, w.PID, err)
	}
}

// AwaitState waits until the kernel's process table has the process in a state, as T for a stopped one.
func (w Watched) AwaitState(state byte) {
	w.t.Helper()
	Eventually(w.t, fmt.Sprintf("process %d in state %c", w.PID, state), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.PID))
		if err != nil {
			w.t.Fatal(err)
		}
		s := string(b)
		return s[strings.LastIndexByte(s, ')')+2] == state
	})
}
