package launcher

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/proctable"
)

// isTerminating reports whether a signal to the front end ends the job.
func isTerminating(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// CatchSignals catches the signals that a launcher forwards, for [Config.Signals], until the
// program ends:
//
//   - SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job.
//   - SIGTSTP suspends the ranks and the caller, if a shell with job control started the caller.
//     SIGCONT resumes the ranks.
//   - SIGUSR1 and SIGUSR2 are only forwarded.
//
// A signal that the caller inherited as ignored (nohup, a background job of a script) stays
// ignored. SIGTTIN and SIGTTOU are ignored from now on, so that the terminal does not stop a job
// in the background; ranks do not inherit that. SIGPIPE is caught too: writing to a closed pipe
// becomes an error of [Job.Run].
func CatchSignals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// If they were caught, the system call that the terminal refuses would be restarted forever.
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	return c
}

// TakeDefaultActions takes the default action for signals from [CatchSignals] until stop is
// called. A program calls it before and after a job. Later signals stay in the channel. Resetting
// all signals instead would take longer than starting ten ranks.
func TakeDefaultActions(signals <-chan os.Signal) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				TakeDefaultAction(sig)
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// TakeDefaultAction takes the system's default action for one signal from [CatchSignals]. SIGQUIT
// ends the process without the stack dump of the Go runtime.
func TakeDefaultAction(sig os.Signal) {
	switch sig {
	case syscall.SIGQUIT:
		os.Exit(128 + int(syscall.SIGQUIT))
	case syscall.SIGTSTP:
		if hasJobControlShell() {
			suspend()
		}
	case syscall.SIGCONT:
	default:
		signal.Reset(sig)
		_ = unix.Kill(os.Getpid(), sig.(syscall.Signal))
	}
}

// suspend stops this process until it gets SIGCONT.
func suspend() {
	// Sent to this thread, so the signal is delivered before the call returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// hasJobControlShell reports whether a shell with job control is above this process in its
// session. Without one, no process would resume this one after SIGTSTP. The kernel drops SIGTSTP
// in that case, but not if the signal is caught.
func hasJobControlShell() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := os.Getppid(); ; {
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return false
		}
		if group, err := unix.Getpgid(pid); err != nil || group != unix.Getpgrp() {
			return err == nil
		}
		p, err := proctable.Read(pid) // in our process group: its parent may be the shell
		if err != nil {
			return false
		}
		pid = p.PPID
	}
}
