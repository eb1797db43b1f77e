package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// grace is how long a program may take to exit after SIGTERM. mpiexec needs a second to remove its files.
const grace = 3 * time.Second

// program is a program to run.
type program struct {
	argv   []string
	env    []string
	pinned bool
	core   int // if pinned
}

// process is a running program.
type process struct {
	ctx    context.Context
	cancel context.CancelFunc
	cmd    *exec.Cmd
	output output
	done   chan struct{} // closed when it has exited
	err    error         // then
}

// start runs p in a session of its own, until ctx ends. The caller's goroutine stays locked to its thread
// (runtime.LockOSThread) until the process has exited: when the thread exits, the kernel kills the process.
func (s *session) start(ctx context.Context, p program) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &process{ctx: ctx, cancel: cancel, done: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	r.cmd.Env = append(os.Environ(), "LC_ALL=C", "TMPDIR="+s.dir, s.variable())
	r.cmd.Env = append(r.cmd.Env, p.env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	r.cmd.Cancel = func() error { return syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM) }
	r.cmd.WaitDelay = grace
	if err := startOn(r.cmd, p); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	return r, nil
}

// startOn starts cmd with the affinity of p. A new process inherits that of the thread that starts it.
func startOn(cmd *exec.Cmd, p program) error {
	if !p.pinned {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore, err := linux.BindThread([]int{p.core})
	if err != nil {
		return fmt.Errorf("%s: pin to core %d: %w", p.argv[0], p.core, err)
	}
	defer func() { _ = restore() }()
	return cmd.Start()
}

// wait waits until the process exits, and returns its output.
func (r *process) wait() (string, error) {
	<-r.done
	defer r.cancel()
	r.tidy()
	text := r.output.String()
	switch name := filepath.Base(r.cmd.Path); {
	case r.err == nil:
		return text, nil
	case r.ctx.Err() != nil:
		return text, fmt.Errorf("%s: %w", name, context.Cause(r.ctx))
	default:
		return text, fmt.Errorf("%s: %w%s", name, r.err, ending(text))
	}
}

// end kills the process if it does not exit soon.
func (r *process) end() {
	select {
	case <-r.done:
	case <-time.After(time.Second):
		r.cancel()
	}
	r.wait()
}

// tidy removes the files of a killed libfabric. Their names begin with the number of the process.
func (r *process) tidy() {
	files, _ := filepath.Glob(fmt.Sprintf("/dev/shm/%d:*", r.cmd.Process.Pid))
	for _, f := range files {
		os.Remove(f)
	}
}

// ending quotes the last lines of a text, for an error.
func ending(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ", and it wrote nothing"
	}
	lines := strings.Split(text, "\n")
	return fmt.Sprintf("; it wrote %q", strings.Join(lines[max(0, len(lines)-3):], "\n"))
}

// output keeps the beginning of the output of a program.
type output struct{ bytes.Buffer }

func (o *output) Write(p []byte) (int, error) {
	const most = 256 << 10
	if room := most - o.Len(); room > 0 {
		o.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// killMarked kills all processes with this variable in their environment, and reports whether there were any.
func killMarked(variable string) bool {
	found := false
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The handle comes first, so that the number cannot be reused before the check.
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if bytes.Contains(append(env, 0), append([]byte(variable), 0)) {
			found = true
			p.Kill()
		}
		p.Release()
	}
	return found
}
