package proctest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	lifetime = 2 * Timeout      // of a process
	grace    = 10 * time.Second // for a process to end, or for its descendants to close its output
)

// EmulatorEnv names the variable with the program that runs roles, if the test binary is one of another architecture.
const EmulatorEnv = "SOFTND_TEST_EMULATOR"

// Command returns the command that runs a role of the test binary. The kernel kills the process if the test binary
// ends without doing so.
//
// The kernel also kills the process when the thread that started it ends. In Go, a thread ends only if a goroutine
// returns without [runtime.UnlockOSThread] after [runtime.LockOSThread]. A test binary with such a goroutine can
// lose a process at any time, unless it sets the SysProcAttr of the command to nil.
func Command(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	if emulator := os.Getenv(EmulatorEnv); emulator != "" {
		self, _ := os.Executable() // the link leads to the emulator
		cmd = exec.Command(emulator, append([]string{self}, args...)...)
	}
	cmd.Env = append(os.Environ(), RoleEnv+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// StartWith starts a role that inherits a file, with the arguments as [fmt.Sprint] formats them.
func StartWith(t testing.TB, f *os.File, role string, args ...any) *Process {
	t.Helper()
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	cmd := Command(role, words...)
	cmd.ExtraFiles = []*os.File{f}
	return Start(t, cmd)
}

// Process is a process that a test has started.
type Process struct {
	Cmd      *exec.Cmd
	Out, Err *Log // its standard output and standard error; empty if Cmd has set another one

	t      testing.TB
	name   string
	in     io.WriteCloser // nil if Cmd has set another one
	pipes  []*os.File     // our ends of those of Out and Err
	hangs  *time.Timer
	limit  time.Duration // of End; 0: that of hangs
	killed bool          // SIGKILL ends it: its input stays open
	ended  chan struct{}
	end    func() error
}

// Start starts a process and connects the test to each of standard input, standard output and standard error that cmd
// does not set.
//
// If the process still runs when the test ends, it is killed. If it has failed before that, the test fails. If it
// runs for longer than twice [Timeout], SIGQUIT makes it write its stacks and end, so that the test fails.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, Cmd: cmd, Out: newLog(), Err: newLog(), name: name(cmd), ended: make(chan struct{})}
	p.end = sync.OnceValue(p.reap)
	cmd.WaitDelay = grace
	theirs := p.connect()
	err := cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	p.hangs = time.AfterFunc(lifetime+grace, p.quit)
	t.Cleanup(p.cleanUp)
	return p
}

// NoLimit lets the process run until the test ends or waits for it, and returns it. The wait is limited by [Timeout].
func (p *Process) NoLimit() *Process {
	p.hangs.Stop()
	p.limit = Timeout
	return p
}

// name names a process in messages.
func name(cmd *exec.Cmd) string {
	for _, v := range slices.Backward(cmd.Env) {
		if role, ok := strings.CutPrefix(v, RoleEnv+"="); ok {
			return "role " + role
		}
	}
	return filepath.Base(cmd.Path)
}

// connect makes the pipes, and returns the ends that only the process uses.
func (p *Process) connect() (theirs []*os.File) {
	p.t.Helper()
	if p.Cmd.Stdin == nil {
		in, err := p.Cmd.StdinPipe()
		if err != nil {
			p.t.Fatal(err)
		}
		p.in = in
	}
	for to, log := range map[*io.Writer]*Log{&p.Cmd.Stdout: p.Out, &p.Cmd.Stderr: p.Err} {
		if *to != nil {
			close(log.closed)
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			p.t.Fatal(err)
		}
		*to, theirs, p.pipes = w, append(theirs, w), append(p.pipes, r)
		go log.collect(r)
	}
	return theirs
}

// quit makes the process write its stacks and end, and kills it if it does not.
func (p *Process) quit() {
	_ = p.Cmd.Process.Signal(syscall.SIGQUIT)
	_ = p.Cmd.Process.Signal(syscall.SIGCONT) // it may be stopped
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.Cmd.Process.Kill()
	}
}

// reap waits until the process has ended and its output is read.
func (p *Process) reap() error {
	if p.in != nil && !p.killed {
		p.in.Close()
	}
	if p.limit > 0 {
		p.hangs.Reset(p.limit)
	}
	err := p.Cmd.Wait()
	p.hangs.Stop()
	close(p.ended)
	late := time.After(grace)
	for _, log := range []*Log{p.Out, p.Err} {
		select {
		case <-log.closed:
		case <-late: // a descendant has the pipe
		}
	}
	for _, r := range p.pipes {
		r.Close()
	}
	return err
}

// cleanUp ends the process if the test has not done so. It fails the test if the process has failed. If the test has
// failed, cleanUp logs the stacks of the process.
func (p *Process) cleanUp() {
	select {
	case <-p.ended:
		return
	default:
	}
	if p.t.Failed() {
		go p.quit()
		err := p.End()
		p.t.Logf("%s, which the test left running: %v\n%s", p.name, err, p.Err)
		return
	}
	p.Kill()
	if err := p.End(); err != nil && p.signal() != syscall.SIGKILL {
		p.t.Errorf("%s, which the test did not wait for: %v\n%s", p.name, err, p.Err)
	}
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Say sends a line to the process.
func (p *Process) Say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.Wait()
		p.t.Fatalf("%s has closed its input: %v", p.name, err)
	}
}

// Hear waits for the next line from the process.
func (p *Process) Hear() string {
	p.t.Helper()
	line, ok := p.Out.next()
	if !ok {
		p.Wait()
		p.t.Fatalf("%s has closed its output", p.name)
	}
	return line
}

// Expect waits for the next line from the process, which must be want.
func (p *Process) Expect(want string) {
	p.t.Helper()
	if got := p.Hear(); got != want {
		p.t.Fatalf("%s says %q, want %q", p.name, got, want)
	}
}

// End closes the standard input of the process, waits until the process has ended, and returns the error of
// [os/exec.Cmd.Wait].
func (p *Process) End() error { return p.end() }

// Wait is End, and fails the test if the process failed.
func (p *Process) Wait() {
	p.t.Helper()
	if err := p.End(); err != nil {
		p.t.Errorf("%s: %v\n%s", p.name, err, p.Err)
	}
}

// WaitKilled waits until the process has ended, and fails the test unless SIGKILL ended it. The standard input of the
// process stays open until then.
func (p *Process) WaitKilled() {
	p.t.Helper()
	p.killed = true
	if err := p.End(); p.signal() != syscall.SIGKILL {
		p.t.Errorf("%s: %v, want SIGKILL\n%s", p.name, err, p.Err)
	}
}

// signal returns the signal that ended the process, -1 if it exited.
func (p *Process) signal() syscall.Signal {
	return p.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

// Kill ends the process as the kernel's out-of-memory killer would, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended already
	_ = p.End()
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %d to %s: %v", s, p.name, err)
	}
}

// Stop stops the process, and returns when all its threads have stopped.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	Eventually(p.t, p.name+" stops", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		if err != nil || len(threads) == 0 {
			p.t.Fatalf("no threads: %v", err)
		}
		return !slices.ContainsFunc(threads, func(file string) bool {
			stat, err := os.ReadFile(file)
			_, state, _ := strings.Cut(string(stat), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		})
	})
}

// Resume lets a stopped process run.
func (p *Process) Resume() { p.t.Helper(); p.Signal(syscall.SIGCONT) }

// Run runs a program to its end. It returns the exit status, 128 + n after signal n, and the output. Standard input is
// /dev/null if cmd does not set it.
func Run(t testing.TB, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	if cmd.Stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		cmd.Stdin = null
	}
	p := Start(t, cmd)
	_ = p.End() // the status says it
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), p.Out.String(), p.Err.String()
	}
	return cmd.ProcessState.ExitCode(), p.Out.String(), p.Err.String()
}
