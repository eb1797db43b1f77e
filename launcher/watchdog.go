package launcher

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runWatchdog is the main function of the watchdog. It starts the supervisor and waits until the
// supervisor and all its orphans have ended. It exits with the code of the supervisor, 128 + n if
// signal n killed it.
func runWatchdog() error {
	far, err := reservedFD()
	if err != nil || len(os.Args) != 3 {
		return cmp.Or(err, errStartedByHand)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	const spare = 8 // for descriptors that forkExec moves out of the way
	far = max(socketFD+1, int(min(uint64(far), limit.Cur-spare)))
	files := []uintptr{0, 1, 2, socketFD}
	for len(files) < far {
		files = append(files, ^uintptr(0)) // leave this descriptor closed
	}
	dropSignals() // before there are ranks, which may use up the limit of threads: the Go runtime keeps two for signals
	supervisor, err := forkExec(ownProgram, []string{supervisorName, strconv.Itoa(far)},
		&syscall.ProcAttr{Env: os.Environ(), Files: append(files, 0)})
	if err != nil {
		return fmt.Errorf("start the supervisor process: %w", err)
	}
	unix.Close(socketFD)
	_ = dropInherited() // the supervisor reports the error
	cgroup := cgroupDirNamed(os.Args[2])

	status, options := 0, 0
	var giveUp time.Time
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, options, nil)
		switch {
		case err == syscall.ECHILD:
			cgroup.destroy() // the supervisor may have been killed before it did so
			os.Exit(status)
		case err != nil && err != syscall.EINTR: // a sandbox forbids wait4
			_, _ = killDescendants(os.Getpid())
			cgroup.kill()
			return fmt.Errorf("wait for the supervisor process: %w: allow the system call wait4 (seccomp profile?)", err)
		case pid == supervisor:
			status = exitCode(ws)
			options, giveUp = syscall.WNOHANG, time.Now().Add(killTimeout)
		case pid == 0:
			if time.Now().After(giveUp) {
				os.Exit(status)
			}
			// The next round tries again after an error.
			_, _ = killDescendants(os.Getpid())
			cgroup.kill()
			time.Sleep(killPeriod)
		}
	}
}
