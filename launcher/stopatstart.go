package launcher

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopBeforeStart puts a rank into an ordinary stop before its first instruction. The rank was
// started with this thread as its tracer. SIGCONT resumes it.
//
// A traced program begins with a trap. SIGSTOP is sent during that trap and takes effect when the
// tracer detaches. No tracer remains, so a debugger can attach.
func stopBeforeStart(pid int) error {
	for {
		// WNOWAIT: if the rank was killed already, the supervisor reaps it.
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
