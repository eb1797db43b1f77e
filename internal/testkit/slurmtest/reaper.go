package slurmtest

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// roleReaper makes the test binary the parent of a program and of the processes that the program leaves (slurmd leaves
// one for each step). Not every init reaps them.
var roleReaper = proctest.Role("reaper", reap)

// ReapedRole is the environment variable with the role of the program that [Command] runs, if that is the test binary.
const ReapedRole = "SOFTND_TEST_REAPED_ROLE"

// Command returns a command that ends when nothing is left of a program, with the program's exit status.
func Command(env []string, path string, args ...string) *exec.Cmd {
	cmd := proctest.Command(roleReaper, append([]string{path}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// reap runs the program in its arguments, and exits as it did when nothing is left of it.
func reap(s *proctest.Self) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	os.Unsetenv(proctest.RoleEnv)
	if role, ok := os.LookupEnv(ReapedRole); ok {
		os.Setenv(proctest.RoleEnv, role)
	}
	program, err := syscall.ForkExec(s.Args[0], s.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
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
			os.Exit(code)
		case pid == program:
			code = status.ExitStatus()
		}
	}
}
