package launcher

import (
	"errors"
	"syscall"
)

// remedy is the next step for some errors of the system, to be put behind them.
func remedy(err error) string {
	for errno, step := range map[syscall.Errno]string{
		syscall.EMFILE:  "raise the limit of open files (ulimit -Hn) or start fewer ranks",
		syscall.ENFILE:  "the whole system has too many files open: start fewer ranks",
		syscall.EAGAIN:  "raise the limit of processes (ulimit -u, or the container's) or start fewer ranks",
		syscall.ENOMEM:  "free memory or start fewer ranks",
		syscall.ENOEXEC: "it is not a program for this machine, or a script without a #! line",
		syscall.ENOENT:  "check the program, the interpreter in its first line if it is a script, and the working directory",
		syscall.EACCES:  "check the permissions of the program and the working directory, and that their file system allows programs (noexec)",
		syscall.ETXTBSY: "the program is being written: wait for its build to end",
		syscall.E2BIG:   "shorten the arguments or the environment",
	} {
		if errors.Is(err, errno) {
			return "; " + step
		}
	}
	return ""
}
