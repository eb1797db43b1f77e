package linux

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// The kernel's table of processes.

// Process is an entry of the process table. PID and Start together identify a process: PIDs are
// reused only after far more time than the clock tick in which Start is counted.
type Process struct {
	PID, PPID, Group int
	Start            uint64        // clock ticks since boot
	State            byte          // state letter of ps
	CPU              time.Duration // processor time so far, in steps of a clock tick
	Name             string        // comm of the process, at most 15 bytes
}

// clockTick is the unit of times in /proc, on all architectures.
const clockTick = time.Second / 100

// Dead reports whether the process is a zombie. It may still have running threads.
func (p Process) Dead() bool { return p.State == 'Z' }

// Stopped reports whether a signal or a tracer has stopped the process.
func (p Process) Stopped() bool { return p.State == 'T' || p.State == 't' }

// ReadProcess returns the entry of a process.
func ReadProcess(pid int) (Process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	// The name is in parentheses and may contain parentheses and spaces.
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return Process{}, fmt.Errorf("read /proc/%d/stat: no name in %q", pid, b)
	}
	const state, ppid, pgrp, user, system, start = 0, 1, 2, 11, 12, 19 // indexes of the fields after the name
	f := bytes.Fields(b[to+1:])
	if len(f) <= start {
		return Process{}, fmt.Errorf("read /proc/%d/stat: only %d fields after the name", pid, len(f))
	}
	p := Process{PID: pid, Name: string(b[from+1 : to]), State: f[state][0]}
	var err1, err2, err3, err4, err5 error
	var ticks [2]uint64
	p.PPID, err1 = strconv.Atoi(string(f[ppid]))
	p.Group, err2 = strconv.Atoi(string(f[pgrp]))
	p.Start, err3 = strconv.ParseUint(string(f[start]), 10, 64)
	ticks[0], err4 = strconv.ParseUint(string(f[user]), 10, 64)
	ticks[1], err5 = strconv.ParseUint(string(f[system]), 10, 64)
	p.CPU = time.Duration(ticks[0]+ticks[1]) * clockTick
	return p, errors.Join(err1, err2, err3, err4, err5)
}

// ReadyTime returns how long the threads of a process have run, or have waited for a core; 0 if the kernel does not count that.
func ReadyTime(pid int) (sum time.Duration) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir(dir) // on error, and for a thread that has just ended, there is nothing to add
	for _, thread := range threads {
		b, _ := os.ReadFile(dir + thread.Name() + "/schedstat")
		var ran, waited time.Duration
		_, _ = fmt.Sscan(string(b), &ran, &waited)
		sum += ran + waited
	}
	return sum
}

// Processes returns all entries by PID. The table is not read atomically.
func Processes() (map[int]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	table := make(map[int]Process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		switch p, err := ReadProcess(pid); {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return nil, err
		case err == nil: // otherwise it has ended meanwhile
			table[pid] = p
		}
	}
	return table, nil
}
