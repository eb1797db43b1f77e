package endpoint

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/shm"
)

// The engine works when the program does not. While the program polls, the
// engine only looks in now and then, unarmed, so that posts of peers cost them
// no system call; when a whole look-in passes without a poll, it arms its
// doorbell and sleeps until a peer rings.
const (
	shortLookIn = 200 * time.Microsecond
	longLookIn  = 2 * time.Millisecond
	// sweepEvery is how often deaths are looked for that no event tells of.
	sweepEvery = 100 * time.Millisecond
)

type engine struct {
	p    *Provider
	bell shm.Doorbell
	done sync.WaitGroup
	quit atomic.Bool

	polls atomic.Uint64 // polls of completion queues, roughly; see CompletionQueue.Poll
	check atomic.Bool   // somebody may have died

	// loops counts the completion queues with an event descriptor. Their
	// programs sleep where no peer can wake them.
	loops atomic.Int32
}

func (e *engine) start(p *Provider) {
	e.p, e.bell = p, p.member.Engine()
	e.done.Go(e.run)
}

func (e *engine) stop() {
	e.quit.Store(true)
	e.bell.Ring()
	e.done.Wait()
}

// nudge makes the engine look now if it sleeps.
func (e *engine) nudge() {
	if !e.p.sleep.shut.Load() { // else the bell may be gone with the arena
		e.bell.Ring()
	}
}

// checkDeaths makes the engine look for dead members.
func (e *engine) checkDeaths() {
	e.check.Store(true)
	e.nudge()
	// An engine that is between arming and sleeping has been rung; one that
	// looks in unarmed comes by within longLookIn.
}

func (e *engine) run() {
	p := e.p
	lastSweep := time.Now()
	seenPolls, seenDeaths := uint64(0), p.arena.Deaths()
	lookIn := shortLookIn
	for !e.quit.Load() {
		moved := p.progress()
		if p.hasChores() {
			p.doChores()
		}
		deaths := p.arena.Deaths()
		if e.check.Swap(false) || deaths != seenDeaths || time.Since(lastSweep) >= sweepEvery {
			p.member.Sweep(p.letGo)
			p.countCrowd()
			seenDeaths, lastSweep = deaths, time.Now()
		}
		polls := e.polls.Load()
		if moved && polls == seenPolls {
			continue
		}
		active := polls != seenPolls && e.loops.Load() == 0
		seenPolls = polls
		ticket := e.bell.Arm()
		if active {
			// The program serves its own endpoints. Look in later, without
			// asking anybody to ring.
			e.bell.Disarm()
			e.bell.Sleep(ticket, lookIn)
			lookIn = min(2*lookIn, longLookIn)
			continue
		}
		lookIn = shortLookIn
		if p.progress() || e.quit.Load() || e.check.Load() {
			e.bell.Disarm()
			continue
		}
		limit := sweepEvery
		if p.restless() {
			limit = time.Millisecond
		}
		e.bell.Sleep(ticket, limit)
		e.bell.Disarm()
	}
}

// restless tells whether something is under way that no ring announces: a
// time-out, or a drain.
func (p *Provider) restless() bool {
	if p.hasChores() {
		return true
	}
	for _, ep := range *p.live.Load() {
		if ep.busy() {
			return true
		}
	}
	return false
}
