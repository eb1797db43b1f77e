package launcher

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// deaths are the texts that OnDeath got.
type deaths struct {
	mu    sync.Mutex
	texts []string // guarded by mu
}

func (d *deaths) add(rank int, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.texts = append(d.texts, fmt.Sprintf("%d: %s", rank, text))
}

func (d *deaths) all() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.texts, "\n")
}

// goingOn returns a job of ranks with the given plans that goes on after a failure.
func goingOn(plans ...string) (Config, *deaths) {
	var env []string
	for rank, plan := range plans {
		env = append(env, fmt.Sprintf("PLAN_%d=%s", rank, plan))
	}
	cfg, d := config("plan", len(plans), env...), &deaths{}
	cfg.OnDeath = d.add
	return cfg, d
}

// Ranks that fail do not stop the others, and the report says how each rank has ended.
func TestJobOutlivesRanks(t *testing.T) {
	cfg, died := goingOn("gate exit 0", "exit 5", fmt.Sprint("signal ", int(syscall.SIGKILL)), "gate exit 0")
	r, open := gate(t)
	cfg.Files = []*os.File{r}
	cfg.Causes = func(int) []int { return []int{0} }
	var once sync.Once
	cfg.OnDeath = func(rank int, text string) {
		died.add(rank, text)
		if strings.Count(died.all(), "\n") == 1 {
			once.Do(func() { open('a'); open('b') }) // both deaths are reported: ranks 0 and 3 still run, and may end now
		}
	}
	report := start(t, cfg).wait()
	if code := report.ExitStatus(); code != exitCode(report.Ranks[report.First].Status) || code != 5 && code != 128+9 {
		t.Errorf("exit status %d, first to fail: %d", code, report.First)
	}
	for _, want := range []string{"1: rank 1 (", ") exited with code 5", "2: rank 2 (", ") was killed by signal SIGKILL (killed)"} {
		if !strings.Contains(died.all(), want) {
			t.Errorf("no %q in %q", want, died.all())
		}
	}
	if got := strings.Join(report.Messages(), "\n"); !strings.HasSuffix(got, "; 1 other rank failed, too; 2 ranks went on") {
		t.Errorf("%q", got)
	}
	for rank, want := range map[int]string{0: "exited with code 0", 1: "exited with code 5", 3: "exited with code 0"} {
		if got := report.Ranks[rank]; got.How() != want || got.Stopped {
			t.Errorf("rank %d: %s, stopped: %t", rank, got.How(), got.Stopped)
		}
	}
	if json := checkedJSON(t, report, 5, nil); json["on_death"] != "continue" {
		t.Errorf("%v", json)
	}
}

// After a death, the time limit still ends the job.
func TestTimeLimitEndsJobThatOutlivesARank(t *testing.T) {
	t.Parallel()
	for limit := range proctest.Limits(t, "a rank has died", time.Second) {
		cfg, died := goingOn("", "exit 5")
		cfg.Timeout = limit
		report := start(t, cfg).wait()
		if died.all() == "" {
			continue
		}
		if got := strings.Join(report.Messages(), "\n"); report.ExitStatus() != 5 || !report.TimedOut || !strings.Contains(got, "; the other rank was stopped") {
			t.Errorf("exit status %d, %q, %+v", report.ExitStatus(), got, report)
		}
		break
	}
}

// After a death, a signal and an abort still end the job.
func TestJobThatOutlivesRanksEnds(t *testing.T) {
	t.Parallel()
	aborts := make(chan Abort, 1)
	signals := make(chan os.Signal, 1)
	for name, tc := range map[string]struct {
		prepare func(cfg *Config)
		end     func() // after the death
		status  int
		message string
		check   func(r *Report) bool
	}{
		"signal": {func(cfg *Config) { cfg.Signals = signals }, func() { signals <- syscall.SIGINT }, 5, "job stopped by signal SIGINT", func(r *Report) bool { return r.Signal == syscall.SIGINT }},
		"abort":  {func(cfg *Config) { cfg.Aborts = aborts }, func() { aborts <- Abort{Rank: 0, Code: 7, Reason: "no more"} }, 7, "aborted the job with code 7: no more; 1 other rank failed, too", func(r *Report) bool { return r.Abort != nil && r.First == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, died := goingOn("", "exit 5")
			tc.prepare(&cfg)
			cfg.OnDeath = func(rank int, text string) {
				died.add(rank, text)
				tc.end()
			}
			report := start(t, cfg).wait()
			if got := strings.Join(report.Messages(), "\n"); report.ExitStatus() != tc.status || !strings.Contains(got, tc.message) || !tc.check(report) {
				t.Errorf("exit status %d, %q, %+v", report.ExitStatus(), got, report)
			}
		})
	}
}
