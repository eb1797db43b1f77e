package launcher

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// starters is how many threads start ranks. Whoever starts one waits until its program has
// been loaded, for which the new process has to get its turn on a core.
const starters = 4

// atOnce is how many ranks are started before the keeper looks at anything else.
const atOnce = 16

// launch is the start of one rank, and what came of it.
type launch struct {
	rank  int
	begin time.Time
	ports ports
	pid   int
	pidfd int
	err   error

	cgroupless bool // the cgroup was in the way
}

// startOne starts a rank.
func (k *keeper) startOne(s *launch) {
	s.begin = time.Now()
	s.pid, s.pidfd, s.err = k.job.start(s.rank, s.ports.rank, k.inside)
	if s.err != nil && k.inside >= 0 {
		// Perhaps for the cgroup, which is a thing too many to be needed.
		s.pid, s.pidfd, s.err = k.job.start(s.rank, s.ports.rank, -1)
		s.cgroupless = s.err == nil
	}
	closeFDs(s.ports.rank)
	if s.err == nil && k.job.Held[s.rank] {
		if err := hold(s.pid); err != nil {
			s.err = &stepError{"stop it before its first instruction", err}
		}
	}
}

// starter makes a thread that works for the start of ranks, like this one, and never ends:
// the ranks would end with it.
func starter() chan<- func() {
	todo := make(chan func(), 1) // who has something for it need not wait until the thread is there
	go func() {
		runtime.LockOSThread()
		for do := range todo {
			do()
		}
	}()
	return todo
}

// startSome starts the next ranks. None is reaped meanwhile, so that their numbers are
// known when that happens.
func (k *keeper) startSome() {
	if k.started == 0 {
		// A thread that waits for a program to be loaded takes the runtime's place on a core.
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), min(starters, k.job.Ranks)))
	}
	some := make([]launch, min(atOnce, k.job.Ranks-k.started))
	if !k.connectSome(some) {
		return
	}
	var taken atomic.Int32
	work := func() {
		for i := taken.Add(1) - 1; int(i) < len(some); i = taken.Add(1) - 1 {
			k.startOne(&some[i])
		}
	}
	var others sync.WaitGroup
	for i := range min(starters, len(some)) - 1 {
		if len(k.starters) == i {
			k.starters = append(k.starters, starter())
		}
		others.Add(1)
		k.starters[i] <- func() { defer others.Done(); work() }
	}
	work()
	others.Wait()
	k.started += len(some)
	for i := range some {
		k.enter(&some[i])
	}
}

// connectSome makes the ports of the next ranks and sends the front its ends, before any of
// them can write: should this process be killed, what they have written is not lost with it.
// If that cannot be done, it ends the job.
func (k *keeper) connectSome(some []launch) bool {
	for i := range some {
		s := &some[i]
		s.rank = k.started + i
		var err error
		if s.ports, err = k.job.connect(); err != nil {
			for _, made := range some[:i] {
				closeFDs(made.ports.rank)
				closeFDs(made.ports.front)
			}
			k.refuse(s.rank, &stepError{"make its output pipes", err})
			return false
		}
	}
	k.tell(event{Kind: eventPorts, Rank: k.started, Ranks: len(some)})
	for i := range some {
		k.told.enclose(some[i].ports.front)
	}
	k.flush()
	return true
}

// enter takes note of a rank that has been started, or ends the job if that failed.
func (k *keeper) enter(s *launch) {
	if s.pid > 0 {
		k.rankOf[s.pid], k.since[s.rank] = s.rank, s.begin
		k.deaths.watch(s.rank, s.pidfd)
	}
	if s.cgroupless {
		k.leaveCgroup()
	}
	if s.err != nil {
		if k.phase == running {
			k.refuse(s.rank, s.err)
		}
		return
	}
	k.tell(event{Kind: eventStarted, Rank: s.rank, PID: s.pid})
}
