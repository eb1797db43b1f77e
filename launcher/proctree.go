package launcher

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/proctable"
)

// Process names a process of the job that was not one of its ranks.
type Process struct {
	PID  int
	Name string // as the kernel knows it, at most 15 bytes
}

func (p Process) String() string { return fmt.Sprintf("%s (pid %d)", p.Name, p.PID) }

// descendants lists the processes whose chain of parents leads to root.
func descendants(root int) ([]proctable.Process, error) {
	table, err := proctable.All()
	if err != nil {
		return nil, err
	}
	if _, ok := table[root]; !ok {
		return nil, fmt.Errorf("/proc does not show process %d: it is not mounted for this PID namespace", root)
	}
	children := make(map[int][]proctable.Process)
	for _, p := range table {
		// The table is not read in one instant, so the parent's number may meanwhile
		// name another process. That one is younger than p, which no parent ever is.
		if parent, ok := table[p.PPID]; ok && parent.Start <= p.Start {
			children[p.PPID] = append(children[p.PPID], p)
		}
	}
	var found []proctable.Process
	for next := children[root]; len(next) > 0; {
		p := next[0]
		found = append(found, p)
		next = append(next[1:], children[p.PID]...)
	}
	return found, nil
}

// send sends signals to p, and never a process that was given p's number after p's death: once
// the descriptor is open, an unchanged start time proves that it refers to p.
// A process that has already gone is no error.
func send(p proctable.Process, sigs ...syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err == nil {
		defer unix.Close(fd)
	}
	now, readErr := proctable.Read(p.PID)
	if readErr != nil || now.Start != p.Start {
		return nil
	}
	to := func(sig syscall.Signal) error { return unix.PidfdSendSignal(fd, sig, nil, 0) }
	if err != nil { // a kernel or a container filter without pidfds: p was seen just now
		to = func(sig syscall.Signal) error { return unix.Kill(p.PID, sig) }
	}
	for _, sig := range sigs {
		if err := to(sig); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// killDescendants kills whatever descends from the process root and returns what it
// found alive. A process forked during the walk is for the next call.
func killDescendants(root int) ([]Process, error) {
	found, err := descendants(root)
	var alive []Process
	for _, p := range found {
		// A refusal shows by itself: the process stays, and is reported as stuck.
		_ = send(p, unix.SIGKILL)
		if !p.Dead() {
			alive = append(alive, Process{p.PID, p.Name})
		}
	}
	return alive, err
}
