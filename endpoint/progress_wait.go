package endpoint

// TWIN c/src/endpoint/progress_wait.c, c/src/endpoint/progress.c.

import (
	"context"
	"runtime"
	"time"

	"github.com/softnd/softnd/endpoint/internal/waiter"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
)

// See waiter.Spin and waiter.Yields for how long a wait spins and yields.
const (
	// After this many rounds a wait makes progress on all objects of the process.
	spinsPerProgress  = 64
	yieldsPerProgress = 4
	// After this many rounds a wait lets other goroutines run. This is rare because the Go
	// runtime then wakes another thread.
	spinsPerGosched     = 512
	yieldsPerGosched    = 32
	spinsPerClock       = 16 // after this many spins a wait reads the clock; it does so after each yield
	yieldsBeforeListing = 40 // after this many yields a wait is listed for observers
	// A wait that spins for longer than this many rounds, about a millisecond, is listed while it
	// spins.
	maxSpinsBeforeListing = 1 << 16
	// A wait sleeps for pollInterval at most while there is work that no doorbell announces, or
	// when it has yielded maxYieldsToHolder times to a goroutine that holds an endpoint.
	pollInterval      = time.Millisecond
	maxYieldsToHolder = 64
)

// A sleeping wait wakes up after maxSleep even if its doorbell is not rung. Correctness does
// not depend on it: in tests it never passes. It is long because a blocking system call is
// expensive in the Go runtime.
var maxSleep = 5 * time.Second

// WaitFor blocks until ready returns true. It returns ctx's error if ctx ends first, and another
// error if the provider is closed. While it waits it makes progress on all objects of this
// process, and sleeps when there is nothing to do. It calls ready again when a peer or this
// process rings the doorbell. ready must not block. Observers see call.
func (p *Provider) WaitFor(ctx context.Context, call statuspage.Call, ready func() bool) error {
	return p.wait(ctx, call, nil, ready)
}

// wait is WaitFor with a function that makes progress on what ready depends on. drive is called
// more often than the rest is driven; nil means none.
func (p *Provider) wait(ctx context.Context, call statuspage.Call, drive func(), ready func() bool) error {
	if ready() {
		return nil
	}
	open := p.waiters.BeginCall() // keeps the arena mapped
	if open {
		defer p.waiters.EndCall()
	}
	if err := ctx.Err(); err != nil {
		if open && p.needsPolling() {
			p.wakeProgress() // for what the caller has begun
		}
		return err
	}
	if !open {
		return errClosed
	}
	p.waiters.BeginWait()
	defer p.waiters.EndWait()
	c, over, err := p.spin(ctx, call, drive, ready)
	if !over {
		if c == nil {
			c = p.waiters.List(call)
		}
		began := time.Now()
		if err = p.park(ctx, ready); err != nil {
			err = &endedWait{err, time.Since(began)}
		}
	}
	if (err != nil || !over) && p.needsPolling() {
		p.wakeProgress() // this wait has polled instead of the engine, or of another wait that sleeps for long
	}
	if c != nil {
		p.waiters.Unlist(c)
	}
	if err == nil {
		p.waiters.Complete()
		p.housekeeper.wakeIfQuiet()
	}
	return err
}

// spin is the first part of a wait, in which it does not sleep. It reports whether the wait is
// over, and its error. After many yields it lists the call for observers, because on a crowded
// machine each yield can take as long as the time slices of all other processes. It also does so
// after maxSpinsBeforeListing spins. The caller unlists c unless it is nil.
func (p *Provider) spin(ctx context.Context, call statuspage.Call, drive func(), ready func() bool) (c *waiter.Call, over bool, err error) {
	spins, yields := p.spinBudget()
	for _, phase := range [...]awakePhase{
		{Phase: spins, listAt: maxSpinsBeforeListing, perProgress: spinsPerProgress, perGosched: spinsPerGosched, perClock: spinsPerClock},
		{Phase: yields, pause: linux.Yield, listAt: yieldsBeforeListing, perProgress: yieldsPerProgress, perGosched: yieldsPerGosched, perClock: 1},
	} {
		var began time.Time
		if phase.Limit > 0 && phase.pause != nil {
			began = time.Now() // spins begin later, because most waits are shorter
		}
		for i := range phase.Rounds {
			if drive != nil {
				drive()
			}
			if ready() {
				if phase.pause == nil {
					p.spins.Ended(true)
				}
				return c, true, nil
			}
			if i == phase.listAt && c == nil {
				c = p.waiters.List(call)
			}
			if phase.pause != nil {
				phase.pause()
			}
			if i%phase.perProgress == phase.perProgress-1 {
				p.progressBusy()
			}
			if i%phase.perGosched == phase.perGosched-1 {
				runtime.Gosched()
				if err := ctx.Err(); err != nil {
					return c, true, err
				}
			}
			if p.waiters.IsClosed() {
				return c, true, errClosed
			}
			if phase.Limit > 0 && i%phase.perClock == phase.perClock-1 {
				if now := time.Now(); began.IsZero() {
					began = now
				} else if now.Sub(began) > phase.Limit {
					break
				}
			}
		}
		if phase.pause == nil && phase.Rounds > 0 {
			p.spins.Ended(false)
		}
	}
	return c, false, nil
}

// awakePhase is a phase of spin. It calls pause in each round, unless it is nil. The other fields are numbers of rounds; perClock is
// that between two readings of the clock.
type awakePhase struct {
	waiter.Phase
	pause                                     func()
	listAt, perProgress, perGosched, perClock int
}

// park is the second part of a wait. It sleeps whenever there is nothing to do.
func (p *Provider) park(ctx context.Context, ready func() bool) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.waiters.WakeAll()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // it may be using the arena, which may be unmapped after this call
		}
	}()
	yields := 0 // consecutive yields to the holder of an endpoint
	for {
		ticket := p.waiters.Arm()
		p.housekeeper.checkDue()
		m := p.progressAll()
		if m != contended {
			yields = 0
		}
		done, err := ready(), ctx.Err()
		if p.waiters.IsClosed() {
			err = errClosed
		}
		switch {
		case done || err != nil:
		case m == madeProgress:
		case m == contended && yields < maxYieldsToHolder:
			yields++
			linux.Yield()
		case m == contended || p.needsPolling():
			p.waiters.Sleep(ticket, p.pollInterval())
		default:
			p.waiters.Sleep(ticket, maxSleep)
		}
		p.waiters.Disarm()
		// A ring while this wait was armed has woken no other process or goroutine.
		left := p.progressAll()
		if m == madeProgress {
			p.housekeeper.wakeIfQuiet()
		}
		done = done || ready()
		if left != noProgress && (done || err != nil) {
			p.engine.wake() // this wait does not check again, and a long transfer may be in progress
		}
		switch {
		case done:
			return nil
		case err != nil:
			return err
		}
	}
}

// pollInterval returns how long a wait sleeps at most while there is work that no doorbell announces. With a weak order each sleep is a
// step, and a request waits for many.
func (p *Provider) pollInterval() time.Duration {
	if p.isStepwise {
		return pollInterval / 10
	}
	return pollInterval
}

// wakeProgress makes the waits, or the engine if there are none, drive the endpoints. A caller
// that adds work which no peer announces must call it: during a wait the engine does not drive
// the endpoints, and the wait may sleep.
func (p *Provider) wakeProgress() {
	p.waiters.Wake()
	p.engine.wake()
}

// hasArmedDoorbell reports whether a wait of this process or its engine sleeps or is about to.
// Both arm their doorbell before they drive the endpoints for the last time.
func (p *Provider) hasArmedDoorbell() bool { return p.waiters.IsArmed() || p.engine.bell.Armed() }

// countProcesses counts the processes that share the cores. All ranks of a job count from the
// start, although they join one after the other.
func (p *Provider) countProcesses() {
	p.processes.Store(int32(max(p.arena.LiveMemberCount(), p.arena.Ranks())))
}

// progressBusy is progressAll without endpoints that have no work. It finds those without their locks, so that a wait in a process with
// thousands of endpoints does not spend its time on them. Before a wait sleeps, progressAll checks all.
func (p *Provider) progressBusy() {
	p.pollInbox()
	for _, ep := range *p.endpoints.Load() {
		if ep.hasWork() {
			ep.progress()
		}
	}
}

// progressAll makes progress on all objects of this process.
func (p *Provider) progressAll() progressResult {
	m := p.pollInbox()
	for _, ep := range *p.endpoints.Load() {
		m = max(m, ep.progress())
	}
	return m
}

// needsPolling reports whether there is work that no doorbell announces: a time-out or a drain.
func (p *Provider) needsPolling() bool {
	if p.deferred.IsRecent() {
		return true
	}
	for _, ep := range *p.endpoints.Load() {
		if ep.needsPolling() {
			return true
		}
	}
	return false
}
