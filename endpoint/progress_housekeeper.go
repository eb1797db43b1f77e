package endpoint

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/shm"
)

// How often a patrol makes its round: while the process makes progress, and after it has
// made none for quietAfter.
const (
	quietAfter   = 3 * time.Second
	patrolOften  = 100 * time.Millisecond
	patrolSeldom = 2 * time.Second
)

// patrol is the periodic work of a provider, in a goroutine of its own. It checks the
// members that it has to watch, lets go of the dead, and clears hazards that others have
// set in its name. It tells onlookers what the process waits for. It waits on a timer and not
// in a system call: one that blocks keeps the Go runtime's monitor awake for a while.
type patrol struct {
	p    *Provider
	kick chan struct{}
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup

	deaths atomic.Uint64 // up to which the last sweep has acted
	quiet  atomic.Bool   // no progress, and onlookers have been told: its rounds are rare
	witness
}

func (r *patrol) start(p *Provider) {
	r.p, r.kick, r.quit = p, make(chan struct{}, 1), make(chan struct{})
	r.moved = shm.Clock()
	r.done.Go(r.run)
}

func (r *patrol) stop() {
	r.once.Do(func() { close(r.quit) })
	r.done.Wait()
}

// now makes a round due at once.
func (r *patrol) now() {
	select {
	case r.kick <- struct{}{}:
	default: // it is
	}
}

// disturb makes a round due if rounds are rare: the process makes progress again.
func (r *patrol) disturb() {
	if r.quiet.Load() {
		r.now()
	}
}

// due makes a round due at once if a member has died since the last sweep, or another
// process wants something of this one.
func (r *patrol) due() {
	m := r.p.member
	if r.p.arena.Deaths() != r.deaths.Load() || m.Called() || m.Asked() {
		r.now()
	}
}

func (r *patrol) run() {
	p := r.p
	timer := time.NewTimer(patrolOften)
	defer timer.Stop()
	sweep := time.Now()
	for {
		select {
		case <-r.quit:
			return
		case <-r.kick:
		case <-timer.C:
		}
		if deaths := p.arena.Deaths(); deaths != r.deaths.Load() || p.member.Called() || p.member.MarkedDead() || !time.Now().Before(sweep) {
			r.deaths.Store(deaths)
			sweep = time.Now().Add(p.member.Sweep(p.letGo))
			p.partIfOutcast()
			p.countCrowd()
		}
		p.disownHazards()
		p.testify()
		r.quiet.Store(!r.told.IsZero() && time.Duration(shm.Clock()-r.moved) >= quietAfter)
		next := patrolOften
		if p.hasChores() {
			p.engine.nudge() // the engine does them
		} else if r.quiet.Load() && !p.member.Asked() {
			next = patrolSeldom
		}
		timer.Reset(min(next, time.Until(sweep)))
	}
}

// disownHazards clears hazards that other processes have set in the name of this one:
// the owners of the tokens would wait for as long as this process lives.
func (p *Provider) disownHazards() {
	for _, ep := range *p.live.Load() {
		if ep.guard.Forged() && ep.mu.TryLock() { // rarely true; the check costs two loads
			ep.guard.Disown()
			ep.mu.Unlock()
		}
	}
}
