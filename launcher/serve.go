package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Values of argv[0] that make an executable the watchdog or the supervisor. A rank inherits the
// environment but not argv[0]. The names do not contain the name of the program, so that killall
// of the program spares its helper processes. The kernel keeps 15 bytes of them.
const (
	watchdogName   = "nd-watchdog"
	supervisorName = "nd-supervisor"
)

// ownProgram is the executable that runs as watchdog and supervisor.
const ownProgram = "/proc/self/exe"

// killTimeout limits how long watchdog and supervisor try to kill a process that does not die. An
// example is a process that waits for a dead file server. killPeriod is the time between two
// attempts.
const (
	killTimeout = 3 * time.Second
	killPeriod  = 10 * time.Millisecond
)

// served is set if main has called Serve, so this executable can run as watchdog.
var served bool

// Serve runs the watchdog or the supervisor of a job and does not return, if a launcher started
// this process as one. In any other process it returns at once.
//
// A program that uses this package must call Serve first in main (in tests: in TestMain), before
// it parses flags or writes anything.
func Serve() {
	served = true
	var role func() error
	switch os.Args[0] {
	case watchdogName:
		role = runWatchdog
	case supervisorName:
		role = runSupervisor
	default:
		return
	}
	// PR_SET_PDEATHSIG of the ranks refers to the thread that started them.
	runtime.LockOSThread()
	// Orphans of the job become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fail(fmt.Errorf("become a subreaper: %w", err))
	}
	unix.CloseOnExec(socketFD)
	// ps would show "exe" otherwise. A failure is harmless.
	_ = os.WriteFile("/proc/self/comm", []byte(os.Args[0]), 0)
	if err := role(); err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
	os.Exit(1)
}

// dropSignals makes this process ignore signals without passing that on to its children. The Go runtime then keeps two threads for signals.
func dropSignals() {
	// The signals are caught and dropped, because ranks would inherit SIG_IGN. For the same
	// reason, a signal that the user has ignored (nohup) stays ignored, except SIGTTIN and
	// SIGTTOU, see resetTerminalSignals. All other signals have no effect on a Go program in an
	// orphaned process group.
	drop := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			signal.Notify(drop, sig)
		}
	}
}

// resetTerminalSignals catches SIGTTIN and SIGTTOU, which the front end ignores. Exec resets
// caught signals to their default action, so ranks react to them as usual.
func resetTerminalSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTIN, syscall.SIGTTOU)
}

var errStartedByHand = errors.New("this name is reserved for processes that softnd's launcher starts: rename the program")

// reservedFD returns the highest descriptor that the supervisor inherits. It is behind all
// descriptors that the supervisor will open, so that the descriptor table is large from the
// start. If a process with several threads needs a larger table, the kernel waits for all cores,
// often for more than 10 ms.
func reservedFD() (int, error) {
	if len(os.Args) < 2 {
		return 0, errStartedByHand
	}
	return strconv.Atoi(os.Args[1])
}

// dropInherited closes the descriptors that this process inherited from the user's shell: those
// without close-on-exec flag. Descriptors of the Go runtime have the flag.
func dropInherited() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= socketFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// exitCode returns the exit code by which shells report how a process ended.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
