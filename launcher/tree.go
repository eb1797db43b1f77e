package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process names a process of the job that was not one of its ranks.
type Process struct {
	PID  int
	Name string // as the kernel knows it, at most 15 bytes
}

func (p Process) String() string { return fmt.Sprintf("%s (pid %d)", p.Name, p.PID) }

// process is one entry of the process table. Number and start time together name a
// process for good: numbers are handed out in a circle that takes far longer than
// the clock tick in which start is counted.
type process struct {
	pid, ppid int
	start     uint64 // clock ticks since boot
	dead      bool   // a zombie, perhaps with threads that still run
	name      string
}

// readProcess reads the table entry of pid.
func readProcess(pid int) (process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	// The name is in brackets and may itself hold brackets and spaces.
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return process{}, fmt.Errorf("read /proc/%d/stat: no name in %q", pid, b)
	}
	const state, ppid, start = 0, 1, 19 // fields after the name
	f := bytes.Fields(b[to+1:])
	if len(f) <= start {
		return process{}, fmt.Errorf("read /proc/%d/stat: only %d fields after the name", pid, len(f))
	}
	p := process{pid: pid, name: string(b[from+1 : to]), dead: f[state][0] == 'Z'}
	var err1, err2 error
	p.ppid, err1 = strconv.Atoi(string(f[ppid]))
	p.start, err2 = strconv.ParseUint(string(f[start]), 10, 64)
	return p, errors.Join(err1, err2)
}

// descendants lists the processes whose chain of parents leads to root.
func descendants(root int) ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	table := make(map[int]process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil { // else it ended meanwhile
			table[pid] = p
		}
	}
	if _, ok := table[root]; !ok {
		return nil, fmt.Errorf("/proc does not show process %d: it is not mounted for this PID namespace", root)
	}
	children := make(map[int][]process)
	for _, p := range table {
		// The table is not read in one instant, so the parent's number may meanwhile
		// name another process. That one is younger than p, which no parent ever is.
		if parent, ok := table[p.ppid]; ok && parent.start <= p.start {
			children[p.ppid] = append(children[p.ppid], p)
		}
	}
	var found []process
	for next := children[root]; len(next) > 0; {
		p := next[0]
		found = append(found, p)
		next = append(next[1:], children[p.pid]...)
	}
	return found, nil
}

// kill kills p, and never a process that was given p's number after p's death: once
// the descriptor is open, an unchanged start time proves that it refers to p.
// A process that has already gone is no error.
func (p process) kill() error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err == nil {
		defer unix.Close(fd)
	}
	now, readErr := readProcess(p.pid)
	if readErr != nil || now.start != p.start {
		return nil
	}
	if err != nil { // a kernel or a container filter without pidfds: p was seen just now
		err = unix.Kill(p.pid, unix.SIGKILL)
	} else {
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// killDescendants kills whatever descends from this process and returns what it
// found alive. A process forked during the walk is for the next call.
func killDescendants() ([]Process, error) {
	found, err := descendants(os.Getpid())
	var alive []Process
	for _, p := range found {
		// A refusal shows by itself: the process stays, and is reported as stuck.
		_ = p.kill()
		if !p.dead {
			alive = append(alive, Process{p.pid, p.name})
		}
	}
	return alive, err
}
