package endpoint

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/shm"
)

// Interval between two rounds of the housekeeper: while the process makes progress, and after it
// has made none for quietAfter.
const (
	quietAfter    = 3 * time.Second
	busyInterval  = 100 * time.Millisecond
	quietInterval = 2 * time.Second
)

// housekeeper does the periodic work of a provider, in a goroutine of its own. It checks the
// liveness of watched members, releases what dead members held, clears forged hazards and
// updates the status page. It blocks on a timer and not in a system call, because a blocking
// system call keeps the Go runtime's monitor thread awake for a while.
type housekeeper struct {
	p    *Provider
	kick chan struct{}
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup

	deaths atomic.Uint64 // value of Arena.Deaths at the last sweep
	quiet  atomic.Bool   // no progress, and the status page says so: rounds are rare
	reporter
}

func (r *housekeeper) start(p *Provider) {
	r.p, r.kick, r.quit = p, make(chan struct{}, 1), make(chan struct{})
	r.progressAt = shm.Clock()
	r.done.Go(r.run)
}

func (r *housekeeper) stop() {
	r.once.Do(func() { close(r.quit) })
	r.done.Wait()
}

// runNow makes a round due at once.
func (r *housekeeper) runNow() {
	select {
	case r.kick <- struct{}{}:
	default: // it is due already
	}
}

// wakeIfQuiet makes a round due if rounds are rare. It is called when the process makes progress
// again.
func (r *housekeeper) wakeIfQuiet() {
	if r.quiet.Load() {
		r.runNow()
	}
}

// checkDue makes a round due at once if a member has died since the last sweep or another
// process has asked this one for something.
func (r *housekeeper) checkDue() {
	m := r.p.member
	if r.p.arena.Deaths() != r.deaths.Load() || m.LivenessCheckRequested() || m.StacksRequested() {
		r.runNow()
	}
}

func (r *housekeeper) run() {
	p := r.p
	timer := time.NewTimer(busyInterval)
	defer timer.Stop()
	sweep := time.Now()
	for {
		select {
		case <-r.quit:
			return
		case <-r.kick:
		case <-timer.C:
		}
		if deaths := p.arena.Deaths(); deaths != r.deaths.Load() || p.member.LivenessCheckRequested() || p.member.MarkedDead() || !time.Now().Before(sweep) {
			r.deaths.Store(deaths)
			sweep = time.Now().Add(p.member.CheckLiveness(p.releaseDead))
			p.failIfMarkedDead()
			p.countProcesses()
		}
		p.clearForgedHazards()
		p.updateStatusPage()
		r.quiet.Store(!r.publishedAt.IsZero() && time.Duration(shm.Clock()-r.progressAt) >= quietAfter)
		next := busyInterval
		if p.hasDeferred() {
			p.engine.wake() // the engine runs the deferred work
		} else if r.quiet.Load() && !p.member.StacksRequested() {
			next = quietInterval
		}
		timer.Reset(min(next, time.Until(sweep)))
	}
}

// clearForgedHazards clears hazards that other processes have set in the name of this one. The
// owners of the tokens would otherwise wait as long as this process lives.
func (p *Provider) clearForgedHazards() {
	for _, ep := range *p.endpoints.Load() {
		if ep.guard.Forged() && ep.mu.TryLock() { // rarely true; the check costs two loads
			ep.guard.ClearForged()
			ep.mu.Unlock()
		}
	}
}
