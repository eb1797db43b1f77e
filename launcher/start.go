package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/softnd/softnd/internal/linux"
)

// stepError is the failure of a step before the program is executed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// start starts one rank in its own process group. It returns the PID and the pidfd of the rank;
// pidfd is -1 if the kernel has no pidfds. ends are the rank's ends of its pipes. cgroup is the
// descriptor of the cgroup directory, or -1.
func (j *jobSpec) start(rank int, ends []int, cgroup int) (pid, pidfd int, err error) {
	files := []uintptr{uintptr(j.input(rank)), uintptr(ends[0]), uintptr(ends[1])}
	for _, fd := range slices.Concat(j.files, ends[2:]) {
		files = append(files, uintptr(fd))
	}
	app := j.app(rank)
	path := app.Path
	if app.Program > 0 {
		// With the PID of the supervisor: /proc/self would be the new process, in which the
		// descriptor may already be replaced.
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), j.programs[app.Program-1])
	}
	pidfd = -1
	restore, err := linux.BindThread(j.CPUs[rank])
	if err != nil {
		return 0, pidfd, &stepError{fmt.Sprintf("bind it to processors %v", j.CPUs[rank]), err}
	}
	defer func() { _ = restore() }() // on failure, the next rank that is bound sets the affinity again
	pid, err = forkExec(path, app.Args, &syscall.ProcAttr{
		Dir:   app.Dir,
		Env:   mergeEnv(slices.Clone(app.Env), j.RankEnv[rank]),
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL, // a rank dies with the supervisor
			PidFD:     &pidfd,
			Ptrace:    j.StopAtStart[rank],

			UseCgroupFD: cgroup >= 0,
			CgroupFD:    cgroup,
		},
	})
	if errors.Is(err, syscall.EPERM) && j.StopAtStart[rank] {
		err = &stepError{"stop it before its first instruction (allow the system call ptrace, or stop no rank)", err}
	}
	return pid, pidfd, err
}

// forkExec is [syscall.ForkExec] with EMFILE as the error for too many open files.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	pid, err = syscall.ForkExec(path, args, attr)
	if err == syscall.EBADF {
		err = syscall.EMFILE // dup3 to a descriptor number beyond the limit
	}
	return pid, err
}

// mergeEnv adds entries "name=value" to an environment. Each name occurs once in the result, with
// its last value. C programs would find the first of several values.
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
