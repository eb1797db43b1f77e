package window

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/shm"
)

// Executors in other processes are this test binary, started with a role in the environment.
const roleVariable = "WINDOW_TEST_ROLE"

const (
	exitError  = 70 // the role returned an error; a panic exits with 2
	exitNoRole = 64
)

// watchdog limits every wait. No test asserts how long anything takes.
const watchdog = 60 * time.Second

// roles are the functions that a started test binary can run. The arena is its first extra file.
var roles = map[string]func(*actor) error{
	"copier": playCopier,
	"poller": playPoller,
	"fail":   func(*actor) error { return errors.New("as asked") },
	"panic":  func(*actor) error { panic("as asked") },
}

// actor is the connection of a role to the test that started it.
type actor struct {
	arena *shm.Arena
	args  []string
	in    *bufio.Scanner
}

func (a *actor) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (a *actor) hear() (string, error) {
	if !a.in.Scan() {
		return "", errors.Join(errors.New("the test has closed the pipe"), a.in.Err())
	}
	return a.in.Text(), nil
}

func play(name string) int {
	f := roles[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", name)
		return exitNoRole
	}
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	a := &actor{args: os.Args[1:], in: bufio.NewScanner(os.Stdin)}
	var err error
	if a.arena, err = shm.Attach(ctx, os.NewFile(3, "arena")); err == nil {
		err = f(a)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitError
	}
	return 0
}

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(roleVariable); ok {
		os.Exit(play(name))
	}
	os.Exit(m.Run())
}

// child is a process that plays a role.
type child struct {
	t      testing.TB
	role   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errs   bytes.Buffer
	waited bool
}

// start starts a role. If it still runs when the test ends, it is killed.
func start(t testing.TB, a *shm.Arena, role string, args ...any) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	c := &child{t: t, role: role, cmd: exec.CommandContext(ctx, self, words...)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	c.cmd.ExtraFiles = []*os.File{a.File()}
	c.cmd.Stderr = &c.errs
	c.cmd.WaitDelay = 10 * time.Second
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		cancel()
		t.Fatalf("starting role %s: %v", role, err)
	}
	t.Cleanup(func() {
		defer cancel()
		if !c.waited {
			c.kill()
		}
	})
	return c
}

func (c *child) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.wait()
		c.t.Fatalf("role %s has closed its input: %v", c.role, err)
	}
}

// hear returns the next line that the role says.
func (c *child) hear() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.wait()
		c.t.Fatalf("role %s has closed its output (%v)", c.role, c.out.Err())
	}
	return c.out.Text()
}

func (c *child) end() error {
	c.waited = true
	c.in.Close()
	for c.out.Scan() {
	}
	return c.cmd.Wait()
}

// wait waits until the role has ended, and fails the test if it failed.
func (c *child) wait() {
	c.t.Helper()
	if err := c.end(); err != nil {
		c.t.Errorf("role %s: %v\n%s", c.role, err, strings.TrimSpace(c.errs.String()))
	}
}

// kill sends SIGKILL and waits for the process.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.end()
}

// stop sends SIGSTOP and returns when no thread of the process runs.
func (c *child) stop() {
	c.t.Helper()
	c.signal(unix.SIGSTOP)
	eventually(c.t, "the process stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			c.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // after the name, which may have any characters
		return strings.HasPrefix(rest, "T")
	})
}

func (c *child) resume() { c.t.Helper(); c.signal(unix.SIGCONT) }

func (c *child) signal(s unix.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("signal to role %s: %v", c.role, err)
	}
}

// eventually waits until a condition is true, for the time of the watchdog.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(watchdog); !ok(); yield() {
		if time.Now().After(deadline) {
			t.Fatalf("not within the time limit: %s", what)
		}
	}
}

// yield lets other goroutines and other processes run. A loop that only did one of the two would delay the other.
func yield() {
	runtime.Gosched()
	shm.Yield()
}

func TestRoleFailuresAreReported(t *testing.T) {
	a := newArena(t)
	for name, want := range map[string]int{"fail": exitError, "panic": 2, "no such role": exitNoRole} {
		c := start(t, a, name)
		c.end()
		if got := c.cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("role %q exits with %d, want %d: %s", name, got, want, &c.errs)
		}
	}
}
