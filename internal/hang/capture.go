// Package hang finds out why a job does not go on. It looks at the arena and at the
// processes from outside, so it works when ranks cannot answer, and asks those that can
// for their stacks.
package hang

import (
	"time"

	"github.com/softnd/softnd/internal/proctable"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// Process is what a launcher knows of a rank.
type Process struct {
	PID     int // 0: it was never started
	Program string
	Ended   string // how: "exited with code 0"; "" if it still runs
}

// Picture is a job as it was at one moment.
type Picture struct {
	at    int64 // as shm.Clock counts
	ranks []rank
	heard int // bytes of answers

	// What follows from the ranks; see resolve.
	rankOf map[shm.MemberID]int
	waits  [][]wait         // of each rank
	wanted map[int]awaiters // by rank: who waits for it
	stuck  []bool           // by rank: cannot go on before another of these does; includes those that are stopped, have ended, or have not joined
	locked []bool           // the same of the waits alone: none continues even if all others do
}

// rank is what can be seen of one.
type rank struct {
	Process
	pid     int          // of the process that has joined, which a wrapper may have started; else Process.PID
	state   byte         // of that process, as ps shows it; 0: unknown
	id      shm.MemberID // 0: it has not joined
	left    bool         // it is no member any more
	moved   int64
	told    statuspage.Page
	still   bool  // nothing has moved since it told that
	unclear error // why its status page cannot be read
	silent  bool  // it has not answered
	stacks  []stack
}

// Look takes a picture. It waits for the stacks of the ranks for as long as patience
// lasts.
func Look(arena *shm.Arena, processes []Process, patience time.Duration) *Picture {
	p := &Picture{ranks: make([]rank, len(processes))}
	peers, questions := make([]*shm.Peer, len(processes)), make([]uint32, len(processes))
	for i := range p.ranks {
		r := &p.ranks[i]
		r.Process, r.pid = processes[i], processes[i].PID
		id, ok := arena.MemberOf(i)
		if !ok {
			continue
		}
		peer, err := arena.Peer(id)
		if err != nil {
			r.unclear = err
			continue
		}
		r.id, r.left = id, peer.Gone()
		if pid, ok := peer.PID(); ok {
			r.pid = pid
		}
		r.state = stateOf(r.pid)
		if !r.over() && !r.stopped() {
			peers[i], questions[i] = peer, peer.RequestStacks()
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		waits := false
		for i, peer := range peers {
			if peer != nil && p.hear(&p.ranks[i], peer, questions[i]) {
				peers[i] = nil
			}
			waits = waits || peers[i] != nil
		}
		if !waits || time.Now().After(end) {
			break
		}
	}
	p.at = shm.Clock()
	for i := range p.ranks {
		r := &p.ranks[i]
		r.silent = peers[i] != nil
		if r.joined() {
			r.state = stateOf(r.pid)
			r.read(arena)
		}
	}
	p.lookAtOthers()
	p.resolve()
	return p
}

// mostAnswers is how many bytes of answers are looked at. Thousands of goroutines may
// say the same in each of many ranks.
const mostAnswers = 32 << 20

// hear takes a rank's answer, and tells whether there was one.
func (p *Picture) hear(r *rank, peer *shm.Peer, question uint32) bool {
	answer, ok, err := peer.Stacks(question)
	if err != nil {
		r.unclear = err
	}
	if p.heard += len(answer); p.heard <= mostAnswers {
		r.stacks = readStacks(answer)
	}
	return ok
}

// read reads what a rank has told of itself.
func (r *rank) read(arena *shm.Arena) {
	peer, err := arena.Peer(r.id)
	if err == nil {
		var s shm.StatusPage
		if s, err = peer.StatusPage(); err == nil {
			r.moved, r.still = s.LastProgress, s.WrittenAt >= s.LastProgress && len(s.Text) > 0
			if r.still {
				r.told, err = statuspage.Decode(s.Text)
			}
		}
	}
	if err != nil {
		r.still, r.unclear = false, err
	}
}

func (r *rank) joined() bool { return r.id != 0 }

// over tells whether the rank takes no part in the job any more.
func (r *rank) over() bool { return r.Ended != "" || r.left }

// how tells how that came about.
func (r *rank) how() string {
	switch {
	case r.PID == 0 && r.Ended != "":
		return "was not started"
	case r.Ended != "" && !r.joined():
		return r.Ended + " without having called softnd.Init"
	case r.Ended != "":
		return r.Ended
	case r.state == 0 || r.state == 'Z':
		return "has ended, though what it was started by still runs"
	}
	return "has left the job (Job.Close) and still runs"
}

// stopped tells whether a signal or a debugger has stopped the process.
func (r *rank) stopped() bool { return proctable.Process{State: r.state}.Stopped() }

// lookAtOthers finds the states of ranks that have not joined. A wrapper stands in
// front of some, and one of its children may be what is stopped.
func (p *Picture) lookAtOthers() {
	byGroup := make(map[int]*rank)
	for i := range p.ranks {
		if r := &p.ranks[i]; !r.joined() && r.Ended == "" && r.PID > 0 {
			byGroup[r.PID] = r // each rank leads a process group
		}
	}
	if len(byGroup) == 0 {
		return
	}
	table, _ := proctable.All() // else their states stay unknown
	for pid, process := range table {
		r := byGroup[process.Group]
		if r == nil || r.stopped() || pid != r.PID && !process.Stopped() {
			continue
		}
		r.pid, r.state = pid, process.State
	}
}

// stateOf returns the letter that ps shows for a process, 0 if there is none.
func stateOf(pid int) byte {
	p, _ := proctable.Read(pid)
	return p.State
}
