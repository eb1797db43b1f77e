package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitTimeout is what timeout(1) exits with when the time was over.
const exitTimeout = 124

// Result tells how one rank ended.
type Result struct {
	Program string // the name in messages
	PID     int    // 0 if the rank was never started
	Ended   bool
	Status  syscall.WaitStatus // if Ended
	Stopped bool               // the job was being stopped before the rank ended
	Usage   Usage              // if Ended

	// Of a rank that failed by itself:
	LastWords   string // the end of what it wrote to standard error, 2 KiB at most
	CorePath    string // its core file; "" if there is none, or it was not found
	CoreHandler string // the program that the kernel gave its core to instead
	OutOfMemory bool   // killed while the out-of-memory killer was at work, probably by it
}

// How tells how the rank ended, if it has: "exited with code 3".
func (r *Result) How() string { return describe(r.Status) }

// failed tells whether the rank ended in another way than with code 0.
func (r *Result) failed() bool { return r.Ended && exitCode(r.Status) != 0 }

// Report tells how a job went.
type Report struct {
	Ranks     []Result       // by rank
	First     int            // the rank that failed first, before the job was stopped; -1 if none did
	Victims   []int          // failed before First did, and because of it, see Config.Causes
	Signal    syscall.Signal // passed on to the ranks, and ended the job; 0 if none did
	TimedOut  bool           // its time was over, which ended the job
	Hang      []string       // why it made no progress, as Config.Explain has found; no part of Messages
	Abort     *Abort         // ended the job, if no other rank had failed before; nil if none did
	Leftover  []Process      // outlived the ranks of a job that was not stopped, and were stopped then
	Shortages []string       // limits of the system that a job that failed has reached, one a line
	Stuck     []Process      // of the job, could not be killed and may still be there
	Began     time.Time      // when Run was called
	Wall      time.Duration  // until nothing of the job was left
}

// ExitStatus is the job's exit status: 0 if every rank exited with 0, otherwise the
// code of the rank that failed first, where a rank killed by signal n counts as
// 128 + n, and one that aborted the job with the code that it gave; 128 + n too if
// signal n was passed on and ended the job before any rank failed; 124 if its time was
// over before that.
//
// Two cases are not the ranks' doing and give 1: a process that could not be killed,
// and a job stopped by its caller, for which [Run] returns an error.
func (r *Report) ExitStatus() int {
	if r.Abort != nil {
		return r.Abort.exitCode()
	}
	if r.First >= 0 {
		return exitCode(r.Ranks[r.First].Status)
	}
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	if r.TimedOut {
		return exitTimeout
	}
	for _, rank := range r.Ranks {
		if !rank.Ended || exitCode(rank.Status) != 0 {
			return 1
		}
	}
	if len(r.Stuck) > 0 {
		return 1
	}
	return 0
}

// firstToFail is the rank that failed first, or aborted the job; -1 if none did.
func (r *Report) firstToFail() int {
	if r.Abort != nil {
		return r.Abort.Rank
	}
	return r.First
}

// Messages are the lines that tell a user what deserves to be told: nothing after a
// job that went well.
func (r *Report) Messages() []string {
	var lines []string
	if r.Abort != nil {
		lines = append(lines, r.aborted())
	} else if r.First >= 0 {
		rank := r.Ranks[r.First]
		lines = append(lines, fmt.Sprintf("rank %d (%s, pid %d) %s%s",
			r.First, rank.Program, rank.PID, describe(rank.Status)+rank.core(), r.others(r.First)))
	} else if r.Signal != 0 {
		lines = append(lines, fmt.Sprintf("the job was stopped by signal %s", signalName(r.Signal)))
	}
	lines = append(lines, r.Shortages...)
	if len(r.Leftover) > 0 {
		lines = append(lines, fmt.Sprintf("%s had outlived the ranks and %s stopped: %s; a rank should wait for what it starts",
			count(len(r.Leftover), "process", "processes"), was(len(r.Leftover)), list(r.Leftover)))
	}
	if len(r.Stuck) > 0 {
		lines = append(lines, fmt.Sprintf("%s of the job could not be killed: %s; look at the state and owner with ps and end by hand",
			count(len(r.Stuck), "process", "processes"), list(r.Stuck)))
	}
	return lines
}

// others tells what became of the ranks, but for one that failed first, that had not
// ended then.
func (r *Report) others(than int) string {
	stopped, unstarted := 0, 0
	for i, rank := range r.Ranks {
		switch {
		case i == than:
		case rank.PID == 0:
			unstarted++
		case rank.Stopped || !rank.Ended:
			stopped++
		}
	}
	var s string
	for _, victim := range r.Victims {
		s += fmt.Sprintf("; rank %d failed because of it", victim)
	}
	switch {
	case stopped == 0:
	case stopped < len(r.Ranks)-1:
		s += fmt.Sprintf("; %s that still ran %s stopped", count(stopped, "rank", "ranks"), was(stopped))
	case stopped == 1:
		s += "; the other rank was stopped"
	default:
		s += fmt.Sprintf("; the other %d ranks were stopped", stopped)
	}
	if unstarted > 0 {
		s += fmt.Sprintf("; %s %s not started", count(unstarted, "rank", "ranks"), was(unstarted))
	}
	return s
}

func describe(ws syscall.WaitStatus) string {
	if !ws.Signaled() {
		return fmt.Sprintf("exited with code %d", ws.ExitStatus())
	}
	s := "was killed by signal " + signalName(ws.Signal())
	if ws.CoreDump() {
		s += ", core dumped"
	}
	return s
}

// core returns where the core file is that the preceding text reports, or what killed the rank.
func (r *Result) core() string {
	switch {
	case r.OutOfMemory:
		return ", probably by the kernel's out-of-memory killer"
	case r.CorePath != "":
		return " to " + r.CorePath
	case r.CoreHandler != "":
		return " to " + r.CoreHandler
	}
	return ""
}

// signalName gives a signal's name and meaning: "SIGKILL (killed)".
func signalName(sig syscall.Signal) string {
	name := unix.SignalName(sig)
	if name == "" {
		return fmt.Sprintf("%d", int(sig)) // real-time signals have no names
	}
	return fmt.Sprintf("%s (%v)", name, sig)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func list(ps []Process) string {
	const most = 8
	var s []string
	for i, p := range ps {
		if i == most {
			s = append(s, fmt.Sprintf("and %d more", len(ps)-most))
			break
		}
		s = append(s, p.String())
	}
	return strings.Join(s, ", ")
}
