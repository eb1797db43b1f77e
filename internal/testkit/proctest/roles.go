// Package proctest is the harness of tests that need other processes. It runs roles of the test binary in processes of
// their own, limits every wait, and leaves no process behind.
//
// A package registers its roles in variable declarations, and calls [Main] in TestMain:
//
//	var roleEcho = proctest.Role("echo", func(s *proctest.Self) error {
//		line, err := s.Hear()
//		s.Say("%s", line)
//		return err
//	})
//
//	func TestMain(m *testing.M) {
//		proctest.Main()
//		os.Exit(m.Run())
//	}
//
// A test starts a role and talks to it in lines:
//
//	p := proctest.Start(t, proctest.Command(roleEcho))
//	p.Say("hello")
//	p.Expect("hello")
//	p.Wait()
//
// A role that returns an error, panics, is killed, or hangs fails the test that waits for it, with the role's output.
// That of a role that hangs has the stacks of its goroutines.
package proctest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RoleEnv is the environment variable with the role of a process. [Command] sets it. A test sets it itself if another
// program starts the test binary.
const RoleEnv = "SOFTND_TEST_ROLE"

// Exit statuses of a role. That of a panic is 2, as in every Go program.
const (
	ExitNoRole = 64 // the role is not registered
	ExitError  = 70 // the role returned an error
)

var roles = make(map[string]func(*Self) error)

// Role registers a role and returns its name.
func Role(name string, run func(*Self) error) string {
	if roles[name] != nil {
		panic("two roles named " + name)
	}
	roles[name] = run
	return name
}

// Main plays the role of this process and exits. It returns if the process has no role. Call it in TestMain, before
// anything else.
func Main() {
	name, ok := os.LookupEnv(RoleEnv)
	if !ok {
		// By default the race detector waits a second at each exit. The variable is for the processes that tests start.
		os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
		return
	}
	os.Exit(runRole(name))
}

// IgnoreNoSignal lets the processes that tests start end by SIGINT and SIGHUP. Background jobs of a shell and nohup ignore these, which
// processes inherit. They do not inherit handlers.
func IgnoreNoSignal() {
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// SideBySide lets n parallel tests run at once, unless the flag -parallel says otherwise. Tests of processes sleep more than they
// compute. Call it after [Main].
func SideBySide(n int) { _ = flag.Set("test.parallel", strconv.Itoa(n)) }

func runRole(name string) int {
	run := roles[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", name)
		return ExitNoRole
	}
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	defer cancel()
	if err := run(&Self{Ctx: ctx, Args: os.Args[1:], in: bufio.NewScanner(os.Stdin)}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitError
	}
	return 0
}

// Exit ends the test binary with the status of its tests. Before that it waits until left, which names what the tests
// have left behind, returns nothing. It fails the run if something is left after [Timeout].
func Exit(status int, left func() []string) { exit(status, Timeout, left) }

func exit(status int, limit time.Duration, left func() []string) {
	if status == 0 && !fuzzing() {
		var names []string
		for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if names = left(); len(names) == 0 {
				os.Exit(0)
			}
		}
		fmt.Fprintf(os.Stderr, "FAIL: left behind:\n%s\n", strings.Join(names, "\n"))
		status = 1
	}
	os.Exit(status)
}

// fuzzing reports whether this process runs a fuzz target with generated inputs.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != f.DefValue {
			return true
		}
	}
	return false
}

// Self is a process that plays a role.
type Self struct {
	Ctx  context.Context // ends before Start kills the process because it hangs
	Args []string
	in   *bufio.Scanner
}

// Say sends a line to the test.
func (s *Self) Say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Hear waits for a line from the test.
func (s *Self) Hear() (string, error) {
	if !s.in.Scan() {
		return "", errors.Join(errors.New("the test has closed the pipe"), s.in.Err())
	}
	return s.in.Text(), nil
}

// File returns the file with index i in [os/exec.Cmd.ExtraFiles].
func (s *Self) File(i int) *os.File { return os.NewFile(uintptr(3+i), "inherited") }
