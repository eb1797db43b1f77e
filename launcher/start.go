package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// stepError is the failure of a step before the program itself.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// start starts one rank in a process group of its own and returns its number and,
// if the kernel has such, a pidfd. ends are its ends of what connect has made, cgroup the
// directory of the group to start it in, or -1.
func (j *job) start(rank int, ends []int, cgroup int) (pid, pidfd int, err error) {
	files := []uintptr{uintptr(j.input(rank)), uintptr(ends[0]), uintptr(ends[1])}
	for _, fd := range slices.Concat(j.files, ends[2:]) {
		files = append(files, uintptr(fd))
	}
	part := j.part(rank)
	path := part.Path
	if part.Program > 0 {
		// By the keeper's number: /proc/self would be the new process, in which the
		// descriptor may already have made room for the ones above.
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), j.programs[part.Program-1])
	}
	pidfd = -1
	unbind, err := bind(j.CPUs[rank])
	if err != nil {
		return 0, pidfd, &stepError{fmt.Sprintf("bind it to the processors %v", j.CPUs[rank]), err}
	}
	defer unbind()
	pid, err = forkExec(path, part.Args, &syscall.ProcAttr{
		Dir:   part.Dir,
		Env:   mergeEnv(slices.Clone(part.Env), j.RankEnv[rank]),
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL, // a rank never outlives the keeper
			PidFD:     &pidfd,
			Ptrace:    j.Held[rank],

			UseCgroupFD: cgroup >= 0,
			CgroupFD:    cgroup,
		},
	})
	if errors.Is(err, syscall.EPERM) && j.Held[rank] {
		err = &stepError{"stop it before its first instruction, for which ptrace is forbidden here (allow it, or stop no rank)", err}
	}
	return pid, pidfd, err
}

// forkExec is [syscall.ForkExec], but that too many open files are called so.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	pid, err = syscall.ForkExec(path, args, attr)
	if err == syscall.EBADF {
		err = syscall.EMFILE // the new process was to have a file under a number beyond the limit
	}
	return pid, err
}

// mergeEnv adds a list of "name=value" to one in which each name occurs once, so that it
// stays so, with the last value. Given a name twice, C programs would find the first.
func mergeEnv(env, more []string) []string {
	for _, entry := range more {
		name, _, _ := strings.Cut(entry, "=")
		same := func(e string) bool {
			return strings.HasPrefix(e, name) && (len(e) == len(name) || e[len(name)] == '=')
		}
		if i := slices.IndexFunc(env, same); i >= 0 {
			env[i] = entry
		} else {
			env = append(env, entry)
		}
	}
	return env
}
