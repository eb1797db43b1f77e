package launcher

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also started as front end and as rank. roleVar is the variable with its
// role.
const roleVar = "LAUNCHER_TEST_ROLE"

// testTimeout ends tests that hang. It is no requirement on speed.
const testTimeout = 60 * time.Second

func TestMain(m *testing.M) {
	Serve()
	if role := os.Getenv(roleVar); role != "" {
		play, ok := roles[role]
		if !ok {
			fmt.Fprintf(os.Stderr, "unknown role %q\n", role)
			os.Exit(70)
		}
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(71)
		}
		os.Exit(0)
	}
	// The race detector makes each process linger for a second at its end.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
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
			Env:   append(append(os.Environ(), roleVar+"="+role), env...),
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
	select {
	case <-j.ended:
	case <-time.After(testTimeout):
		j.t.Fatalf("the job does not end; its output:\n%s%s", j.out, j.err)
	}
	return j.report, j.failure
}

// lineLog collects output, for tests that wait for a line.
type lineLog struct {
	t    *testing.T
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func newLineLog(t *testing.T) *lineLog { return &lineLog{t: t, more: make(chan struct{}, 1)} }

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lineLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await waits until n complete lines have text after their label. It returns the rest of those
// lines by rank.
func (l *lineLog) await(n int, text string) map[int]string {
	l.t.Helper()
	alarm := time.After(testTimeout)
	for {
		found := make(map[int]string)
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
		if len(found) >= n {
			return found
		}
		select {
		case <-l.more:
		case <-alarm:
			l.t.Fatalf("%d ranks instead of %d wrote a line with %q; all output:\n%s", len(found), n, text, l)
		}
	}
}

// watched is a running process whose end the test waits for.
type watched struct {
	t     *testing.T
	pid   int
	pidfd int
}

func watch(t *testing.T, pid int) watched {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d should live: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return watched{t, pid, fd}
}

// dead reports whether the process has ended, and waits for at most d.
func (w watched) dead(d time.Duration) bool {
	w.t.Helper()
	fds := []unix.PollFd{{Fd: int32(w.pidfd), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

func (w watched) mustDie() {
	w.t.Helper()
	if !w.dead(testTimeout) {
		w.t.Errorf("process %d still lives", w.pid)
		_ = unix.PidfdSendSignal(w.pidfd, unix.SIGKILL, nil, 0)
	}
}

func (w watched) mustLive() {
	w.t.Helper()
	if w.dead(0) {
		w.t.Errorf("process %d has died", w.pid)
	}
}

// signal sends a signal through the pidfd, so it cannot hit another process.
func (w watched) signal(sig syscall.Signal) {
	w.t.Helper()
	if err := unix.PidfdSendSignal(w.pidfd, sig, nil, 0); err != nil {
		w.t.Fatalf("signal process %d: %v", w.pid, err)
	}
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

// take receives from c and fails the test after testTimeout.
func take[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(testTimeout):
		t.Fatal("nothing has come")
	}
	return v
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

// await polls until is returns true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
