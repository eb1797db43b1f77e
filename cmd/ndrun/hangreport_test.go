package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// stuck is the state of a rank that is about to hang.
type stuck struct {
	ctx    context.Context
	job    *softnd.Job
	cq     nd.CompletionQueue
	region nd.MemoryRegion
	mem    []byte
	peer   nd.Endpoint // of rank 1 in rank 0, and the reverse; else nil
}

// deadlocks are the ways in which ranks hang, by name: the actions of each rank after Init and
// after ranks 0 and 1 are connected.
var deadlocks = map[string]func(s *stuck) error{
	"missing receive": func(s *stuck) error {
		switch s.job.Rank() {
		case 0:
			return s.result()
		case 2:
			return s.job.Barrier(s.ctx)
		}
		if err := s.peer.Send(1, s.list(), 0); err != nil {
			return err
		}
		_ = s.result() // and goes on, as if it had been received
		return s.job.Barrier(s.ctx)
	},
	"lost notify": func(s *stuck) error {
		if s.job.Rank() == 0 {
			if err := s.peer.Receive(1, s.list()); err != nil {
				return err
			}
		}
		if err := s.job.Barrier(s.ctx); err != nil {
			return err
		}
		switch s.job.Rank() {
		case 0:
			return s.cq.Notify(s.ctx, nd.NotifySolicited)
		case 1:
			if err := s.peer.Send(1, s.list(), 0); err != nil { // not solicited
				return err
			}
		}
		return s.job.Barrier(s.ctx)
	},
	"crossed barriers": func(s *stuck) error {
		if s.job.Rank() != 1 {
			return s.job.Barrier(s.ctx) // and would send then
		}
		if err := s.peer.Receive(1, s.list()); err != nil {
			return err
		}
		return s.result()
	},
	"crossed polls": func(s *stuck) error {
		if s.job.Rank() != 1 {
			return s.job.Barrier(s.ctx)
		}
		if err := s.peer.Receive(1, s.list()); err != nil {
			return err
		}
		for results := make([]nd.Result, 1); s.cq.Poll(results) == 0; {
		}
		return nil
	},
	"stopped rank": func(s *stuck) error {
		if s.job.Rank() == 1 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			time.Sleep(time.Hour) // it takes a moment
		}
		return s.job.Barrier(s.ctx)
	},
	"again and again": func(s *stuck) error {
		in := bufio.NewScanner(os.Stdin)
		for range 2 {
			if s.job.Rank() == 0 && !in.Scan() {
				return errors.New("the test has closed the pipe")
			}
			if err := s.job.Barrier(s.ctx); err != nil {
				return err
			}
		}
		return s.job.Close()
	},
	"goes on": func(s *stuck) error {
		for {
			if err := s.job.Barrier(s.ctx); err != nil {
				return err
			}
		}
	},
	"slow receiver": func(s *stuck) error {
		if s.job.Rank() == 1 {
			for s.ctx.Err() == nil { // it computes, and posts no Receive
			}
		}
		if s.job.Rank() == 0 {
			if err := s.peer.Send(1, s.list(), 0); err != nil {
				return err
			}
			return s.result()
		}
		return s.job.Barrier(s.ctx)
	},
	"many stacks": func(s *stuck) error {
		for i := range 300 {
			go deep(i, s.ctx.Done())
		}
		deep(300, s.ctx.Done())
		return nil
	},
	"exited rank": func(s *stuck) error {
		if err := s.job.Barrier(s.ctx); err != nil {
			return err
		}
		if s.job.Rank() == 1 {
			return s.job.Close()
		}
		for s.mem[0] == 0 { // what rank 1 was to write
			time.Sleep(time.Millisecond)
		}
		return nil
	},
}

// deep waits forever, below the given number of calls.
func deep(calls int, never <-chan struct{}) {
	if calls > 0 {
		deep(calls-1, never)
	}
	<-never
}

// runHang is a rank of a job that hangs.
func runHang() error {
	how, ctx := os.Args[1], context.Background()
	switch early := os.Getenv(softnd.EnvRank) == "1"; {
	case early && how == "exited before":
		return nil
	case early && how == "never arrives":
		time.Sleep(time.Hour)
	}
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	s := &stuck{ctx: ctx, job: job}
	if s.cq, err = job.Adapter().CreateCompletionQueue(ctx, 8); err != nil {
		return err
	}
	if s.region, err = job.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite); err != nil {
		return err
	}
	s.mem = s.region.Bytes()
	if job.Rank() < 2 {
		cfg := nd.EndpointConfig{ReceiveCQ: s.cq, InitiatorCQ: s.cq, ReceiveDepth: 4, InitiatorDepth: 4, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}
		if s.peer, err = job.Connect(ctx, 1-job.Rank(), cfg); err != nil {
			return err
		}
	}
	fmt.Println("hangs")
	return deadlocks[how](s)
}

func (s *stuck) list() nd.SGL {
	return nd.One(nd.SGE{Buffer: s.mem[:8], Token: s.region.LocalToken()})
}

// result waits for one result.
func (s *stuck) result() error {
	_, err := s.cq.Wait(s.ctx, make([]nd.Result, 1))
	return err
}

// awaitReport reads the messages of ndrun until a report about a job without progress matches all patterns. A slow job
// may make no progress before it hangs; then there is another report. If none matches for long after the first, awaitReport ends the job:
// a standstill is reported once, and a machine that was busy in that moment needs another job.
func awaitReport(ndrun *proctest.Process, lines *bufio.Scanner, patterns ...string) (report string, found bool) {
	var late *time.Timer
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ndrun: no rank has made progress for ") {
			report = ""
			if late == nil {
				late = time.AfterFunc(proctest.Timeout/4, func() { _ = ndrun.Cmd.Process.Signal(syscall.SIGTERM) })
				defer late.Stop()
			}
		}
		report += lines.Text() + "\n"
		if !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(report) }) {
			return report, true
		}
	}
	return report, false
}

// endHanging awaits a report of ndrun with --hang-after, ends the job, and returns the report.
func endHanging(t *testing.T, cmd func(hangAfter string) *exec.Cmd, patterns ...string) (report string) {
	t.Helper()
	for limit := range proctest.Limits(t, strings.Join(patterns, ", "), 700*time.Millisecond) {
		p, lines := startReadingErrors(t, cmd(limit.String()))
		var found bool
		report, found = awaitReport(p, lines, patterns...)
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() {
		}
		if got := status(p.End()); got != 128+int(syscall.SIGTERM) {
			t.Errorf("exit status %d after\n%s", got, report)
		}
		if found {
			break
		}
		t.Logf("--hang-after %v: want %q in\n%s", limit, patterns, report)
	}
	return report
}

// ndrun names the cause of a hang.
func TestHangReport(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"missing receive":  `(?s)ndrun: likely cause: rank 0 (has posted no receive on endpoint 1 for the send of rank 1|waits for a result that cannot come.*failed: .*has posted no receive)`,
		"lost notify":      `ndrun: likely cause: rank 0 waits in notify \(NotifySolicited\) at completion queue 1, which already holds results \(1\)`,
		"crossed barriers": `ndrun: likely cause: the ranks wait for each other in a circle\nndrun:   rank 0 waits for rank 1: barrier 2\nndrun:   rank 1 waits for rank 0: a message on endpoint 1\n`,
		"crossed polls":    `ndrun: likely cause: the ranks wait for each other in a circle\nndrun:   rank 0 waits for rank 1: barrier 2\nndrun:   rank 1 waits for rank 0: a message on endpoint 1\n`,
		"stopped rank":     `ndrun: likely cause: rank 1 \(.*, pid \d+\) is not responding: a signal or a debugger has stopped it; ranks 0,2 wait for it \(barrier 2\)`,
		"exited rank":      `ndrun: likely cause: rank 1 \(.*, pid \d+\) exited with code 0, while others still run`,
		"exited before":    `ndrun: likely cause: rank 1 \(.*, pid \d+\) exited with code 0 without having called softnd.Init \(in C snd_job_init\); ranks 0,2 wait for it \(init \(barrier 1\)\)`,
		"never arrives":    `ndrun: likely cause: rank 1 never arrived: not in softnd.Init; ranks 0,2 wait for it \(init \(barrier 1\)\)`,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			report := filepath.Join(t.TempDir(), "report")
			var text string
			var got, before int
			for limit := range proctest.Limits(t, want+", and again after SIGQUIT", 700*time.Millisecond) {
				cmd := ndrun(t, "-n", "3", "-env", proctest.RoleEnv+"=hang", "--hang-after", limit.String(), "--report", report, testBinary(t), how)
				p, lines := startReadingErrors(t, cmd)
				var found bool
				text, found = awaitReport(p, lines, want)
				if err := cmd.Process.Signal(syscall.SIGQUIT); found && err != nil {
					t.Error(err)
				}
				before = len(text)
				for lines.Scan() {
					text += lines.Text() + "\n"
				}
				got = status(p.End())
				if found && strings.Contains(text[before:], "ndrun: likely cause: ") { // a busy machine leaves no time for the second diagnosis
					break
				}
				t.Logf("--hang-after %v: want %s, and a cause after SIGQUIT, in\n%s", limit, want, text)
			}
			if got != 128+int(syscall.SIGQUIT) && got != 2 { // 2 is a Go program's own after SIGQUIT
				t.Fatalf("exit status %d after\n%s", got, text)
			}
			if !strings.Contains(text, "ndrun.runHang") {
				t.Errorf("no stack of a rank in\n%s", text)
			}
			var told struct{ Hang []string }
			if b, err := os.ReadFile(report); err != nil || json.Unmarshal(b, &told) != nil ||
				!slices.ContainsFunc(told.Hang, func(s string) bool { return strings.HasPrefix(s, "likely cause: ") }) {
				t.Errorf("report: %q, %v", told.Hang, err)
			}
		})
	}
}

// If --timeout ends a job that makes progress, ndrun says so, and finds no cause of a hang.
func TestTimeoutOfAJobThatMakesProgress(t *testing.T) {
	t.Parallel()
	report := filepath.Join(t.TempDir(), "report")
	var got int
	var errOut string
	all := regexp.MustCompile(`ndrun: processor time: rank 0 [0-9.]+m?s, rank 1 .*, rank 2 `)
	for limit := range proctest.Limits(t, "the ranks are connected, and make progress", 3*time.Second) {
		begun, connected := time.Now(), false // before ndrun begins to count
		p := proctest.Start(t, ndrun(t, "-n", "3", "-env", proctest.RoleEnv+"=hang", "--timeout", limit.String(), "--report", report, testBinary(t), "goes on"))
		for !connected && time.Since(begun) < limit {
			time.Sleep(10 * time.Millisecond)
			connected = strings.Count(p.Out.String(), "hangs\n") == 3 && time.Since(begun) < limit
		}
		if got, errOut = status(p.End()), p.Err.String(); connected && strings.Contains(errOut, "ndrun: the job makes progress") {
			break // else the machine has stopped a rank for a second
		}
	}
	if got != 124 || !strings.Contains(errOut, "ndrun: the job makes progress, the last one ") || !all.MatchString(errOut) ||
		strings.Contains(errOut, "likely cause") || strings.Contains(errOut, "goroutine ") {
		t.Errorf("exit status %d\n%s", got, errOut)
	}
	var told struct{ Hang []string }
	if b, err := os.ReadFile(report); err != nil || json.Unmarshal(b, &told) != nil || len(told.Hang) == 0 || !strings.HasPrefix(told.Hang[0], "the job makes progress") {
		t.Errorf("report: %q, %v", told.Hang, err)
	}
}

// A rank that computes is named as slow. It is not blamed for the Receive that it has not posted yet.
func TestSlowRankIsNamed(t *testing.T) {
	t.Parallel()
	cmd := func(hangAfter string) *exec.Cmd {
		return ndrun(t, "-n", "3", "-env", proctest.RoleEnv+"=hang", "-env", softnd.EnvReceiveTimeout+"=1m", "--hang-after", hangAfter, testBinary(t), "slow receiver")
	}
	report := endHanging(t, cmd, `ndrun: likely cause: rank 1 \(.*, pid \d+\) is slow: it computes, or polls memory, and has used [0-9.]+m?s of processor time; .* for `, `ndrun: rank 2 \(`)
	if strings.Contains(report, "has posted no receive on endpoint") {
		t.Errorf("rank 1 is blamed in\n%s", report)
	}
}

// A rank that exits before softnd.Init is reported at once, without options or a signal.
func TestExitBeforeInit(t *testing.T) {
	cmd := ndrun(t, "-n", "3", "-env", proctest.RoleEnv+"=hang", testBinary(t), "exited before")
	p, lines := startReadingErrors(t, cmd)
	text := ""
	told := regexp.MustCompile(`ndrun: rank 1 ended without calling softnd.Init \(in C snd_job_init\), and (rank [02] waits|ranks 0,2 wait) for it there: call it in all ranks`)
	for !told.MatchString(text) && lines.Scan() {
		text += lines.Text() + "\n"
	}
	if !told.MatchString(text) {
		t.Errorf("the early exit is not reported:\n%s", text)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	for lines.Scan() {
	}
	_ = p.End()
}

// If a signal ends a hanging job, ndrun reports the causes. A job that makes progress is not
// diagnosed.
func TestSignalToHangingJob(t *testing.T) {
	t.Parallel()
	// On a busy machine a goroutine of a rank may be running; then ndrun cannot report a circle.
	const crossed = `ndrun: likely cause: (the ranks wait for each other in a circle\n|rank [01] .* is in (barrier 2|wait at completion queue 1), and another of its goroutines runs)`
	for _, tc := range []struct {
		how    string
		signal syscall.Signal
		cause  string
	}{
		{"crossed barriers", syscall.SIGTERM, crossed},
		{"crossed barriers", syscall.SIGINT, crossed},
		{"never arrives", syscall.SIGTERM, `ndrun: likely cause: rank 1 never arrived: not in softnd.Init`},
		{"goes on", syscall.SIGTERM, ""},
	} {
		t.Run(tc.how+" "+tc.signal.String(), func(t *testing.T) {
			t.Parallel()
			text := ""
			for limit := range proctest.Limits(t, "the signal finds the job in this state", time.Second) {
				args := []string{"-n", "2", "-env", proctest.RoleEnv + "=hang", testBinary(t), tc.how}
				if tc.cause != "" {
					args = append([]string{"--hang-after", limit.String()}, args...)
				}
				p, lines := startReadingErrors(t, ndrun(t, args...))
				found := true
				if tc.cause == "" {
					p.Hear() // both are connected
					p.Hear()
				} else if text, found = awaitReport(p, lines, tc.cause); !found {
					t.Logf("want %q before the signal in\n%s", tc.cause, text)
				}
				time.Sleep(idleTime) // the report may have been requested before the last progress of the ranks
				p.Signal(tc.signal)
				text = ""
				for lines.Scan() {
					text += lines.Text() + "\n"
				}
				if got := status(p.End()); got != 128+int(tc.signal) {
					t.Errorf("exit status %d, want %d", got, 128+int(tc.signal))
				}
				if tc.cause == "" && strings.Contains(text, "no rank has made progress for ") {
					continue // the machine was busy, and a standstill is reported once
				}
				if _, after, found := strings.Cut(text, "ndrun: a signal ends the job; "); found {
					text = after // without the rest of the report before
				}
				if found && regexp.MustCompile(tc.cause).MatchString(text) {
					break
				}
				t.Logf("want %q in\n%s", tc.cause, text) // a busy machine needs long for a diagnosis, or the rank seems to compute
			}
			if tc.cause == "" && strings.Contains(text, "cause") || strings.Contains(text, "stack of") {
				t.Errorf("want no cause and no stack in\n%s", text)
			}
		})
	}
}

// A job that makes progress and hangs again is reported again.
func TestHangIsReportedAgain(t *testing.T) {
	t.Parallel()
	for limit := range proctest.Limits(t, "both standstills are reported", 500*time.Millisecond) {
		cmd := ndrun(t, "-n", "2", "-env", proctest.RoleEnv+"=hang", "--hang-after", limit.String(), testBinary(t), "again and again")
		p, lines := startReadingErrors(t, cmd)
		reports := 0
		for ; reports < 2; reports++ {
			want := fmt.Sprintf(`ndrun: rank 1 .*: barrier %d for `, reports+2) // rank 0 waits for a line from the test
			if report, found := awaitReport(p, lines, want); !found {
				t.Logf("--hang-after %v: want %s in\n%s", limit, want, report)
				break
			}
			p.Say("go on")
		}
		if reports == 2 {
			p.Wait()
			break
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() {
		}
		_ = p.End()
	}
}

// If no process reads the messages of ndrun, --timeout still ends the job.
func TestHangReportWithoutReader(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--timeout", "1"}, {"--hang-after", "0.5"}} {
		cmd := ndrun(t, append(args, "-n", "2", "-env", proctest.RoleEnv+"=hang", testBinary(t), "many stacks")...)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		want := []int{124}
		if args[0] != "--timeout" {
			// By a signal as long as its last words cannot be written; a pipe that is full may have room for those.
			want = []int{-1, 128 + int(syscall.SIGINT)}
			for full := false; !full; time.Sleep(10 * time.Millisecond) {
				n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}, 0)
				full = n == 0 && err == nil
			}
		}
		w.Close()
		ended := make(chan struct{})
		go func() {
			for end := len(want) == 1; !end; {
				_ = cmd.Process.Signal(syscall.SIGINT)
				select {
				case <-ended:
					end = true
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
		_ = cmd.Wait()
		close(ended)
		if got := cmd.ProcessState.ExitCode(); !slices.Contains(want, got) {
			t.Errorf("%v: exit status %d, want one of %d", args, got, want)
		}
	}
}
