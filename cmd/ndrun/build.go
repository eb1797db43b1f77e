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

	"github.com/softnd/softnd/launcher"
)

// interrupted is the signal by which the user ended ndrun before there were ranks.
type interrupted syscall.Signal

func (i interrupted) Error() string {
	return "stopped by signal " + unix.SignalName(syscall.Signal(i))
}

// build builds the Go program in dir and returns it as an open file that has never
// had a name, so that nothing has to be removed, whenever ndrun ends. What the
// compiler says goes to stderr whole.
//
// The file lives in memory. The kernel shows its name in /proc/PID/exe, and programs
// that look for themselves on disk do not find themselves.
//
// The error is an interrupted if one of the signals ended the build.
func build(dir, name string, stderr io.Writer, signals <-chan os.Signal) (*os.File, error) {
	w, err := createProgram(name)
	if err != nil {
		return nil, fmt.Errorf("build %s: make a file in memory: %w; build it with go build and run the result", dir, err)
	}
	defer w.Close()
	// By our number, not by /proc/self: it is go that opens the path.
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.Fd())
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.WaitDelay = time.Second // the compilers that go had started may still hold stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := runInterruptibly(cmd, signals); err != nil {
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return nil, fmt.Errorf("build %s: go build failed (%w); correct what it says above", dir, err)
		case errors.Is(err, exec.ErrNotFound):
			return nil, fmt.Errorf("build %s: %w; install Go, or name an executable", dir, err)
		}
		return nil, fmt.Errorf("build %s: %w", dir, err)
	}
	// A file that is open for writing does not run.
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("build %s: open the result: %w", dir, err)
	}
	magic := make([]byte, 4)
	if _, err := r.ReadAt(magic, 0); err != nil || !bytes.Equal(magic, []byte("\x7fELF")) {
		r.Close()
		return nil, fmt.Errorf("build %s: the package there is no program; name the directory of a package main", dir)
	}
	return r, nil
}

// createProgram makes an executable file in memory.
func createProgram(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 there was no flag, and no need
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// runInterruptibly runs cmd. On a signal that ends programs it tells cmd to end, so
// that it can tidy up, on the second one kills it, and returns interrupted.
func runInterruptibly(cmd *exec.Cmd, signals <-chan os.Signal) error {
	// The child dies with the thread that started it.
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
			switch sig {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
			default:
				launcher.ActOn(sig)
				continue
			}
			if first == nil {
				first = interrupted(sig.(syscall.Signal))
				_ = cmd.Process.Signal(syscall.SIGINT) // what go listens to
			} else {
				_ = cmd.Process.Kill()
			}
		}
	}
}
