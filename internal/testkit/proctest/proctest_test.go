package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	roleEcho = Role("echo", func(s *Self) error {
		for {
			line, err := s.Hear()
			if err != nil {
				return nil // the test has closed the pipe
			}
			s.Say("%s %q", line, s.Args)
		}
	})
	roleFile = Role("file", func(s *Self) error {
		_, err := fmt.Fprintf(s.File(0), "role %q", s.Args)
		return err
	})
	roleFail  = Role("fail", func(*Self) error { return errors.New("as asked") })
	rolePanic = Role("panic", func(*Self) error { panic("as asked") })
	roleHang  = Role("hang", func(s *Self) error {
		// With the race detector, what the runtime itself writes after SIGQUIT may lack the stack of a goroutine that runs.
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGQUIT)
		s.Say("hanging")
		<-quit
		fmt.Fprintln(os.Stderr, Stacks())
		os.Exit(2)
		return nil
	})
	roleWatchdog = Role("watchdog", func(*Self) error {
		watchdog("TestOfRole", time.Millisecond)
		hang()
		return nil
	})
	roleExit = Role("exit", func(s *Self) error { // with a status, after finding so many things left, within a limit
		status, err1 := strconv.Atoi(s.Args[0])
		found, err2 := strconv.Atoi(s.Args[1])
		limit, err3 := time.ParseDuration(s.Args[2])
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		exit(status, limit, func() []string {
			found--
			return slices.Repeat([]string{"a file"}, max(found, 0))
		})
		return nil
	})
	roleParent = Role("parent", func(s *Self) error { // its test does not end its processes
		p := Start(&recorder{}, Command(roleHang))
		s.Say("%d", p.PID())
		hang()
		return nil
	})
)

func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// recorder is the testing.TB of a test that is expected to fail.
type recorder struct {
	testing.TB
	text     strings.Builder
	cleanups []func()
	failed   bool
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(format string, args ...any) {
	fmt.Fprintf(&r.text, format+"\n", args...)
}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	r.Logf(format, args...)
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs a test to the end of its cleanups.
func record(t *testing.T, test func(t testing.TB)) (failed bool, text string) {
	r := &recorder{TB: t}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			for len(r.cleanups) > 0 {
				last := len(r.cleanups) - 1
				r.cleanups[last]()
				r.cleanups = r.cleanups[:last]
			}
		}()
		test(r)
	}()
	<-over
	return r.failed, r.text.String()
}

func TestTestAndRoleTalk(t *testing.T) {
	p := Start(t, Command(roleEcho, "a", "b c"))
	for range 3 {
		p.Say("hello")
		p.Expect(`hello ["a" "b c"]`)
	}
	p.Stop()
	p.Say("stopped")
	p.Resume()
	if got := p.Hear(); got != `stopped ["a" "b c"]` {
		t.Errorf("it says %q", got)
	}
	p.Wait()
	if err := p.End(); err != nil {
		t.Errorf("a second End: %v", err)
	}
}

func TestRoleInheritsFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := StartWith(t, w, roleFile, "from", 1)
	w.Close()
	b := make([]byte, 100)
	if n, err := r.Read(b); string(b[:n]) != `role ["from" "1"]` {
		t.Errorf("%q, %v", b[:n], err)
	}
	p.Wait()
}

// A process that fails in any way fails the test that waits for it, with the output of the process.
func TestFailureOfProcessFailsTest(t *testing.T) {
	hearFrom := func(t testing.TB, p *Process) { p.Hear() }
	wait := func(t testing.TB, p *Process) { p.Wait() }
	for _, tc := range []struct {
		name, role string
		do         func(t testing.TB, p *Process)
		status     int
		want       string
	}{
		{"error", roleFail, wait, ExitError, "role fail: exit status 70\nas asked"},
		{"error while the test listens", roleFail, hearFrom, ExitError, "role fail: exit status 70\nas asked"},
		{"error that the test does not wait for", roleFail, func(t testing.TB, p *Process) {
			Watch(t, p.PID()).AwaitState('Z')
		}, ExitError, "role fail, which the test did not wait for: exit status 70\nas asked"},
		{"panic", rolePanic, wait, 2, "panic: as asked"},
		{"unknown role", "no such role", wait, ExitNoRole, `no role "no such role"`},
		{"killed", roleEcho, func(t testing.TB, p *Process) {
			p.Signal(syscall.SIGKILL)
			p.Say("hello")
			p.Hear()
		}, -1, "role echo: signal: killed"},
		{"not killed", roleFail, func(_ testing.TB, p *Process) { p.WaitKilled() }, ExitError, "exit status 70, want SIGKILL\nas asked"},
		{"wrong words", roleHang, func(_ testing.TB, p *Process) { p.Expect("bye") }, 2, `role hang says "hanging", want "bye"`},
		{"hangs", roleHang, func(_ testing.TB, p *Process) {
			p.Hear()
			p.hangs.Reset(0)
			p.Wait()
		}, 2, "proctest.runRole("},
		{"hangs, and has no limit before the wait", roleHang, func(_ testing.TB, p *Process) {
			p.Hear()
			p.NoLimit().limit = time.Millisecond
			p.Wait()
		}, 2, "proctest.runRole("},
		{"hangs, and is stopped", roleHang, func(_ testing.TB, p *Process) {
			p.Hear()
			p.Stop()
			p.hangs.Reset(0)
			p.Wait()
		}, 2, "proctest.runRole("},
		{"runs when the test fails", roleHang, func(t testing.TB, p *Process) {
			p.Hear()
			t.Fatalf("for another reason")
		}, 2, "proctest.runRole("},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p *Process
			failed, text := record(t, func(t testing.TB) {
				p = Start(t, Command(tc.role))
				tc.do(t, p)
			})
			if status := p.Cmd.ProcessState.ExitCode(); !failed || status != tc.status || !strings.Contains(text, tc.want) {
				t.Errorf("failed %v, exit status %d, want %d, and %q in\n%s", failed, status, tc.status, tc.want, text)
			}
		})
	}
}

// A watched process that outlives its test fails the test, and is killed.
func TestSurvivorFailsTest(t *testing.T) {
	p := Start(t, Command(roleHang))
	failed, text := record(t, func(t testing.TB) { watch(t, p.PID(), time.Millisecond) })
	if want := fmt.Sprintf("process %d outlives the test\n", p.PID()); !failed || text != want {
		t.Errorf("failed %v with %q, want %q", failed, text, want)
	}
	p.WaitKilled()
}

// The end of a test ends its processes.
func TestEndOfTestEndsProcess(t *testing.T) {
	var p *Process
	if failed, text := record(t, func(t testing.TB) {
		p = Start(t, Command(roleHang))
		p.Hear()
	}); failed {
		t.Error(text)
	}
	p.WaitKilled()
}

func TestRunReturnsStatusAndOutput(t *testing.T) {
	status, out, errs := Run(t, Command(roleFail))
	if status != ExitError || out != "" || errs != "as asked\n" {
		t.Errorf("%d, %q, %q", status, out, errs)
	}
	cmd := Command(roleEcho)
	cmd.Stdin = strings.NewReader("in\n")
	if status, out, errs = Run(t, cmd); status != 0 || out != "in []\n" || errs != "" {
		t.Errorf("%d, %q, %q", status, out, errs)
	}
}

// What never happens fails the test with the caller's words and the stacks of all goroutines.
func TestWaitInVain(t *testing.T) {
	for name, wait := range map[string]func(t testing.TB){
		"condition": func(t testing.TB) {
			eventually(t, 50*time.Millisecond, "pigs fly", func() bool { return false }, []any{time.Second})
		},
		"channel": func(t testing.TB) {
			receive(t, 50*time.Millisecond, "pigs fly", make(chan int), []any{time.Second})
		},
	} {
		failed, text := record(t, wait)
		if !failed || !strings.HasPrefix(text, "not within 50ms: pigs fly\n1s\n") || !strings.Contains(text, "proctest.TestWaitInVain(") {
			t.Errorf("%s: failed %v with\n%s", name, failed, text)
		}
	}
}

// Limits grow until the loop ends, and fail the test if it does not.
func TestLimitsGrow(t *testing.T) {
	for name, end := range map[string]int{"at once": 1, "at last": 3, "never": 4} {
		var got []time.Duration
		failed, text := record(t, func(t testing.TB) {
			for limit := range Limits(t, "pigs fly", time.Second) {
				if got = append(got, limit); len(got) == end {
					break
				}
			}
		})
		want := []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}[:min(end, 3)]
		if !slices.Equal(got, want) || failed != (end > 3) || failed && text != "not within 16s: pigs fly\n" {
			t.Errorf("%s: limits %v, want %v; failed %v with %q", name, got, want, failed, text)
		}
	}
}

func TestWaitEnds(t *testing.T) {
	calls := 0
	Eventually(t, "the third call", func() bool { calls++; return calls == 3 })
	c := make(chan int, 1)
	c <- calls
	if got := Receive(t, "a number", c); got != 3 {
		t.Errorf("%d calls, want 3", got)
	}
}

func TestWatchdogWritesStacks(t *testing.T) {
	status, _, errs := Run(t, Command(roleWatchdog))
	if status != 2 || !strings.Contains(errs, "TestOfRole: not over after 1ms") || !strings.Contains(errs, "proctest.runRole(") {
		t.Errorf("exit status %d\n%s", status, errs)
	}
	Watchdog(t)()
}

// A process does not survive a test binary that ends without its cleanups.
func TestEndOfTestBinaryEndsProcess(t *testing.T) {
	p := Start(t, Command(roleParent))
	pid, err := strconv.Atoi(p.Hear())
	if err != nil {
		t.Fatal(err)
	}
	child := Watch(t, pid)
	child.MustRun()
	child.Signal(syscall.SIGSTOP)
	child.AwaitState('T')
	p.Kill()
	child.MustEnd()
}

func TestExitFailsForWhatIsLeft(t *testing.T) {
	for _, tc := range []struct {
		status, found, limit string
		want                 int
	}{{"0", "0", "1m", 0}, {"0", "3", "1m", 0}, {"0", "1000", "1s", 1}, {"3", "0", "1m", 3}} {
		status, _, errs := Run(t, Command(roleExit, tc.status, tc.found, tc.limit))
		if status != tc.want || strings.Contains(errs, "left behind:\na file") != (tc.want == 1) {
			t.Errorf("status %s, %s things: exit status %d, want %d, and %q", tc.status, tc.found, status, tc.want, errs)
		}
	}
}
