package endpoint

// TWIN c/src/endpoint/progress_housekeeper.c.

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/shm"
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

	quiet atomic.Bool // no progress, and the status page says so: rounds are rare
	reporter
}

// Interval between two rounds of the housekeeper: while the process makes progress, and after it
// has made none for quietAfter.
const (
	quietAfter    = 3 * time.Second
	busyInterval  = 100 * time.Millisecond
	quietInterval = 2 * time.Second
)

func (h *housekeeper) start(p *Provider) {
	h.p, h.kick, h.quit = p, make(chan struct{}, 1), make(chan struct{})
	h.progressAt = linux.HostClock()
	h.done.Go(h.run)
}

func (h *housekeeper) stop() {
	h.once.Do(func() { close(h.quit) })
	h.done.Wait()
}

func (h *housekeeper) run() {
	goruntime.SetLabel("housekeeper")
	p := h.p
	timer := time.NewTimer(busyInterval)
	defer timer.Stop()
	nextCheck := time.Now()
	for {
		select {
		case <-h.quit:
			return
		case <-h.kick:
		case <-timer.C:
		}
		if p.member.LivenessCheckDue() || p.member.Gone() || !time.Now().Before(nextCheck) {
			nextCheck = time.Now().Add(p.member.CheckLiveness(p.releaseDead))
			p.failIfMarkedDead()
			p.countProcesses()
		}
		p.clearForgedHazards()
		p.logWaiting()
		p.updateStatusPage()
		h.quiet.Store(!h.publishedAt.IsZero() && time.Duration(linux.HostClock()-h.progressAt) >= quietAfter)
		next := busyInterval
		if !p.deferred.IsEmpty() {
			p.engine.wake() // the engine runs the deferred work
		} else if h.quiet.Load() && !p.status.StacksRequested() {
			next = quietInterval
		}
		timer.Reset(min(next, time.Until(nextCheck)))
	}
}

// runNow makes a round due at once.
func (h *housekeeper) runNow() {
	select {
	case h.kick <- struct{}{}:
	default: // it is due already
	}
}

// wakeIfQuiet makes a round due if rounds are rare. It is called when the process makes progress
// again.
func (h *housekeeper) wakeIfQuiet() {
	if h.quiet.Load() {
		h.runNow()
	}
}

// checkDue makes a round due at once if a member has died since the last liveness check or another
// process has asked this one for something.
func (h *housekeeper) checkDue() {
	if h.p.member.LivenessCheckDue() || h.p.status.StacksRequested() {
		h.runNow()
	}
}

// clearForgedHazards clears hazards that other processes have set in the name of this one. The
// owners of the tokens would otherwise wait as long as this process lives.
func (p *Provider) clearForgedHazards() {
	for _, ep := range *p.endpoints.Load() {
		if ep.guard.HazardOverwritten() && ep.mu.TryLock() { // rarely true; the check costs two loads
			ep.clearForgedHazard()
			ep.mu.Unlock()
		}
	}
}

// clearForgedHazard clears the hazard word if another process has set it. The caller holds ep.mu.
func (ep *queuePair) clearForgedHazard() {
	if ep.localQPOffset != 0 && ep.guard.HazardOverwritten() {
		ep.localQP.Hazard.Store(0) // ORDER hazard-clear: no copy runs; pairs with the load in Domain.drained
	}
}

// releaseDead ends all use of a dead member's memory permanently.
func (p *Provider) releaseDead(id shm.MemberID) {
	p.inboxMu.Lock()
	p.readInbox() // requests in the list behind those of the dead member would be lost with it
	p.inboxMu.Unlock()
	p.mu.Lock()
	var lost []*connection
	for c := range p.conns {
		if c.record.Peer.ID() == id {
			lost = append(lost, c)
		}
	}
	if stop, ok := p.watched[id]; ok {
		close(stop)
		delete(p.watched, id)
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.peerDied()
	}
	p.waiters.Wake()
}

// failIfMarkedDead ends all connections if this member has been marked dead, because the other
// members have stopped using its memory. A peer that writes into memory of others can cause this.
func (p *Provider) failIfMarkedDead() {
	if !p.member.Gone() {
		return
	}
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		if !c.record.IsPeerDead() {
			c.peerDied()
		}
	}
	p.waiters.Wake()
}
