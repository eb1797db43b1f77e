package launcher

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The names by which an executable is started again as guard or keeper. They stand
// in argv[0] because a rank inherits environment but not arguments, and they leave
// out the program's own name so that killing by that name spares the clean-up.
const (
	guardName  = "softnd-guard"
	keeperName = "softnd-keeper"
)

// How long guard and keeper go on killing before they give up on a process that
// does not go (one that waits for a dead file server, one of another user), and how
// often they look.
const (
	patience   = 3 * time.Second
	killPeriod = 10 * time.Millisecond
)

// served tells Run that this executable can play the guard.
var served bool

// Serve turns this process into the guard or the keeper of a job if [Run] started
// it as one, and then does not return. In any other process it returns at once.
//
// Every program that calls Run calls Serve first in main (tests: in TestMain), before
// it reads its flags or writes anything.
func Serve() {
	served = true
	var role func() error
	switch os.Args[0] {
	case guardName:
		role = guard
	case keeperName:
		role = keep
	default:
		return
	}
	// Ranks die with the thread that started them (PR_SET_PDEATHSIG goes by thread).
	runtime.LockOSThread()
	if err := becomeSupervisor(); err != nil {
		fail(err)
	}
	if err := role(); err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
	os.Exit(1)
}

// becomeSupervisor makes orphans of the job the children of this process and makes
// it deaf to signals.
func becomeSupervisor() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	// ps would show "exe" otherwise. Failing at this harms nobody.
	_ = os.WriteFile("/proc/self/comm", []byte(os.Args[0]), 0)

	// Caught and dropped rather than ignored: ranks would inherit an ignored signal.
	// For the same reason one that the user had ignored (nohup) stays so.
	drop := make(chan os.Signal, 1)
	for sig := syscall.Signal(1); sig < 32; sig++ {
		switch sig {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD,
			syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT:
			continue // cannot be caught, is needed, or tells of a fault in here
		}
		if !signal.Ignored(sig) {
			signal.Notify(drop, sig)
		}
	}
	count, err := inheritedCount()
	if err != nil {
		return err
	}
	return claimDescriptors(count)
}

// inheritedCount is the number of descriptors from socketFD on that were handed over.
func inheritedCount() (int, error) {
	if len(os.Args) != 2 {
		return 0, fmt.Errorf("started with %d arguments instead of 1: only the launcher starts this program by this name", len(os.Args)-1)
	}
	return strconv.Atoi(os.Args[1])
}

// claimDescriptors keeps the count descriptors from socketFD on from being inherited
// any further by accident, and closes whatever else came along from the user's shell.
// What has no close-on-exec flag was inherited; the runtime's own descriptors have it.
func claimDescriptors(count int) error {
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
		if err != nil || fd < socketFD {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if fd < socketFD+count {
			unix.CloseOnExec(fd)
		} else {
			unix.Close(fd)
		}
	}
	return nil
}

// letGo closes the descriptors from first up to but not including end, and the
// standard input, so that this process keeps no pipe, file or terminal busy.
func letGo(first, end int) error {
	for fd := first; fd < end; fd++ {
		unix.Close(fd)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	return unix.Dup3(int(null.Fd()), 0, 0)
}

// guard starts the keeper and waits until it and everything it left has gone. It
// ends as the keeper did, with 128 + n if that was killed by signal n.
func guard() error {
	count, err := inheritedCount()
	if err != nil {
		return err
	}
	files := make([]uintptr, socketFD+count)
	for fd := range files {
		files[fd] = uintptr(fd)
	}
	keeper, err := syscall.ForkExec("/proc/self/exe", []string{keeperName, os.Args[1]},
		&syscall.ProcAttr{Env: os.Environ(), Files: files})
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	if err := letGo(socketFD, len(files)); err != nil {
		return err
	}

	status, options := 0, 0
	var giveUp time.Time
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, options, nil)
		switch {
		case err == syscall.ECHILD:
			os.Exit(status)
		case pid == keeper:
			status = exitCode(ws)
			options, giveUp = syscall.WNOHANG, time.Now().Add(patience)
		case pid == 0:
			if time.Now().After(giveUp) {
				os.Exit(status)
			}
			// Nothing more to do about an error here: the next round tries again.
			_, _ = killDescendants()
			time.Sleep(killPeriod)
		}
	}
}

// exitCode is the code by which shells name how a process ended.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
