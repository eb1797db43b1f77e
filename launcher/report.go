package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitTimeout is the exit status after Config.Timeout, as for timeout(1).
const exitTimeout = 124

// Result says how one rank ended.
type Result struct {
	Program string // name in messages
	PID     int    // 0 if the rank was never started
	Ended   bool
	Status  syscall.WaitStatus // valid if Ended
	Stopped bool               // the rank ended after the launcher had begun to stop the job
	usage   usage              // valid if Ended

	// Set for a rank that failed by itself:
	stderrTail  string // end of its standard error output, at most 2 KiB
	corePath    string // its core file; "" if there is none or it was not found
	coreHandler string // program to which the kernel piped its core
	outOfMemory bool   // probably killed by the out-of-memory killer
}

// How returns how the rank ended, such as "exited with code 3".
func (r *Result) How() string { return describe(r.Status) }

// failed reports whether the rank ended other than with code 0.
func (r *Result) failed() bool { return r.Ended && exitCode(r.Status) != 0 }

// Report is the result of a job.
type Report struct {
	Ranks         []Result       // by rank
	First         int            // rank that failed first, before the job was stopped; -1 if none did
	Signal        syscall.Signal // signal that ended the job; 0 if none did
	TimedOut      bool           // Config.Timeout ended the job
	Hang          []string       // result of the last call of Config.Diagnose; not part of Messages
	Abort         *Abort         // abort that ended the job; nil if none did
	GoesOn        bool           // a rank that fails does not stop the others, see Config.OnDeath
	victims       []int          // ranks that failed before First did, and because of it, see Config.Causes
	leftover      []process      // processes that outlived the ranks of a job that was not stopped
	Faults        any            // outcome of the fault plan, for the JSON report only; nil if there was none
	LimitsReached []string       // messages about limits that a failed job has reached
	stuck         []process      // processes of the job that could not be killed
	began         time.Time      // when Run was called
	wall          time.Duration  // until no process of the job was left
}

// newReport returns the report of a job of which no process has been started.
func newReport(cfg *Config) *Report {
	r := &Report{First: -1, GoesOn: cfg.OnDeath != nil, began: time.Now()}
	for _, name := range cfg.names() {
		r.Ranks = append(r.Ranks, Result{Program: name})
	}
	return r
}

// ExitStatus returns the exit status of the job. It is 0 if every rank exited with 0. Otherwise
// it is the exit code of the rank that failed first, 128 + n if signal n killed it, and the code
// of the abort if it aborted the job. If no rank failed before, it is 128 + n if signal n ended
// the job, and 124 if Config.Timeout did.
//
// It is 1 in two cases that are not caused by ranks: a process could not be killed, or the caller
// stopped the job, for which [Job.Run] returns an error.
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
	if len(r.stuck) > 0 {
		return 1
	}
	return 0
}

// firstToFail returns the rank that failed first or aborted the job, -1 if none did.
func (r *Report) firstToFail() int {
	if r.Abort != nil {
		return r.Abort.Rank
	}
	return r.First
}

// Messages returns the messages for the user, none after a successful job.
func (r *Report) Messages() []string {
	var lines []string
	if r.Abort != nil {
		lines = append(lines, r.abortMessage())
	} else if r.First >= 0 {
		lines = append(lines, r.describe(r.First)+r.otherRanks(r.First))
	}
	if r.Signal != 0 && (r.firstToFail() < 0 || r.GoesOn) {
		lines = append(lines, fmt.Sprintf("job stopped by signal %s", signalName(r.Signal)))
	}
	lines = append(lines, r.LimitsReached...)
	if len(r.leftover) > 0 {
		lines = append(lines, fmt.Sprintf("%s outlived the ranks and %s stopped: %s: let each rank wait for the processes that it starts",
			count(len(r.leftover), "process", "processes"), was(len(r.leftover)), list(r.leftover)))
	}
	if len(r.stuck) > 0 {
		lines = append(lines, fmt.Sprintf("%s of the job could not be killed: %s: check their state and owner with ps",
			count(len(r.stuck), "process", "processes"), list(r.stuck)))
	}
	return lines
}

// describe returns which rank has ended, and how.
func (r *Report) describe(rank int) string {
	one := &r.Ranks[rank]
	return fmt.Sprintf("rank %d (%s, pid %d) %s%s", rank, one.Program, one.PID, describe(one.Status), one.core())
}

// otherRanks returns what happened to the other ranks that had not ended when rank failed.
func (r *Report) otherRanks(failed int) string {
	stopped, unstarted, died := 0, 0, 0
	for i, rank := range r.Ranks {
		switch {
		case i == failed:
		case r.GoesOn && rank.failed() && !rank.Stopped:
			died++
		case rank.PID == 0:
			unstarted++
		case rank.Stopped || !rank.Ended:
			stopped++
		}
	}
	var s string
	for _, victim := range r.victims {
		s += fmt.Sprintf("; rank %d failed because of it", victim)
	}
	if died > 0 {
		s += fmt.Sprintf("; %s failed, too", count(died, "other rank", "other ranks"))
	}
	if others := len(r.Ranks) - 1 - died - stopped - unstarted; r.GoesOn && others > 0 {
		s += fmt.Sprintf("; %s went on", count(others, "rank", "ranks"))
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

// core returns the location of the core file, or what killed the rank, to be appended to the text
// about its end.
func (r *Result) core() string {
	switch {
	case r.outOfMemory:
		return ", probably by the kernel's out-of-memory killer"
	case r.corePath != "":
		return " to " + r.corePath
	case r.coreHandler != "":
		return " to " + r.coreHandler
	}
	return ""
}

// signalName returns a signal's name and meaning, such as "SIGKILL (killed)".
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

func list(ps []process) string {
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
