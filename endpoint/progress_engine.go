package endpoint

// TWIN c/src/endpoint/progress_engine.c.

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/doorbell"
	"github.com/softnd/softnd/internal/goruntime"
)

// The engine makes progress when the program does not. While the program is in a wait, which
// drives everything, the engine rests. While the program polls, the engine polls rarely and with
// its doorbell disarmed, so that posts of peers make no system call. After a whole interval
// without a poll or a wait of the program, it arms its doorbell and sleeps until a peer rings.
//
// When it rests and between its polls, the engine blocks on Go timers and channels. A blocking
// system call would keep the Go runtime's monitor thread awake, in each of possibly many
// processes per core.
const (
	minPollGap = 200 * time.Microsecond
	maxPollGap = 2 * time.Millisecond // longer if processes outnumber cores
	// maxBurst limits consecutive rounds that made progress while the program polls, because the
	// program may be driving the same endpoints.
	maxBurst = 16
	// enoughPolls scans of an endpoint by the program between two polls of the engine suffice to
	// move everything without the engine.
	enoughPolls = 64
)

var (
	// maxRest is how long a rest lasts if nothing ends it. Correctness does not depend on it: in tests it
	// never passes.
	maxRest = time.Second
	// maxEngineSleep is the same for a sleep in a blocking system call.
	maxEngineSleep = 30 * time.Second
)

type engine struct {
	p    *Provider
	bell *doorbell.Doorbell
	done sync.WaitGroup
	quit atomic.Bool

	asleep      atomic.Bool // it sleeps on the doorbell, or is about to; unlike the doorbell's word, no peer can change it
	resting     atomic.Bool
	resume      chan struct{} // ends a rest
	wakePending atomic.Bool   // wake was called since the engine last drove the endpoints

	polls atomic.Uint64 // poll count of a completion queue, approximate; changes if the program polls, see completionQueue.countPoll

	// eventLoops counts the completion queues with an event descriptor. Their programs sleep in
	// poll or epoll, where no doorbell wakes them.
	eventLoops atomic.Int32
}

func (e *engine) start(p *Provider) {
	e.p, e.bell, e.resume = p, p.member.EngineDoorbell(), make(chan struct{}, 1)
	e.done.Go(e.run)
}

func (e *engine) stop() {
	e.quit.Store(true)
	e.wakeFromSleep()
	e.endRest()
	e.done.Wait()
}

func (e *engine) run() {
	goruntime.SetLabel("progress engine")
	p := e.p
	seen := e.sampleActivity()
	gap, burst := minPollGap, 0
	for !e.quit.Load() {
		e.wakePending.Store(false)
		waiting := p.waiters.Waiting() > 0
		m := noProgress
		if !waiting {
			m = p.progressUnpolled()
		}
		if !p.deferred.IsEmpty() {
			p.deferred.Run()
		}
		if m == madeProgress {
			p.housekeeper.wakeIfQuiet()
		}
		p.housekeeper.checkDue()
		if burst++; m == madeProgress && burst < maxBurst {
			continue
		}
		burst = 0

		now := e.sampleActivity()
		was := seen
		seen = now
		switch {
		case p.isStepwise:
			time.Sleep(pollInterval) // steps are counted, so something always remains to do
			continue
		case m == contended:
			// The holder may or may not drive the endpoint: poll it again later. Arming the
			// doorbell would gain nothing, and each time costs every process a barrier.
			time.Sleep(gap)
			gap = min(2*gap, p.pollGapLimit())
			continue
		case e.eventLoops.Load() > 0: // the program may sleep where neither this process nor a peer sees it
			e.sleep()
		case waiting && now.waits == was.waits && !p.needsPolling():
			e.rest()
		case waiting || now != was:
			// The program drives its own endpoints: poll them again later, with the doorbell
			// disarmed.
			if m == madeProgress {
				gap = minPollGap
			}
			time.Sleep(gap)
			gap = min(2*gap, p.pollGapLimit())
			continue
		default:
			e.sleep()
		}
		gap = minPollGap
	}
}

// programActivity counts what the program itself does to make progress.
type programActivity struct{ polls, waits uint64 }

func (e *engine) sampleActivity() programActivity {
	return programActivity{e.polls.Load(), e.p.waiters.Started()}
}

// progressUnpolled is progressAll without the endpoints that the program has polled often since the
// last call. The program moves the same bytes, and has them in its caches.
func (p *Provider) progressUnpolled() progressResult {
	m := p.pollInbox()
	for _, ep := range *p.endpoints.Load() {
		scans := ep.rq.cq.scans.Load() + ep.sq.cq.scans.Load()
		enough := enoughPolls * (1 + uint64(len(*ep.rq.cq.endpoints.Load())/otherEndpoints)) // with many endpoints a scan covers only some of them
		if scans-ep.scansSeen < enough && (!p.isStepwise || ep.hook.EngineTurn(scans != ep.scansSeen)) || ep.hasOverrun() {
			m = max(m, ep.progress())
		}
		ep.scansSeen = scans
	}
	return m
}

// pollGapLimit returns the longest interval between two polls. It grows with the number of
// processes per core, so that the engines do not compete with the programs.
func (p *Provider) pollGapLimit() time.Duration {
	perCore := int(p.processes.Load()) / runtime.NumCPU()
	if p.deferred.IsRecent() {
		return maxPollGap
	}
	return maxPollGap * time.Duration(min(max(1, perCore), 10))
}

// rest blocks while the program is in a wait.
func (e *engine) rest() {
	e.resting.Store(true)
	defer e.resting.Store(false)
	// The goroutine that ends the last wait or calls wake changes its word first and then checks
	// resting. This one sets resting first and then checks those words.
	if e.p.waiters.Waiting() == 0 || e.wakePending.Load() || e.quit.Load() {
		return
	}
	select {
	case <-e.resume:
	case <-time.After(maxRest):
	}
}

// sleep sleeps until a peer rings the doorbell.
func (e *engine) sleep() {
	p := e.p
	e.asleep.Store(true) // before the checks below: wakeFromSleep follows what they read
	defer e.asleep.Store(false)
	ticket := e.bell.Arm()
	defer e.bell.Disarm()
	p.housekeeper.checkDue()
	m := p.progressAll()
	if m == madeProgress || e.quit.Load() {
		return
	}
	limit := maxEngineSleep
	if m == contended || p.needsPolling() {
		limit = pollInterval
	}
	e.bell.Sleep(ticket, limit)
}

// wake makes the engine drive the endpoints now if it sleeps or rests.
func (e *engine) wake() {
	if !e.p.waiters.IsClosed() { // otherwise the doorbell may be unmapped
		e.wakeFromSleep()
	}
	e.wakePending.Store(true)
	e.endRest()
}

// wakeFromSleep ends the engine's sleep, if it sleeps.
func (e *engine) wakeFromSleep() {
	if e.asleep.Load() {
		e.bell.WakeAll()
	}
}

// endRest ends the engine's rest, if it rests.
func (e *engine) endRest() {
	if e.resting.Load() {
		select {
		case e.resume <- struct{}{}:
		default: // it has been told already
		}
	}
}
