// Package proctable reads the kernel's table of processes.
package proctable

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Process is an entry of the process table. PID and Start together identify a process: PIDs are
// reused only after far more time than the clock tick in which Start is counted.
type Process struct {
	PID, PPID, Group int
	Start            uint64 // clock ticks since boot
	State            byte   // state letter of ps
	Name             string // comm of the process, at most 15 bytes
}

// Dead reports whether the process is a zombie. It may still have running threads.
func (p Process) Dead() bool { return p.State == 'Z' }

// Stopped reports whether a signal or a tracer has stopped the process.
func (p Process) Stopped() bool { return p.State == 'T' || p.State == 't' }

// Read returns the entry of a process.
func Read(pid int) (Process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	// The name is in parentheses and may contain parentheses and spaces.
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return Process{}, fmt.Errorf("read /proc/%d/stat: no name in %q", pid, b)
	}
	const state, ppid, pgrp, start = 0, 1, 2, 19 // indexes of the fields after the name
	f := bytes.Fields(b[to+1:])
	if len(f) <= start {
		return Process{}, fmt.Errorf("read /proc/%d/stat: only %d fields after the name", pid, len(f))
	}
	p := Process{PID: pid, Name: string(b[from+1 : to]), State: f[state][0]}
	var err1, err2, err3 error
	p.PPID, err1 = strconv.Atoi(string(f[ppid]))
	p.Group, err2 = strconv.Atoi(string(f[pgrp]))
	p.Start, err3 = strconv.ParseUint(string(f[start]), 10, 64)
	return p, errors.Join(err1, err2, err3)
}

// All returns all entries by PID. The table is not read atomically.
func All() (map[int]Process, error) {
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
		switch p, err := Read(pid); {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return nil, err
		case err == nil: // otherwise it has ended meanwhile
			table[pid] = p
		}
	}
	return table, nil
}
