package launcher

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A stopped watchdog or supervisor is reported and does not prevent the end of the job.
func TestStoppedHelper(t *testing.T) {
	t.Parallel()
	for _, victims := range []string{watchdogName, supervisorName, watchdogName + " and " + supervisorName} {
		for _, tc := range []struct {
			name    string
			role    string
			signals int
			again   bool // the helper is stopped again whenever it is woken; then Run may return an error
			status  int
		}{
			{"no signal", "plan", 0, false, 0},
			{"ranks end at the first signal", "listener", 1, false, 128 + 15},
			{"second signal", "stubborn", 2, false, 128 + 15},
			{"second signal, stopped again and again", "stubborn", 2, true, 128 + 15},
		} {
			t.Run(victims+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				front := startFrontEnd(t, tc.role, 2, "LISTEN_END=15", "PLAN_0=gate exit", "PLAN_1=gate exit")
				supervisor, watchdog, ranks := front.helpers(2)
				var stopped []proctest.Watched
				for _, w := range []proctest.Watched{watchdog, supervisor} {
					if p, err := linux.ReadProcess(w.PID); err != nil || !strings.Contains(victims, p.Name) {
						continue
					}
					stopped = append(stopped, w)
					w.Signal(syscall.SIGSTOP)
					w.AwaitState('T')
				}
				for _, w := range stopped {
					awaitText(t, front.err, fmt.Sprintf("(pid %d)", w.PID), "is stopped by a signal or a debugger")
				}
				if tc.again {
					end := make(chan struct{})
					var stopper sync.WaitGroup
					stopper.Go(func() { stopAgain(stopped, end) })
					defer stopper.Wait() // before the pidfds are closed, whose numbers another test may get
					defer close(end)
				}
				if tc.signals == 0 {
					front.open('0')
					front.open('0')
					for _, w := range ranks {
						w.MustEnd()
					}
					if strings.Contains(victims, supervisorName) {
						supervisor.Signal(syscall.SIGCONT) // a stopped supervisor does not notice the end of the job
					}
				}
				switch tc.signals {
				case 1:
					front.Signal(syscall.SIGTERM)
				case 2: // or more: two signals that come at once are one
					for front.Send(syscall.SIGTERM) == nil {
						time.Sleep(50 * time.Millisecond)
					}
				}
				if got := front.wait(); got != tc.status && !(tc.again && got == 73) {
					t.Errorf("exit status %d, want %d: %s", got, tc.status, front.err)
				}
				for _, w := range append(ranks, supervisor, watchdog) {
					w.MustEnd()
				}
			})
		}
	}
}

// stopAgain stops processes each time that they are resumed, until end is closed.
func stopAgain(ws []proctest.Watched, end chan struct{}) {
	for {
		select {
		case <-end:
			return
		default:
			for _, w := range ws {
				_ = w.Send(syscall.SIGSTOP)
			}
		}
	}
}

// helpers finds the supervisor, the watchdog and the ranks of a front end when its ranks run.
func (f *frontEndProcess) helpers(ranks int) (supervisor, watchdog proctest.Watched, started []proctest.Watched) {
	f.t.Helper()
	var pids map[string][]int // by name; "" are the ranks
	proctest.Eventually(f.t, "the front's ranks run", func() bool {
		below, err := descendants(f.PID)
		if err != nil {
			f.t.Fatal(err)
		}
		pids = make(map[string][]int)
		for _, p := range below {
			switch parent, err := linux.ReadProcess(p.PPID); {
			case err != nil:
				return false
			case p.Name == watchdogName || p.Name == supervisorName:
				pids[p.Name] = append(pids[p.Name], p.PID)
			case parent.Name == supervisorName && p.Group == p.PID:
				pids[""] = append(pids[""], p.PID)
			}
		}
		return len(pids[""]) == ranks && strings.Count(f.out.String(), "\n") >= ranks
	}, f.err)
	for _, pid := range pids[""] {
		started = append(started, proctest.Watch(f.t, pid))
	}
	return proctest.Watch(f.t, pids[supervisorName][0]), proctest.Watch(f.t, pids[watchdogName][0]), started
}

func awaitText(t *testing.T, l *lineLog, texts ...string) {
	t.Helper()
	proctest.Eventually(t, fmt.Sprint("a line with ", texts), func() bool {
		for line := range strings.Lines(l.String()) {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				return true
			}
		}
		return false
	})
}
