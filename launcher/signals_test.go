package launcher

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// withSignals returns a job whose signals the test sends.
func withSignals(cfg Config) (Config, chan<- os.Signal) {
	c := make(chan os.Signal)
	cfg.Signals = c
	return cfg, c
}

func TestSignalsAreForwarded(t *testing.T) {
	cfg, send := withSignals(config("listener", 3, "LISTEN_END=15"))
	cfg.SignalGrace = proctest.Timeout
	j := start(t, cfg)
	j.out.await(3, "ready")
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT} {
		send <- sig
		j.out.await(3, fmt.Sprintf("signal %d", sig))
	}
	send <- syscall.SIGTERM
	report := j.wait()
	if report.ExitStatus() != 128+15 || report.First != -1 {
		t.Errorf("exit status %d, first failure %d; want %d, -1", report.ExitStatus(), report.First, 128+15)
	}
	for rank, r := range report.Ranks {
		if !r.Ended || r.Status != 0 {
			t.Errorf("rank %d was not left to end by itself: %+v", rank, r)
		}
	}
	if got, want := strings.Join(report.Messages(), "\n"), "job stopped by signal SIGTERM (terminated)"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// A forwarded signal that kills a rank is a failure of the rank.
func TestForwardedSignalKillsRank(t *testing.T) {
	cfg, send := withSignals(config("", 1))
	// Not this binary: the Go runtime drops SIGUSR1 without signal.Notify.
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", "echo ready; exec sleep 600"}
	j := start(t, cfg)
	j.out.await(1, "ready")
	send <- syscall.SIGUSR1
	if report := j.wait(); report.ExitStatus() != 128+10 || report.First != 0 {
		t.Errorf("exit status %d, first failure %d; want %d, 0", report.ExitStatus(), report.First, 128+10)
	}
}

func TestSecondSignalKillsAtOnce(t *testing.T) {
	cfg, send := withSignals(config("listener", 2))
	cfg.SignalGrace = 2 * proctest.Timeout // the test fails if it is waited for
	j := start(t, cfg)
	j.out.await(2, "ready")
	send <- syscall.SIGINT
	j.out.await(2, "signal 2")
	send <- syscall.SIGINT
	report := j.wait()
	if report.ExitStatus() != 128+2 {
		t.Errorf("exit status %d, want %d", report.ExitStatus(), 128+2)
	}
	for rank, r := range report.Ranks {
		if r.Status.Signal() != syscall.SIGKILL {
			t.Errorf("rank %d ended with %#x, want it killed", rank, r.Status)
		}
	}
}

func TestGraceEnds(t *testing.T) {
	cfg, send := withSignals(config("listener", 2))
	cfg.SignalGrace = 50 * time.Millisecond
	j := start(t, cfg)
	j.out.await(2, "ready")
	send <- syscall.SIGHUP
	if report := j.wait(); report.ExitStatus() != 128+1 || report.Ranks[0].Status.Signal() != syscall.SIGKILL {
		t.Errorf("exit status %d, rank 0 %#x; want %d and killed", report.ExitStatus(), report.Ranks[0].Status, 128+1)
	}
}

// A suspended rank is resumed so that it can exit in good order.
func TestSuspendedRankIsResumedToEnd(t *testing.T) {
	cfg, send := withSignals(config("listener", 1, "LISTEN_END=15"))
	cfg.SignalGrace = proctest.Timeout
	j := start(t, cfg)
	var pid int
	fmt.Sscan(j.out.await(1, "ready")[0], &pid)
	proctest.Watch(t, pid).Signal(syscall.SIGSTOP)
	send <- syscall.SIGTERM
	if report := j.wait(); report.Ranks[0].Status != 0 {
		t.Errorf("rank 0 ended with %#x", report.Ranks[0].Status)
	}
}

// Signals come from another process, through the signal handlers of a front end process.
func TestFrontEndSuspendsWithItsRanks(t *testing.T) {
	front := startFrontEnd(t, "listener", 2, "LISTEN_END=15")
	ready := front.out.await(2, "ready")
	for round := range 2 {
		front.Signal(syscall.SIGTSTP)
		front.AwaitState('T')
		for _, rest := range ready {
			var pid int
			fmt.Sscan(rest, &pid)
			proctest.Watch(t, pid).AwaitState('T')
		}
		front.Signal(syscall.SIGCONT)
		proctest.Eventually(t, fmt.Sprintf("each rank is resumed %d times", round+1), func() bool {
			for rank := range ready {
				if strings.Count(front.out.String(), fmt.Sprintf("[%d] signal %d\n", rank, syscall.SIGCONT)) <= round {
					return false
				}
			}
			return true
		}, front.out)
	}
	front.Signal(syscall.SIGTERM)
	if got := front.wait(); got != 128+15 {
		t.Errorf("exit status %d, want %d", got, 128+15)
	}
}

// Under nohup, SIGHUP ends neither the front end nor its ranks.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	front := startFrontEnd(t, "listener", 2, "LISTEN_END=15", "FRONT_DEAF=1")
	for rank, rest := range front.out.await(2, "ready") {
		if !strings.HasSuffix(rest, "ignores hangup: true") {
			t.Errorf("rank %d does not ignore SIGHUP", rank)
		}
	}
	front.Signal(syscall.SIGHUP)
	front.Signal(syscall.SIGUSR1)
	front.out.await(2, fmt.Sprintf("signal %d", syscall.SIGUSR1))
	if strings.Contains(front.out.String(), "signal 1\n") {
		t.Errorf("the hangup was passed on:\n%s", front.out)
	}
	front.Signal(syscall.SIGTERM)
	if got := front.wait(); got != 128+15 {
		t.Errorf("exit status %d, want %d", got, 128+15)
	}
}

// The front end ignores the signals that stop readers and writers in the background. Ranks do not
// inherit that.
func TestRanksStopInTheBackground(t *testing.T) {
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTIN, syscall.SIGTTOU)
	cfg := config("plan", 1)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/grep", []string{"grep", "SigIgn", "/proc/self/status"}
	cfg.Output.Raw = true
	j := start(t, cfg)
	j.wait()
	var ignored uint64
	if _, err := fmt.Sscanf(j.out.String(), "SigIgn: %x", &ignored); err != nil {
		t.Fatalf("%q: %v", j.out, err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTTIN, syscall.SIGTTOU} {
		if ignored&(1<<(sig-1)) != 0 {
			t.Errorf("the rank ignores signal %d: %s", sig, j.out)
		}
	}
}
