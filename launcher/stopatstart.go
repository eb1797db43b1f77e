package launcher

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// hold leaves a rank that was started as traced by this thread in an ordinary stop
// before its first instruction, until it gets SIGCONT.
//
// A traced program begins with a trap. The stop is sent while it stands there and takes
// effect when it is let go. No tracer remains, so that a debugger can attach.
func hold(pid int) error {
	for {
		// Its end is for the keeper to reap, if somebody has killed it this early.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return err
		}
	}
	err := errors.Join(syscall.Kill(pid, syscall.SIGSTOP), syscall.PtraceDetach(pid))
	if errors.Is(err, syscall.ESRCH) {
		return nil // killed
	}
	return err
}
