package launcher

import (
	"cmp"
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

// The names by which an executable is started again as guard or keeper. They stand
// in argv[0] because a rank inherits environment but not arguments, and they leave
// out the program's own name so that killing by that name spares the clean-up.
const (
	guardName  = "softnd-guard"
	keeperName = "softnd-keeper"
)

// ownProgram is the executable that is started again.
const ownProgram = "/proc/self/exe"

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
	// Orphans of the job become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fail(fmt.Errorf("become a subreaper: %w", err))
	}
	unix.CloseOnExec(socketFD)
	// ps would show "exe" otherwise. Failing at this harms nobody.
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

// withdraw makes this process deaf to signals. To catch one costs turns of several
// threads, and the job need not wait for that: nobody knows yet that this process is there.
func withdraw() {
	// Caught and dropped rather than ignored: ranks would inherit an ignored signal.
	// For the same reason one that the user had ignored (nohup) stays so, other than the
	// terminal's two, see heedTerminal. All others that can be sent do nothing to a Go
	// program in an orphaned process group, so these are all.
	drop := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			signal.Notify(drop, sig)
		}
	}
}

// heedTerminal has ranks that are started afterwards heed the terminal's signals to
// background jobs, which the front ignores for itself alone: those that are caught go back
// to the default with the ranks' exec.
func heedTerminal() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTIN, syscall.SIGTTOU)
}

var errByHand = errors.New("started without arguments: only the launcher starts this program by this name")

// farFD is the descriptor that the keeper inherits behind all that it opens, for its table
// of descriptors to be large from the start: while there is one thread. When one of
// several needs a larger table, the kernel waits for all cores, often for more than 10 ms.
func farFD() (int, error) {
	if len(os.Args) < 2 {
		return 0, errByHand
	}
	return strconv.Atoi(os.Args[1])
}

// dropInherited closes whatever came along from the user's shell. What has no
// close-on-exec flag was inherited; the runtime's own descriptors have it.
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

// guard starts the keeper and waits until it and everything it left has gone. It
// ends as the keeper did, with 128 + n if that was killed by signal n.
func guard() error {
	far, err := farFD()
	if err != nil || len(os.Args) != 3 {
		return cmp.Or(err, errByHand)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	const spare = 8 // what the fork moves meanwhile goes behind
	far = max(socketFD+1, int(min(uint64(far), limit.Cur-spare)))
	files := []uintptr{0, 1, 2, socketFD}
	for len(files) < far {
		files = append(files, ^uintptr(0)) // none
	}
	keeper, err := forkExec(ownProgram, []string{keeperName, strconv.Itoa(far)},
		&syscall.ProcAttr{Env: os.Environ(), Files: append(files, 0)})
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	unix.Close(socketFD)
	withdraw()
	_ = dropInherited() // the keeper tells if it cannot
	cgroup := groupNamed(os.Args[2])

	status, options := 0, 0
	var giveUp time.Time
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, options, nil)
		switch {
		case err == syscall.ECHILD:
			cgroup.end() // unless the keeper has; the front may be dead
			os.Exit(status)
		case err != nil && err != syscall.EINTR: // refused: the guard cannot do its work
			_, _ = killDescendants(os.Getpid())
			cgroup.kill()
			return fmt.Errorf("wait for the keeper: %w; the sandbox has to allow wait4", err)
		case pid == keeper:
			status = exitCode(ws)
			options, giveUp = syscall.WNOHANG, time.Now().Add(patience)
		case pid == 0:
			if time.Now().After(giveUp) {
				os.Exit(status)
			}
			// Nothing more to do about an error here: the next round tries again.
			_, _ = killDescendants(os.Getpid())
			cgroup.kill()
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
