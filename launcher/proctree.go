package launcher

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// process is a process of the job that is not a rank.
type process struct {
	PID  int
	Name string // comm of the process, at most 15 bytes
}

func (p process) String() string { return fmt.Sprintf("%s (pid %d)", p.Name, p.PID) }

// descendants returns the processes whose chain of parents leads to root.
func descendants(root int) ([]linux.Process, error) {
	table, err := linux.Processes()
	if err != nil {
		return nil, err
	}
	if _, ok := table[root]; !ok {
		return nil, fmt.Errorf("read /proc: process %d is missing: mount the proc file system of this PID namespace", root)
	}
	children := make(map[int][]linux.Process)
	for _, p := range table {
		// The table is not read atomically: the parent's PID may meanwhile belong to a new
		// process. That one started after p, which no parent did.
		if parent, ok := table[p.PPID]; ok && parent.Start <= p.Start {
			children[p.PPID] = append(children[p.PPID], p)
		}
	}
	var found []linux.Process
	for next := children[root]; len(next) > 0; {
		p := next[0]
		found = append(found, p)
		next = append(next[1:], children[p.PID]...)
	}
	return found, nil
}

// send sends signals to p. It never signals another process that has got p's PID after p's death:
// once FindProcess has opened a pidfd, an unchanged start time proves that the pidfd refers to p.
// Without pidfds (an old kernel, a container's filter), the start time has just been checked. If p
// has ended, send returns nil.
func send(p linux.Process, sigs ...syscall.Signal) error {
	target, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer target.Release()
	now, err := linux.ReadProcess(p.PID)
	if err != nil || now.Start != p.Start {
		return nil
	}
	for _, sig := range sigs {
		if err := target.Signal(sig); errors.Is(err, os.ErrProcessDone) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// killDescendants kills all descendants of the process root and returns those that it found
// alive. It does not reach processes that are forked during the walk; the caller repeats it.
func killDescendants(root int) ([]process, error) {
	found, err := descendants(root)
	var alive []process
	for _, p := range found {
		// If this fails, the process survives and is reported as stuck.
		_ = send(p, unix.SIGKILL)
		if !p.Dead() {
			alive = append(alive, process{p.PID, p.Name})
		}
	}
	return alive, err
}
