package launcher

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/proctable"
)

// endsJob tells whether a signal to the front, passed on to the ranks, means that
// the job is to end.
func endsJob(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// CatchSignals catches the signals that a job is to have passed on, for
// [Config.Signals], and until the program ends:
//
//   - SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job.
//   - SIGTSTP suspends ranks and caller, if a shell with job control started the
//     caller; SIGCONT wakes the ranks.
//   - SIGUSR1 and SIGUSR2 are for the ranks alone.
//
// A signal that the caller inherited as ignored (nohup, a script's background job)
// stays ignored. SIGTTIN and SIGTTOU are ignored from here on, so that the terminal does
// not stop a job in the background; ranks do not inherit that. SIGPIPE is caught too, so
// that an output that nobody reads any more becomes an error of [Run] instead of the
// caller's sudden death.
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
	// Caught, they would make the call that the terminal refuses start again for ever.
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	return c
}

// DieOfSignals does with signals from [CatchSignals] what the system would, until stop is
// called: a program calls it before a job and after it. A signal that comes
// later stays in the channel. To reset all signals would take longer than to start ten ranks.
func DieOfSignals(signals <-chan os.Signal) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				ActOn(sig)
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// ActOn does with one signal from [CatchSignals] what the system would, except that SIGQUIT
// ends the process without the stacks that the Go runtime would print.
func ActOn(sig os.Signal) {
	switch sig {
	case syscall.SIGQUIT:
		os.Exit(128 + int(syscall.SIGQUIT))
	case syscall.SIGTSTP:
		if canBeResumed() {
			suspend()
		}
	case syscall.SIGCONT:
	default:
		signal.Reset(sig)
		_ = unix.Kill(os.Getpid(), sig.(syscall.Signal))
	}
}

// suspend suspends this process until it gets SIGCONT.
func suspend() {
	// To this thread: then it has happened when the call returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// canBeResumed tells whether a shell with job control stands above this process, in
// its session. The kernel drops SIGTSTP where there is none, because nobody would wake
// the process again, but it knows nothing of a caught signal.
func canBeResumed() bool {
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
		p, err := proctable.Read(pid) // of our group: the shell may have started it
		if err != nil {
			return false
		}
		pid = p.PPID
	}
}
