package linux

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The signals of a program that runs jobs, such as ndrun, as the job control of shells expects it.

// IsTerminating reports whether a signal ends the job.
func IsTerminating(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// CatchSignals catches the signals that concern the program's job, until the program ends: SIGINT, SIGTERM,
// SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGUSR1 and SIGUSR2.
//
// A signal that the caller inherited as ignored (nohup, a background job of a script) stays
// ignored. SIGTTIN and SIGTTOU are ignored from now on, so that the terminal does not stop a job
// in the background; ranks do not inherit that. SIGPIPE is caught too: writing to a closed pipe
// becomes an error.
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
		if HasShell() {
			Suspend()
		}
	case syscall.SIGCONT:
	default:
		signal.Reset(sig)
		_ = unix.Kill(os.Getpid(), sig.(syscall.Signal))
	}
}

// Suspend stops this process until it gets SIGCONT.
func Suspend() {
	// Sent to this thread, so the signal is delivered before the call returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// HasShell reports whether a shell with job control is above this process in its
// session. Without one, no process would resume this one after SIGTSTP. The kernel drops SIGTSTP
// in that case, but not if the signal is caught.
func HasShell() bool {
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
		p, err := ReadProcess(pid) // in our process group: its parent may be the shell
		if err != nil {
			return false
		}
		pid = p.PPID
	}
}
