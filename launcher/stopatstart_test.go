package launcher

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A rank that is stopped at start has loaded its program but not run an instruction. It has no
// tracer, and it runs when it gets SIGCONT.
func TestStopAtStart(t *testing.T) {
	cfg := config("plan", 3, "PLAN_0=exit 0", "PLAN_1=exit 0", "PLAN_2=exit 0")
	cfg.StopAtStart = func(rank int) bool { return rank == 1 }
	type rank struct{ number, pid int }
	stopped := make(chan rank, 3)
	cfg.OnStopped = func(number, pid int) { stopped <- rank{number, pid} }
	j := start(t, cfg)
	s := proctest.Receive(t, "a rank is stopped", stopped)
	if s.number != 1 {
		t.Fatalf("rank %d is stopped, want 1", s.number)
	}
	proctest.Eventually(t, "stopped", func() bool { return field(t, s.pid, "State:") == "T (stopped)" })
	if tracer := field(t, s.pid, "TracerPid:"); tracer != "0" {
		t.Errorf("process %s traces it", tracer)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.pid))
	if own, _ := os.Executable(); err != nil || exe != own {
		t.Errorf("it is to run %s, want %s; %v", exe, own, err)
	}
	j.out.await(2, "ready")
	if strings.Contains(j.out.String(), "[1]") || len(stopped) > 0 {
		t.Errorf("more than one is stopped, or the stopped one has run:\n%s", j.out)
	}
	w := proctest.Watch(t, s.pid)
	w.MustRun()
	w.Signal(syscall.SIGCONT)
	if report := j.wait(); report.ExitStatus() != 0 || report.Ranks[1].PID != s.pid {
		t.Errorf("exit status %d, %+v", report.ExitStatus(), report.Ranks)
	}
	j.out.await(3, "ready")
}

// A job with a rank that gets no SIGCONT ends like any other.
func TestStoppedRankIsEnded(t *testing.T) {
	for _, tc := range []struct {
		name   string
		end    func(open func(byte), stopped proctest.Watched)
		status int
	}{
		{"another fails", func(open func(byte), _ proctest.Watched) { open('x') }, 5},
		{"killed", func(_ func(byte), w proctest.Watched) { w.Signal(syscall.SIGKILL) }, 128 + 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, open := gate(t)
			cfg := config("plan", 2, "PLAN_0=gate exit 5")
			cfg.Files = []*os.File{r}
			cfg.StopAtStart = func(rank int) bool { return rank == 1 }
			pids := make(chan int, 1)
			cfg.OnStopped = func(_, pid int) { pids <- pid }
			j := start(t, cfg)
			w := proctest.Watch(t, proctest.Receive(t, "a rank is stopped", pids))
			tc.end(open, w)
			if report := j.wait(); report.ExitStatus() != tc.status {
				t.Errorf("exit status %d, want %d", report.ExitStatus(), tc.status)
			}
			w.MustEnd()
		})
	}
}
