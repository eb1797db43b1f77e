package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// interrupted is the signal by which the user ended ndrun before the job.
type interrupted syscall.Signal

func (i interrupted) Error() string {
	return "stopped by signal " + unix.SignalName(syscall.Signal(i))
}

// buildProgram builds a Go package or a source file and returns it as an open memfd, so there is no
// file to remove. The compiler's output goes to stderr. The kernel shows the memfd's name in
// /proc/PID/exe. Programs that look for their own executable on disk do not find it.
//
// If a signal ended the build, the error is an interrupted.
func buildProgram(prog *program, stderr io.Writer, signals <-chan os.Signal) (*os.File, error) {
	w, err := createProgram(prog.name)
	if err != nil {
		return nil, fmt.Errorf("build %s: create file in memory: %w: build it yourself and run the executable", prog.path, err)
	}
	defer w.Close()
	// With the PID of ndrun, not /proc/self: the compiler opens the path.
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.Fd())
	if prog.language != nil {
		err = prog.language.build(prog.path, path, stderr, signals)
	} else {
		cmd := exec.Command("go", "build", "-o", path, ".")
		cmd.Dir = prog.path
		err = runCompiler(cmd, "go build", "install Go or run an executable", stderr, signals)
	}
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", prog.path, err)
	}
	// The kernel does not execute a file that is open for writing.
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("build %s: open executable: %w", prog.path, err)
	}
	magic := make([]byte, 4)
	if _, err := r.ReadAt(magic, 0); err != nil || !bytes.Equal(magic, []byte("\x7fELF")) {
		r.Close()
		if prog.language != nil {
			return nil, fmt.Errorf("build %s: the compiler wrote no executable: check the options that it got", prog.path)
		}
		return nil, fmt.Errorf("build %s: not a package main: give the directory of a program", prog.path)
	}
	return r, nil
}

// runCompiler runs a compiler, whose output goes to stderr. If it fails, the error has its name. If it
// is not found, install says what to do.
func runCompiler(cmd *exec.Cmd, name, install string, stderr io.Writer, signals <-chan os.Signal) error {
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.WaitDelay = time.Second // programs that the compiler has started may still hold stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := runInterruptibly(cmd, signals)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("%s failed (%w): see its output above", name, err)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: %s", err, install)
	}
	return err
}

// createProgram creates an executable memfd.
func createProgram(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 has no MFD_EXEC and does not need it
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// runInterruptibly runs cmd. The first signal that ends programs makes it send SIGINT to cmd, so
// that cmd can clean up, and the second one kills cmd. In both cases it returns interrupted.
func runInterruptibly(cmd *exec.Cmd, signals <-chan os.Signal) error {
	// PR_SET_PDEATHSIG of the child refers to the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var first error
	for {
		select {
		case err := <-ended:
			if first != nil {
				return first
			}
			return err
		case sig := <-signals:
			if !linux.IsTerminating(sig.(syscall.Signal)) {
				linux.TakeDefaultAction(sig)
				continue
			}
			if first == nil {
				first = interrupted(sig.(syscall.Signal))
				_ = cmd.Process.Signal(syscall.SIGINT) // go build cleans up on SIGINT only
			} else {
				_ = cmd.Process.Kill()
			}
		}
	}
}
