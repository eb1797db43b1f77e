package launcher

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// start starts one rank in a process group of its own and returns its number and,
// if the kernel has such, a pidfd. input is the standard input of every rank but 0.
func (j *job) start(rank, input int) (pid, pidfd int, err error) {
	if rank == 0 {
		input = 0
	}
	out := j.outputFD(rank)
	files := []uintptr{uintptr(input), uintptr(out), uintptr(out + 1)}
	for i := range j.Files {
		files = append(files, uintptr(j.filesFD()+i))
	}
	path := j.Path
	if j.Program {
		// By the keeper's number: /proc/self would be the new process, in which the
		// descriptor may already have made room for the ones above.
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), j.programFD())
	}
	pidfd = -1
	pid, err = syscall.ForkExec(path, j.Args, &syscall.ProcAttr{
		Dir:   j.Dir,
		Env:   mergeEnv(j.Env, j.RankEnv[rank]),
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL, // a rank never outlives the keeper
			PidFD:     &pidfd,
		},
	})
	return pid, pidfd, err
}

// mergeEnv joins lists of "name=value" so that each name occurs once, with its last
// value. Given a name twice, C programs would find the first.
func mergeEnv(lists ...[]string) []string {
	at := make(map[string]int)
	var env []string
	for _, list := range lists {
		for _, entry := range list {
			name, _, _ := strings.Cut(entry, "=")
			if i, ok := at[name]; ok {
				env[i] = entry
				continue
			}
			at[name] = len(env)
			env = append(env, entry)
		}
	}
	return env
}
