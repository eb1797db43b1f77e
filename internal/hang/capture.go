// Package hang finds out why a job makes no progress. It reads the arena and the kernel's process
// table from outside of the ranks, so it works even if ranks cannot answer. It asks the ranks that
// can answer for their stacks.
package hang

import (
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// Process is a rank as its launcher knows it.
type Process struct {
	PID     int // 0: the rank was not started, or the number of its process is not known
	Program string
	Ended   string // how it ended: "exited with code 0", or that it was not started; "" if it still runs
}

// Snapshot is the state of a job at one moment.
type Snapshot struct {
	at          int64 // as linux.HostClock counts
	ranks       []rank
	answerBytes int // bytes of stacks received

	// Computed from ranks by resolve.
	rankOf     map[shm.MemberID]int
	waits      [][]wait        // of each rank
	waiters    map[int]waiters // by rank: the ranks that wait for it
	stuck      []bool          // by rank: cannot continue before another stuck rank does; includes ranks that are stopped, have ended or have not joined
	deadlocked []bool          // by rank: cannot continue before another deadlocked rank does, even if all other ranks continue
}

// rank is the state of one rank.
type rank struct {
	Process
	pid          int                  // of the process that has joined, which may be a child of Process.PID; else Process.PID
	state        byte                 // state of that process, as ps shows it; 0: unknown
	id           shm.MemberID         // 0: the rank has not joined
	left         bool                 // its member has left or died
	observer     *statuspage.Observer // nil: the rank has not joined
	lastProgress int64
	page         statuspage.Page
	idle         bool  // it has made no progress since it wrote page
	pageErr      error // why its status page cannot be read
	noAnswer     bool  // it has not published its stacks in time
	stacks       []stack
	cpu          time.Duration // processor time of the process so far
	ready        time.Duration // the same, and the time in which it waited for a core
	busy         bool          // it has used a good part of a core during the capture, or has waited for one
}

// nearSlots is how many slots MemberOf checks. A process tries the slot of its rank first, and then those after it.
const nearSlots = 16

// MemberOf returns the member that shows the work of a rank: the one that has the rank, or else one that has joined for it without taking
// it, as verbs programs do.
func MemberOf(arena *shm.Arena, rank int) (id shm.MemberID, ok bool) {
	if id, ok = arena.MemberOf(rank); ok {
		return id, true
	}
	for slot := rank; slot < rank+nearSlots; slot++ {
		if p, err := arena.PeerInSlot(slot); err == nil && arena.RankOf(p.ID()) == rank {
			return p.ID(), true
		}
	}
	return 0, false
}

// Capture reads the state of a job. It waits at most timeout for the stacks of the ranks.
func Capture(arena *shm.Arena, processes []Process, timeout time.Duration) *Snapshot {
	p := &Snapshot{ranks: make([]rank, len(processes))}
	begun := time.Now()
	questions := make([]uint32, len(processes))
	for i := range p.ranks {
		r := &p.ranks[i]
		r.Process, r.pid = processes[i], processes[i].PID
		id, ok := MemberOf(arena, i)
		if !ok {
			continue
		}
		o, err := statuspage.Observe(arena, id)
		if err != nil {
			r.pageErr = err
			continue
		}
		r.observer, r.id, r.left = o, id, o.Peer.Gone()
		if pid, ok := o.Peer.PID(); ok {
			r.pid = pid
		}
		r.state, r.cpu, r.ready = stateOf(r.pid), cpuOf(r.pid), linux.ReadyTime(r.pid)
		if !r.isGone() && !r.isStopped() {
			questions[i], r.noAnswer = o.RequestStacks(), true
		}
	}
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		waits := false
		for i := range p.ranks {
			if r := &p.ranks[i]; r.noAnswer {
				r.noAnswer = !p.readAnswer(r, questions[i])
				waits = waits || r.noAnswer
			}
		}
		if !waits || time.Now().After(end) {
			break
		}
	}
	time.Sleep(min(timeout, cpuSample) - time.Since(begun))
	p.at = linux.HostClock()
	sample := time.Since(begun)
	for i := range p.ranks {
		r := &p.ranks[i]
		if r.hasJoined() {
			cpu, ready := cpuOf(r.pid), linux.ReadyTime(r.pid)
			r.busy = busyFrom*(cpu-r.cpu) >= sample || readyFrom*(ready-r.ready) >= sample
			r.cpu, r.ready = cpu, ready
			r.state = stateOf(r.pid)
			r.read()
			r.left = r.left || r.observer.Peer.Gone() // the page may be that of the record's next owner
		}
	}
	p.readOthers()
	p.resolve()
	return p
}

// A rank that has used a fifth of a core in cpuSample computes: it may share the core with others. On a loaded machine it may have had less,
// but was ready to run for half of the time.
const (
	cpuSample = 300 * time.Millisecond
	busyFrom  = 5
	readyFrom = 2
)

// cpuOf returns the processor time of a process, 0 if it is not known.
func cpuOf(pid int) time.Duration {
	p, _ := linux.ReadProcess(pid)
	return p.CPU
}

// maxAnswers is the total number of bytes of stacks that readAnswer parses.
const maxAnswers = 32 << 20

// readAnswer reads a rank's stacks, and reports whether the rank has answered.
func (p *Snapshot) readAnswer(r *rank, question uint32) bool {
	answer, ok, err := r.observer.Stacks(question)
	if err != nil {
		r.pageErr = err
	}
	if p.answerBytes += len(answer); p.answerBytes <= maxAnswers {
		r.stacks = readStacks(answer)
	}
	return ok
}

// read reads a rank's status page.
func (r *rank) read() {
	var err error
	r.lastProgress = r.observer.LastProgress()
	if r.page, r.idle, err = r.observer.Read(); err != nil {
		r.pageErr = err
	}
}

func (r *rank) hasJoined() bool { return r.id != 0 }

// isGone reports whether the rank has ended or left the job.
func (r *rank) isGone() bool { return r.Ended != "" || r.left }

// isOutside reports whether the rank is in no call of softnd, although its page may say otherwise or
// nothing: a member with manual progress answers in each call that waits.
func (r *rank) isOutside() bool { return r.noAnswer && r.page.Manual && !r.isStopped() }

// ending describes how the rank ended or left.
func (r *rank) ending() string {
	switch {
	case r.PID > 0 && r.Ended != "" && !r.hasJoined():
		return r.Ended + " without having called softnd.Init (in C snd_job_init)"
	case r.Ended != "":
		return r.Ended
	case r.pid == 0:
		return "has left the job (Job.Close), or has died"
	case r.state != 0 && r.state != 'Z':
		return "has left the job (Job.Close) and still runs"
	case r.PID > 0 && r.PID != r.pid: // the launcher has started another process
		return "has ended, but the wrapper that started it still runs"
	}
	return "has ended"
}

// isStopped reports whether a signal or a debugger has stopped the process.
func (r *rank) isStopped() bool { return linux.Process{State: r.state}.Stopped() }

// readOthers reads the process states of ranks that have not joined. The launcher may have started a
// wrapper for a rank, and a child of the wrapper may be the stopped process.
func (p *Snapshot) readOthers() {
	byGroup := make(map[int]*rank)
	for i := range p.ranks {
		if r := &p.ranks[i]; !r.hasJoined() && r.Ended == "" && r.PID > 0 {
			byGroup[r.PID] = r // each rank leads a process group
		}
	}
	if len(byGroup) == 0 {
		return
	}
	table, _ := linux.Processes() // on error their states stay unknown
	for pid, process := range table {
		r := byGroup[process.Group]
		if r == nil || r.isStopped() || pid != r.PID && !process.Stopped() {
			continue
		}
		r.pid, r.state = pid, process.State
	}
}

// stateOf returns the letter that ps shows for a process, 0 if there is none.
func stateOf(pid int) byte {
	p, _ := linux.ReadProcess(pid)
	return p.State
}
