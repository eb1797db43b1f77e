package endpoint

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/shm"
)

// The engine works when the program does not. While the program is in a wait,
// which serves everything, the engine rests. While the program polls, the
// engine only looks in now and then, unarmed, so that posts of peers cost them
// no system call; when a whole look-in passes without a poll or a wait, it arms
// its doorbell and sleeps until a peer rings.
//
// Resting and between look-ins it sleeps as goroutines do: a system call that
// blocks would keep the Go runtime's monitor awake, in each of what may be many
// processes a core.
const (
	shortLookIn = 200 * time.Microsecond
	longLookIn  = 2 * time.Millisecond // more if processes outnumber cores
	// restLimit is how long a rest lasts even if nothing ends it. Nothing depends on it.
	restLimit = time.Second
	// longestSleep is the same for a sleep, in a system call that blocks.
	longestSleep = 30 * time.Second
	// burst is how often the engine moves something in a row while the program
	// polls, which may be moving the same.
	burst = 16
	// eagerLooks at an endpoint between two look-ins are enough to move everything
	// without the engine.
	eagerLooks = 64
)

type engine struct {
	p    *Provider
	bell shm.Doorbell
	done sync.WaitGroup
	quit atomic.Bool

	resting atomic.Bool
	rouse   chan struct{} // ends a rest
	nudged  atomic.Bool   // since the engine last looked

	polls atomic.Uint64 // polls of completion queues, roughly; see CompletionQueue.Poll

	// loops counts the completion queues with an event descriptor. Their
	// programs sleep where no peer can wake them.
	loops atomic.Int32
}

func (e *engine) start(p *Provider) {
	e.p, e.bell, e.rouse = p, p.member.Engine(), make(chan struct{}, 1)
	e.done.Go(e.run)
}

func (e *engine) stop() {
	e.quit.Store(true)
	e.bell.Ring()
	e.endRest()
	e.done.Wait()
}

// nudge makes the engine look now if it sleeps.
func (e *engine) nudge() {
	if !e.p.sleep.shut.Load() { // else the bell may be gone with the arena
		e.bell.Ring()
	}
	e.nudged.Store(true)
	e.endRest()
}

// endRest makes the engine look now if it rests.
func (e *engine) endRest() {
	if e.resting.Load() {
		select {
		case e.rouse <- struct{}{}:
		default: // it has been told
		}
	}
}

// sight is what the engine can see of the program's own doings.
type sight struct{ polls, begun uint64 }

func (e *engine) look() sight { return sight{e.polls.Load(), e.p.sleep.begun.Load()} }

func (e *engine) run() {
	p := e.p
	seen := e.look()
	lookIn, row := shortLookIn, 0
	for !e.quit.Load() {
		e.nudged.Store(false)
		waiting := p.sleep.waiting.Load() > 0
		m := still
		if !waiting {
			m = p.assist()
		}
		if p.hasChores() {
			p.doChores()
		}
		if m == progressed {
			p.patrol.disturb()
		}
		p.patrol.due()
		if row++; m == progressed && row < burst {
			continue
		}
		row = 0

		now := e.look()
		was := seen
		seen = now
		switch {
		case m == held:
			// The holder may serve the endpoint or not: look in later. An armed bell would gain
			// nothing, and each time that it is armed costs every process a barrier.
			time.Sleep(lookIn)
			lookIn = min(2*lookIn, p.longestLookIn())
			continue
		case e.loops.Load() > 0: // a program sleeps where neither we nor a peer can see it
			e.sleep()
		case waiting && now.begun == was.begun && !p.restless():
			e.rest()
		case waiting || now != was:
			// The program serves its own endpoints. Look in later, without
			// asking anybody to ring.
			if m == progressed {
				lookIn = shortLookIn
			}
			time.Sleep(lookIn)
			lookIn = min(2*lookIn, p.longestLookIn())
			continue
		default:
			e.sleep()
		}
		lookIn = shortLookIn
	}
}

// assist is progress without the endpoints that the program has driven by itself,
// eagerly, since the last time: it moves the same bytes, and its caches have them.
func (p *Provider) assist() motion {
	m := motionOf(p.member.HasMail() && p.collectMail())
	for _, ep := range *p.live.Load() {
		looks := ep.receiveCQ.looks.Load() + ep.initiatorCQ.looks.Load()
		eager := eagerLooks * (1 + uint64(len(*ep.receiveCQ.users.Load())/farLooks)) // a look at many is one at some
		if looks-ep.looksSeen < eager || ep.hasOverrun() {
			m = max(m, ep.drive())
		}
		ep.looksSeen = looks
	}
	return m
}

// longestLookIn keeps the engines of many processes from taking turns with their programs.
func (p *Provider) longestLookIn() time.Duration {
	perCore := int(p.crowd.Load()) / runtime.NumCPU()
	if p.hasFreshChores() {
		return longLookIn
	}
	return longLookIn * time.Duration(min(max(1, perCore), 10))
}

// rest sleeps as long as the program is in a wait.
func (e *engine) rest() {
	e.resting.Store(true)
	defer e.resting.Store(false)
	// Who ends the last wait, or tells us something, does so and then looks
	// whether we rest; we say that we rest and then look.
	if e.p.sleep.waiting.Load() == 0 || e.nudged.Load() || e.quit.Load() {
		return
	}
	select {
	case <-e.rouse:
	case <-time.After(restLimit):
	}
}

// sleep sleeps until a peer rings.
func (e *engine) sleep() {
	p := e.p
	ticket := e.bell.Arm()
	defer e.bell.Disarm()
	p.patrol.due()
	if p.progress() != still || e.quit.Load() {
		return
	}
	limit := longestSleep
	if p.restless() {
		limit = restlessLimit
	}
	e.bell.Sleep(ticket, limit)
}

// restless tells whether something is under way that no ring announces: a
// time-out, or a drain.
func (p *Provider) restless() bool {
	if p.hasFreshChores() {
		return true
	}
	for _, ep := range *p.live.Load() {
		if ep.busy() {
			return true
		}
	}
	return false
}
