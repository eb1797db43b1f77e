package launcher

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// starterThreads is the number of threads that start ranks. Each start blocks until the program
// is loaded, for which the new process has to get a core.
const starterThreads = 4

// startBatch is the number of ranks that are started before the supervisor handles other events.
const startBatch = 16

// rankStart is the start of one rank and its result.
type rankStart struct {
	rank  int
	begin time.Time
	pipes rankPipes
	pid   int
	pidfd int
	err   error

	withoutCgroup bool // the start succeeded only without the cgroup
}

// startOne starts one rank.
func (k *supervisor) startOne(s *rankStart) {
	s.begin = time.Now()
	s.pid, s.pidfd, s.err = k.job.start(s.rank, s.pipes.rank, k.cgroupFD)
	if s.err != nil && k.cgroupFD >= 0 {
		// The cgroup may be the reason, and the job works without it.
		s.pid, s.pidfd, s.err = k.job.start(s.rank, s.pipes.rank, -1)
		s.withoutCgroup = s.err == nil
	}
	closeFDs(s.pipes.rank)
	if s.err == nil && k.job.StopAtStart[s.rank] {
		if err := stopBeforeStart(s.pid); err != nil {
			s.err = &stepError{"stop it before its first instruction", err}
		}
	}
}

// newStarter returns the work queue of a new thread that starts ranks. The thread never exits:
// its ranks would die with it.
func newStarter() chan<- func() {
	todo := make(chan func(), 1) // the sender need not wait until the thread exists
	go func() {
		runtime.LockOSThread()
		for do := range todo {
			do()
		}
	}()
	return todo
}

// startNextBatch starts the next ranks. The supervisor does not reap during that time, so it
// knows the PIDs of all ranks when it does.
func (k *supervisor) startNextBatch() {
	if k.started == 0 {
		// A thread that waits for a program to be loaded occupies one of the Go runtime's Ps.
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), min(starterThreads, k.job.Ranks)))
	}
	some := make([]rankStart, k.job.startTogether(k.started))
	if !k.makePipes(some) {
		return
	}
	var taken atomic.Int32
	work := func() {
		for i := taken.Add(1) - 1; int(i) < len(some); i = taken.Add(1) - 1 {
			k.startOne(&some[i])
		}
	}
	var others sync.WaitGroup
	for i := range min(starterThreads, len(some)) - 1 {
		if len(k.starters) == i {
			k.starters = append(k.starters, newStarter())
		}
		others.Add(1)
		k.starters[i] <- func() { defer others.Done(); work() }
	}
	work()
	others.Wait()
	k.started += len(some)
	for i := range some {
		k.recordStart(&some[i])
	}
}

// makePipes creates the pipes of the next ranks and sends the front end its ends before the ranks
// start. If the supervisor is killed, their output is not lost. On failure, makePipes ends the
// job.
func (k *supervisor) makePipes(some []rankStart) bool {
	for i := range some {
		s := &some[i]
		s.rank = k.started + i
		var err error
		if s.pipes, err = k.job.makeRankPipes(); err != nil {
			for _, made := range some[:i] {
				closeFDs(made.pipes.rank)
				closeFDs(made.pipes.frontEnd)
			}
			k.startFailed(s.rank, &stepError{"create its output pipes", err})
			return false
		}
	}
	k.send(event{Kind: eventPipes, Rank: k.started, Ranks: len(some)})
	for i := range some {
		k.toFrontEnd.enclose(some[i].pipes.frontEnd)
	}
	k.flush()
	return true
}

// recordStart records a started rank, or ends the job if the start failed.
func (k *supervisor) recordStart(s *rankStart) {
	if s.pid > 0 {
		k.rankOf[s.pid], k.since[s.rank] = s.rank, s.begin
		k.exits.watch(s.rank, s.pidfd)
	}
	if s.withoutCgroup {
		k.leaveCgroup()
	}
	if s.err != nil {
		if k.phase == running {
			k.startFailed(s.rank, s.err)
		}
		return
	}
	k.send(event{Kind: eventStarted, Rank: s.rank, PID: s.pid})
}
