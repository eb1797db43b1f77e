package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	Serve()
	proctest.Main()
	proctest.SideBySide(8) // they mostly wait
	code := m.Run()
	left, err := descendants(os.Getpid())
	if err != nil || len(left) > 0 {
		fmt.Fprintln(os.Stderr, "the tests left processes behind:", left, err)
		code = 1
	}
	os.Exit(code)
}

// config returns a job of ranks that play role.
func config(role string, ranks int, env ...string) Config {
	return Config{
		Apps: []App{{
			Ranks: ranks,
			Path:  "/proc/self/exe",
			Args:  []string{"/somewhere/" + role},
			Env:   append(append(os.Environ(), proctest.RoleEnv+"="+role), env...),
		}},
		RankEnv: func(rank int) []string { return []string{fmt.Sprintf("RANK=%d", rank)} },
	}
}

// run prepares and runs a job.
func run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("start job: %w", err)
	}
	return Prepare(cfg.ranks()).Run(ctx, cfg)
}

// runningJob is a job whose front end is this process.
type runningJob struct {
	t        *testing.T
	out, err *lineLog
	cancel   context.CancelFunc
	ended    chan struct{}
	report   *Report
	failure  error
}

// start runs a job in the background. It collects the output unless cfg has writers for it.
func start(t *testing.T, cfg Config) *runningJob {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	j := &runningJob{t: t, out: newLineLog(t), err: newLineLog(t), cancel: cancel, ended: make(chan struct{})}
	if cfg.Stdout == nil {
		cfg.Stdout = j.out
	}
	if cfg.Stderr == nil {
		cfg.Stderr = j.err
	}
	go func() {
		defer close(j.ended)
		j.report, j.failure = run(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		<-j.ended
	})
	return j
}

// wait waits for the end of a job and fails the test if Run returns an error.
func (j *runningJob) wait() *Report {
	j.t.Helper()
	report, err := j.result()
	if err != nil {
		j.t.Fatalf("Run: %v", err)
	}
	return report
}

func (j *runningJob) result() (*Report, error) {
	j.t.Helper()
	proctest.Receive(j.t, "the job ends", j.ended, j.out, j.err)
	return j.report, j.failure
}

// lineLog collects output, for tests that wait for a line.
type lineLog struct {
	proctest.Log
	t *testing.T
}

func newLineLog(t *testing.T) *lineLog { return &lineLog{t: t} }

// await waits until n complete lines have text after their label. It returns the rest of those
// lines by rank.
func (l *lineLog) await(n int, text string) map[int]string {
	l.t.Helper()
	var found map[int]string
	proctest.Eventually(l.t, fmt.Sprintf("%d ranks write a line with %q", n, text), func() bool {
		found = make(map[int]string)
		for line := range strings.Lines(l.String()) {
			var rank int
			if _, err := fmt.Sscanf(line, "[%d] ", &rank); err != nil || !strings.HasSuffix(line, "\n") {
				continue
			}
			_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "] ")
			if after, ok := strings.CutPrefix(rest, text); ok {
				found[rank] = strings.TrimSpace(after)
			}
		}
		return len(found) >= n
	}, l)
	return found
}

// gate returns a file for the ranks, and a function that sends one byte to a rank that reads it.
func gate(t *testing.T) (*os.File, func(c byte)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, func(c byte) {
		if _, err := w.Write([]byte{c}); err != nil {
			t.Error(err)
		}
	}
}

// readGate waits for a byte from descriptor GATE, or else FirstFile.
func readGate() (byte, error) {
	fd, err := strconv.Atoi(os.Getenv("GATE"))
	if err != nil {
		fd = FirstFile
	}
	b := make([]byte, 1)
	_, err = io.ReadFull(os.NewFile(uintptr(fd), "gate"), b)
	return b[0], err
}

// field returns a line of /proc/PID/status.
func field(t *testing.T, pid int, name string) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\n"+name)
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}
