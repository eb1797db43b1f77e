package launcher

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestTimeoutStopsTheJob(t *testing.T) {
	const ranks = 3
	for limit := range proctest.Limits(t, "all ranks run", 500*time.Millisecond) {
		if stopByTimeout(t, ranks, limit) == ranks {
			break
		}
	}
}

// stopByTimeout runs a job that does not end before limit. It returns how many ranks ran at that time.
func stopByTimeout(t *testing.T, ranks int, limit time.Duration) (running int) {
	t.Helper()
	cfg := config("plan", ranks)
	cfg.Grace = proctest.Timeout
	cfg.Timeout = limit
	calls := 0
	cfg.Diagnose = func(why Trigger, r *Report) []string {
		if why != TriggerTimeout {
			t.Errorf("occasion %v", why)
		}
		calls++
		running = 0
		for _, r := range r.Ranks {
			if r.PID != 0 && !r.Ended {
				running++
			}
		}
		return []string{"why"}
	}
	report := start(t, cfg).wait()
	if !report.TimedOut || report.ExitStatus() != 124 || report.First != -1 || len(report.Messages()) > 0 {
		t.Errorf("timed out: %v, exit status %d, first failure %d, messages %q; want true, 124, -1, none",
			report.TimedOut, report.ExitStatus(), report.First, report.Messages())
	}
	for rank, r := range report.Ranks {
		if r.PID != 0 && (!r.Ended || !r.Stopped || r.Status.Signal() != syscall.SIGTERM) {
			t.Errorf("rank %d: %+v, want it stopped by SIGTERM", rank, r)
		}
	}
	if calls != 1 || !slices.Equal(report.Hang, []string{"why"}) {
		t.Errorf("told %d times, and reported why it hangs: %q; want once, and \"why\"", calls, report.Hang)
	}
	return running
}

// While Config.Diagnose runs, the ranks run and have not been asked to end.
func TestRanksRunDuringDiagnosis(t *testing.T) {
	cfg := config("listener", 2, "LISTEN_END=15")
	cfg.Timeout = 500 * time.Millisecond
	cfg.Grace = proctest.Timeout
	told := make(chan struct{})
	resumeEnd := make(chan struct{})
	cfg.diagnosisTimeout = proctest.Timeout
	cfg.Diagnose = func(Trigger, *Report) []string {
		close(told)
		<-resumeEnd
		return nil
	}
	j := start(t, cfg)
	pids := j.out.await(2, "ready")
	proctest.Receive(t, "Diagnose is called", told)
	for _, rest := range pids {
		var pid int
		fmt.Sscan(rest, &pid)
		proctest.Watch(t, pid).MustRun()
	}
	if s := j.out.String(); strings.Contains(s, "signal") {
		t.Errorf("ranks were signalled before the call:\n%s", s)
	}
	close(resumeEnd)
	if report := j.wait(); !report.TimedOut {
		t.Error("the report does not say that the time was over")
	}
	j.out.await(2, "signal 15")
}

func TestJobEndsBeforeTimeout(t *testing.T) {
	cfg := config("plan", 2, "PLAN_0=exit 0", "PLAN_1=exit 0")
	cfg.Timeout = proctest.Timeout
	cfg.Diagnose = func(Trigger, *Report) []string { t.Error("timed out"); return nil }
	if report := start(t, cfg).wait(); report.TimedOut || report.ExitStatus() != 0 {
		t.Errorf("timed out: %v, exit status %d", report.TimedOut, report.ExitStatus())
	}
}

// A timeout has no effect on a job that is being stopped.
func TestTimeoutOfEndingJob(t *testing.T) {
	for name, report := range map[string]*Report{
		"a rank has failed":    {Ranks: []Result{{PID: 10, Ended: true}, {PID: 11}}, First: 0},
		"a signal has come":    {Ranks: []Result{{PID: 10}, {PID: 11}}, First: -1, Signal: syscall.SIGINT},
		"the ranks have ended": {Ranks: []Result{{PID: 10, Ended: true}, {PID: 11, Ended: true}}, First: -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := &frontEnd{report: report, ending: report.Signal != 0} // has no supervisor to give an order to
			f.cfg.Diagnose = func(Trigger, *Report) []string { t.Error("timed out"); return nil }
			f.expire()
			if f.expired {
				t.Error("the end is put down to the time")
			}
		})
	}
}

// A call of Config.Diagnose that does not return prevents neither the timeout nor a second signal
// from ending the job.
func TestDiagnosisThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		timeout time.Duration
		signals []syscall.Signal
		want    int
	}{
		"time over":         {500 * time.Millisecond, nil, 124},
		"two quits":         {0, []syscall.Signal{syscall.SIGQUIT, syscall.SIGQUIT}, 128 + 3},
		"quit, interrupt":   {0, []syscall.Signal{syscall.SIGQUIT, syscall.SIGINT}, 128 + 3},
		"asked, interrupts": {0, []syscall.Signal{0, syscall.SIGINT, syscall.SIGINT}, 128 + 2},
		"asked, then quit":  {0, []syscall.Signal{0, syscall.SIGQUIT, syscall.SIGQUIT}, 128 + 3},
		"two interrupts":    {0, []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 128 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config("listener", 2)
			cfg.Timeout, cfg.SignalGrace = tc.timeout, 10*time.Millisecond
			cfg.diagnosisTimeout = proctest.Timeout
			if tc.timeout > 0 {
				cfg.diagnosisTimeout = time.Millisecond
			}
			signals, ask, asked, never := make(chan os.Signal), make(chan struct{}), make(chan struct{}, 8), make(chan struct{})
			defer close(never)
			cfg.Signals, cfg.DiagnoseNow = signals, ask
			cfg.Diagnose = func(Trigger, *Report) []string { asked <- struct{}{}; <-never; return nil }
			j := start(t, cfg)
			if tc.timeout == 0 { // else the ranks need not be ready by then
				j.out.await(2, "ready")
			}
			for i, sig := range tc.signals {
				if sig == 0 {
					ask <- struct{}{}
				} else {
					signals <- sig
				}
				if i == 0 && len(tc.signals) > 1 {
					proctest.Receive(t, "Diagnose is called", asked)
				}
			}
			if report := j.wait(); report.ExitStatus() != tc.want {
				t.Errorf("exit status %d, want %d", report.ExitStatus(), tc.want)
			}
		})
	}
}
