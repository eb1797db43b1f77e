package peers

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard is a process that tidies up after a session, also if this process is killed.
type guard struct {
	cmd  *exec.Cmd
	hold io.Closer // closed by this process, or by the kernel when it dies: the guard begins then
}

// guardScript waits for the end of its input. Then it gives the processes that have the variable $0 in their environment the time
// to end, as they do after the SIGTERM that each gets when this process dies, kills those that remain, and removes the directories in "$@".
//
// It ignores signals, because a launcher sends SIGTERM to all processes of a job that ends. It is killed, too, if that takes longer than
// the launcher's grace.
const guardScript = `trap '' TERM INT HUP
read -r _
began=$(date +%s)
while left=$(grep -lzxF -- "$0" /proc/[0-9]*/environ 2>/dev/null) || [ -n "$left" ]; do
	took=$(($(date +%s) - began))
	if [ $took -gt 3 ]; then
		for file in $left; do
			pid=${file#/proc/}
			pid=${pid%/environ}
			grep -qzxF -- "$0" "$file" 2>/dev/null && kill -KILL "$pid" 2>/dev/null &&
				rm -f -- /dev/shm/"$pid":* # of libfabric
		done
	fi
	[ $took -lt 10 ] || break
	sleep 0.1
done
rm -rf -- "$@"`

// startGuard starts a guard for processes with this variable in their environment, and for directories, which need not be there yet.
// It is in a session of its own, so that no signal to the process group ends it.
func startGuard(variable string, dirs ...string) (*guard, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", guardScript, variable}, dirs...)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	hold, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("peers: process that removes files: %w", err)
	}
	return &guard{cmd, hold}, nil
}

// end waits until the guard has tidied up.
func (g *guard) end() {
	g.hold.Close()
	_ = g.cmd.Wait() // if it was killed, the caller removes the files
}
