package softnd

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaperRole makes the test binary the parent of a program and of the processes that
// the program leaves (slurmd leaves one for each step): not every init reaps them.
const (
	reaperRole = "reaper"
	reapedRole = "SOFTND_TEST_REAPED_ROLE" // role of what it starts
)

// reap runs the program in its arguments, and ends as it did when nothing is left of it.
func reap() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail(err)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	os.Unsetenv(roleVariable)
	if role, ok := os.LookupEnv(reapedRole); ok {
		os.Setenv(roleVariable, role)
	}
	program, err := syscall.ForkExec(os.Args[1], os.Args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return fail(err)
	}
	go func() {
		<-terminated
		_ = syscall.Kill(program, syscall.SIGTERM)
	}()
	code := 1
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.ECHILD:
			return code
		case pid == program:
			code = status.ExitStatus()
		}
	}
}
