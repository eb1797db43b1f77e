package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// family has the processes of a job whose ranks play "family".
type family struct {
	supervisor           proctest.Watched
	ranks, grandchildren []proctest.Watched
}

// parseFamily parses the output of those ranks.
func parseFamily(t *testing.T, told map[int]string) *family {
	t.Helper()
	f := new(family)
	for _, rest := range told {
		var grandchild, rank, supervisor int
		if _, err := fmt.Sscan(rest, &grandchild, &rank, &supervisor); err != nil {
			t.Fatalf("read %q: %v", rest, err)
		}
		if len(f.ranks) == 0 {
			f.supervisor = proctest.Watch(t, supervisor)
		}
		f.ranks = append(f.ranks, proctest.Watch(t, rank))
		f.grandchildren = append(f.grandchildren, proctest.Watch(t, grandchild))
	}
	return f
}

func (f *family) mustEnd() {
	for _, w := range f.ranks {
		w.MustEnd()
	}
	for _, w := range f.grandchildren {
		w.MustEnd()
	}
	f.supervisor.MustEnd()
}

// bystander starts a process that is in the same session but does not belong to the job, and
// checks at the end of the test that it lives.
func bystander(t *testing.T) {
	t.Helper()
	cmd := self("stubborn")
	cmd.Stdout = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := proctest.Watch(t, cmd.Process.Pid)
	t.Cleanup(func() {
		w.MustRun()
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func TestNothingOutlivesTheJob(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		family string // of the ranks: "deaf" ignores SIGTERM
		end    byte   // 'f': a rank fails; 'o': all end with 0
		status int
	}{
		{"a rank fails", "", 'f', 9},
		{"a rank fails, the others ignore SIGTERM", "deaf", 'f', 9},
		{"all end well", "", 'o', 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bystander(t)
			r, open := gate(t)
			cfg := config("family", 3, "FAMILY="+tc.family)
			cfg.Files = []*os.File{r}
			j := start(t, cfg)
			f := parseFamily(t, j.out.await(3, "grandchild"))
			open(tc.end)
			if tc.end == 'o' {
				open(tc.end)
				open(tc.end)
			}
			report := j.wait()
			// Not "will be": Run promises that they are gone when it returns.
			for _, w := range append(f.ranks, f.grandchildren...) {
				if !w.Ended(0) {
					t.Errorf("process %d lives after Run", w.PID)
				}
			}
			f.mustEnd()
			if got := report.ExitStatus(); got != tc.status {
				t.Errorf("exit status %d, want %d", got, tc.status)
			}
			if tc.end == 'o' {
				if len(report.leftover) != 3 || !strings.HasPrefix(strings.Join(report.Messages(), "\n"), "3 processes outlived the ranks and were stopped") {
					t.Errorf("left over %v, messages %q", report.leftover, report.Messages())
				}
			}
		})
	}
}

// A process that has left the rank's session gets SIGTERM like the ranks, and can still write
// output.
func TestStraysGetSIGTERMFirst(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, end string
		leftover  bool
	}{
		{"after a failure", "exit 3", false},
		{"after the end of all ranks", "exit 0", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config("", 1, "STRAY=trap 'echo bye; exit' TERM; echo ready >&3; while :; do sleep 0.01; done")
			cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/bash", []string{"bash", "-c", `
				exec 3> >(read; kill $$)
				trap "` + tc.end + `" TERM
				setsid bash -c "$STRAY" & while :; do sleep 0.01; done`}
			cfg.Grace = proctest.Timeout / 2 // the test takes long if it needs that
			if tc.leftover {                 // the whole grace is waited for
				cfg.Grace = 5 * time.Second
			}
			j := start(t, cfg)
			report := j.wait()
			if !strings.Contains(j.out.String(), "[0] bye\n") {
				t.Errorf("no last words of the stray: %q, %q", j.out, j.err)
			}
			if (len(report.leftover) > 0) != tc.leftover {
				t.Errorf("left over: %v", report.leftover)
			}
		})
	}
}

// Processes that are forked while the supervisor walks the process table are killed too.
func TestNothingOutlivesAForkingJob(t *testing.T) {
	mark := fmt.Sprintf("LAUNCHER_TEST_MARK=%d.forking", os.Getpid())
	for range 3 { // a busy machine may need longer to kill them all than the supervisor waits, and leaves them to the watchdog
		cfg := config("", 4, mark)
		cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", `
		trap "" TERM
		(while :; do sleep 600 & sleep 0.002; done) &
		echo ready
		[ $RANK = 3 ] && sleep 0.1 && exit 1
		wait`}
		cfg.Grace = 10 * time.Millisecond
		report := start(t, cfg).wait()
		if status := report.ExitStatus(); status != 1 {
			t.Errorf("exit status %d, want 1", status)
		}
		proctest.Eventually(t, "no process is left", func() bool { return len(marked(t, mark)) == 0 })
		if len(report.stuck) == 0 {
			return
		}
		t.Logf("the supervisor gave up on %v", report.stuck)
	}
	t.Error("the supervisor gave up three times")
}

// If one of the launcher's processes is killed, the whole job is killed, and no other process.
func TestKilledHelperEndsJob(t *testing.T) {
	for _, tc := range []struct {
		victim string
		status int // of the front end
		text   string
	}{
		{"front", -1, ""},
		{"watchdog", 72, watchdogName + " was killed by signal SIGKILL (killed)"},
		{"supervisor", 72, supervisorName + " was killed by signal SIGKILL (killed)"},
	} {
		t.Run(tc.victim, func(t *testing.T) {
			bystander(t)
			front := startFrontEnd(t, "family", 3, "FRONT_BYSTANDER=1")
			// A child that the front end had before the job, as if a shell had called exec.
			var own int
			if _, err := fmt.Sscan(front.out.await(1, "bystander")[-1], &own); err != nil {
				t.Fatal(err)
			}
			ownChild := proctest.Watch(t, own)
			f := parseFamily(t, front.out.await(3, "grandchild"))
			supervisor, err := linux.ReadProcess(f.supervisor.PID)
			if err != nil {
				t.Fatal(err)
			}
			if supervisor.Name != supervisorName {
				t.Errorf("the supervisor is called %q", supervisor.Name)
			}
			watchdog := proctest.Watch(t, supervisor.PPID)
			victims := map[string]proctest.Watched{"front": front.Watched, "watchdog": watchdog, "supervisor": f.supervisor}
			victims[tc.victim].Signal(syscall.SIGKILL)
			f.mustEnd()
			watchdog.MustEnd()
			if got := front.wait(); got != tc.status {
				t.Errorf("the front ended with %d, want %d", got, tc.status)
			}
			if !strings.Contains(front.err.String(), tc.text) {
				t.Errorf("no %q in %q", tc.text, front.err)
			}
			ownChild.MustRun()
			ownChild.Signal(syscall.SIGKILL)
		})
	}
}

// If supervisor and watchdog are killed at once, the kernel kills the ranks.
func TestRanksDieWithTheSupervisor(t *testing.T) {
	front := startFrontEnd(t, "plan", 3)
	var ranks []proctest.Watched
	var supervisor int
	for _, rest := range front.out.await(3, "ready") {
		var pid int
		fmt.Sscan(rest, &pid, &supervisor)
		ranks = append(ranks, proctest.Watch(t, pid))
	}
	p, err := linux.ReadProcess(supervisor)
	if err != nil {
		t.Fatal(err)
	}
	supervisors := []proctest.Watched{proctest.Watch(t, supervisor), proctest.Watch(t, p.PPID)}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, w := range supervisors {
			w.Signal(sig)
		}
	}
	for _, w := range ranks {
		w.MustEnd()
	}
	if got := front.wait(); got != 72 {
		t.Errorf("the front ended with %d, want 72", got)
	}
}

// Watchdog and supervisor hold neither the job's files nor its pipes open.
func TestHelpersHoldNoFiles(t *testing.T) {
	front := startFrontEnd(t, "plan", 2)
	var rank, supervisor int
	fmt.Sscan(front.out.await(2, "ready")[1], &rank, &supervisor)
	p, err := linux.ReadProcess(supervisor)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{supervisor, p.PPID} {
		// They let go right after the start, which the ranks do not wait for.
		var held []string
		proctest.Eventually(t, fmt.Sprintf("process %d holds no pipe", pid), func() bool {
			held = heldPipes(t, pid)
			return len(held) == 0
		}, &held)
	}
	if held := heldPipes(t, rank); len(held) != 2 { // its output and the gate
		t.Errorf("rank 1 holds %v: this test sees nothing", held)
	}
	front.Signal(syscall.SIGKILL)
}

// heldPipes returns a process's descriptors of pipes, except standard error.
func heldPipes(t *testing.T, pid int) (held []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		link, err := os.Readlink(dir + e.Name())
		if err == nil && e.Name() != "2" && strings.HasPrefix(link, "pipe:") {
			held = append(held, e.Name()+" = "+link)
		}
	}
	return held
}

// The front end is killed at random moments, also while it starts the other processes.
func TestFrontEndKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	first := startFrontEnd(t, "family", 4)
	first.out.await(4, "grandchild")
	whole := time.Since(begin)
	first.Signal(syscall.SIGKILL)
	const moments = 24
	for i := range moments {
		mark := fmt.Sprintf("LAUNCHER_TEST_MARK=%d.%d", os.Getpid(), i)
		front := startFrontEnd(t, "family", 4, mark)
		time.Sleep(whole * time.Duration(i) / (moments - 4))
		front.Signal(syscall.SIGKILL)
		var left []string
		proctest.Eventually(t, fmt.Sprintf("no process is left of moment %d", i), func() bool {
			left = marked(t, mark)
			return len(left) == 0
		}, &left)
	}
}

// marked returns the processes that have mark in their environment.
func marked(t *testing.T, mark string) (found []string) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		env, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err != nil || entry.Name() == "self" || entry.Name() == "thread-self" {
			continue
		}
		if strings.Contains("\x00"+string(env), "\x00"+mark+"\x00") {
			args, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
			found = append(found, entry.Name()+" "+string(args))
		}
	}
	return found
}

// frontEndProcess is a front end in its own process.
type frontEndProcess struct {
	proctest.Watched
	t        *testing.T
	out, err *lineLog
	end      func() error
	cmd      *exec.Cmd
	open     func(c byte) // the gate
}

// startFrontEnd starts a front end, with a gate as the ranks' FirstFile.
func startFrontEnd(t *testing.T, role string, ranks int, env ...string) *frontEndProcess {
	t.Helper()
	r, open := gate(t)
	cmd := self("front", append(env, "FRONT_RANK="+role, fmt.Sprintf("FRONT_SIZE=%d", ranks))...)
	f := &frontEndProcess{t: t, out: newLineLog(t), err: newLineLog(t), cmd: cmd, open: open}
	cmd.Stdout, cmd.Stderr = f.out, f.err
	cmd.ExtraFiles = []*os.File{r}
	// A group of its own, so that a stop signal works without a shell's job control.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := proctest.Start(t, cmd)
	f.end = p.End
	f.Watched = proctest.Watch(t, p.PID())
	go p.End() // so that it does not remain a zombie
	return f
}

// wait waits for the exit of the front end and for the end of its output. It returns the exit
// code, -1 if the front end was killed.
func (f *frontEndProcess) wait() int {
	f.t.Helper()
	if err := f.end(); errors.Is(err, exec.ErrWaitDelay) {
		f.t.Error("a process still holds the front end's output")
	}
	return f.cmd.ProcessState.ExitCode()
}
