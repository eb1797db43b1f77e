package shm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary plays other processes too: if the environment names a role, it runs that role and
// exits.
const roleVariable = "SHM_TEST_ROLE"

const (
	exitError  = 70 // the role returned an error; a panic exits with 2
	exitNoRole = 64
)

// watchdog bounds calls that hang. No test depends on how long a call takes.
const watchdog = 60 * time.Second

var roles = map[string]func(*actor) error{}

// role registers a function for [start]. Use it in a var declaration.
func role(name string, play func(*actor) error) string {
	if roles[name] != nil {
		panic("two roles named " + name)
	}
	roles[name] = play
	return name
}

// actor is the connection of a role with the test that started it.
type actor struct {
	args []string
	in   *bufio.Scanner
	ctx  context.Context
}

// say sends a line to the test, hear waits for one.
func (a *actor) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (a *actor) hear() (string, error) {
	if !a.in.Scan() {
		return "", errors.Join(errors.New("the test hung up"), a.in.Err())
	}
	return a.in.Text(), nil
}

// file returns one of the inherited files.
func (a *actor) file(i int) *os.File { return os.NewFile(uintptr(3+i), "inherited") }

// join attaches to the arena in the first inherited file and joins it.
func (a *actor) join(rank int) (*Member, error) {
	f := a.file(0)
	defer f.Close()
	arena, err := Attach(a.ctx, f)
	if err != nil {
		return nil, err
	}
	return arena.Join(rank)
}

func play(name string) int {
	f := roles[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", name)
		return exitNoRole
	}
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	if err := f(&actor{os.Args[1:], bufio.NewScanner(os.Stdin), ctx}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitError
	}
	return 0
}

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(roleVariable); ok {
		os.Exit(play(name))
	}
	warmUp()
	files, segments := openFiles(), segments()
	code := m.Run()
	if code == 0 && !fuzzing() {
		code = checkLeftovers(files, segments)
	}
	os.Exit(code)
}

// warmUp makes the runtime open the descriptors that it keeps open.
func warmUp() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != f.DefValue {
			return true
		}
	}
	return false
}

func openFiles() map[string]string {
	open := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return open
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // the descriptor of the directory itself is closed now
			open[e.Name()] = to
		}
	}
	return open
}

func segments() (names []string) {
	for _, pattern := range []string{"/dev/shm/*softnd*", "/tmp/*softnd-arena*"} {
		found, _ := filepath.Glob(pattern)
		names = append(names, found...)
	}
	return names
}

// checkLeftovers fails the run if descriptors or named objects are left.
func checkLeftovers(files map[string]string, before []string) int {
	deadline := time.Now().Add(watchdog) // goroutines may still be closing descriptors
	for {
		left := openFiles()
		maps.DeleteFunc(left, func(fd, to string) bool { return files[fd] == to })
		named := slices.DeleteFunc(segments(), func(s string) bool { return slices.Contains(before, s) })
		if len(left) == 0 && len(named) == 0 {
			return 0
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "FAIL: left open: %v; left in the file system: %v\n", left, named)
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// child is a process that runs a role.
type child struct {
	t      testing.TB
	role   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errs   *bytes.Buffer
	waited bool
}

// casting configures start.
type casting struct {
	args  []string
	files []*os.File
	attr  *syscall.SysProcAttr
	env   []string
}

// start starts a role. If the process still runs when the test ends, it is killed.
func start(t testing.TB, role string, how casting) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startPath(t, self, role, how)
}

func startPath(t testing.TB, self, role string, how casting) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	cmd := exec.CommandContext(ctx, self, how.args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	// By default the race detector waits a second at each exit.
	cmd.Env = append(cmd.Env, strings.TrimSpace("GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	cmd.Env = append(cmd.Env, how.env...)
	cmd.ExtraFiles = how.files
	cmd.SysProcAttr = how.attr
	cmd.WaitDelay = 10 * time.Second
	c := &child{t: t, role: role, cmd: cmd, errs: new(bytes.Buffer)}
	cmd.Stderr = c.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
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

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Errorf("role %s does not listen: %v", c.role, err)
		c.wait()
		c.t.FailNow()
	}
}

// hear returns the next line from the role.
func (c *child) hear() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Errorf("role %s has nothing more to say (%v)", c.role, c.out.Err())
		c.wait()
		c.t.FailNow()
	}
	return c.out.Text()
}

func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.hear(); got != want {
		c.t.Fatalf("role %s says %q, want %q", c.role, got, want)
	}
}

func (c *child) end() error {
	c.waited = true
	c.in.Close()
	for c.out.Scan() {
	}
	return c.cmd.Wait()
}

// wait waits for the end of the role, and fails the test if the role failed.
func (c *child) wait() {
	c.t.Helper()
	if err := c.end(); err != nil {
		c.t.Errorf("role %s: %v\n%s", c.role, err, strings.TrimSpace(c.errs.String()))
	}
}

// kill ends the process as the kernel's out-of-memory killer would.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.end()
}

// signal sends a signal. It works for processes that the test must not wait for, too.
func (c *child) signal(s unix.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("signal to role %s: %v", c.role, err)
	}
}

// stop stops the process, and returns when all its threads have stopped.
func (c *child) stop() {
	c.t.Helper()
	c.signal(unix.SIGSTOP)
	eventually(c.t, "role "+c.role+" stops", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.pid()))
		if err != nil || len(threads) == 0 {
			c.t.Fatalf("no threads: %v", err)
		}
		return !slices.ContainsFunc(threads, func(file string) bool {
			stat, err := os.ReadFile(file)
			_, state, _ := strings.Cut(string(stat), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		})
	})
}

// eventually waits until a condition holds, at most for the watchdog's time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(watchdog); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("this never came about: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

var (
	roleFail  = role("fail", func(*actor) error { return errors.New("as asked") })
	rolePanic = role("panic", func(*actor) error { panic("as asked") })
)

// A role that fails, panics or does not exist fails the test.
func TestRolesReportFailures(t *testing.T) {
	for name, want := range map[string]int{roleFail: exitError, rolePanic: 2, "no such role": exitNoRole} {
		c := start(t, name, casting{})
		c.end()
		if got := c.cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("role %q exits with %d, want %d: %s", name, got, want, c.errs)
		}
	}
}
