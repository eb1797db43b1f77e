package endpoint

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// How a wait goes on while there is nothing to do: it spins as long as an
// answer from another core would take, then gives its core to others (the
// answer may have to come from a process that waits for this core), and then
// sleeps. When processes outnumber cores it does not spin at all. A yield
// costs next to nothing while nobody else wants the core; so few of them keep
// a wait that turns out long from using any time worth mentioning.
const (
	spinRounds  = 500
	yieldRounds = 160
	// With more processes a core than this it sleeps at once: it would be long
	// until its turn comes again.
	manyPerCore = 64
	// Every so many rounds a wait looks after everything of the process.
	spinsToServe  = 64
	yieldsToServe = 4
	// And every so many it lets other goroutines of the process run, which is
	// seldom: the Go runtime wakes another thread for what it could run instead.
	spinsToShare  = 512
	yieldsToShare = 32
	yieldsToList  = 40 // after so many a wait is listed for onlookers
	// A sleeper wakes up this often even if no ring comes. Correctness does not depend on
	// it. It is long because a blocking system call is expensive in the Go runtime.
	sleepLimit = 5 * time.Second
	// It wakes up this often while work is under way that no ring announces, or when it
	// has yielded heldYields times to another goroutine that holds an endpoint.
	restlessLimit = time.Millisecond
	heldYields    = 64
)

// sleepers are the waits of this process, which sleep on the member's doorbell.
type sleepers struct {
	bell shm.Doorbell
	shut atomic.Bool // no wait may begin, and the arena may be gone

	asleep  atomic.Int32  // waits that sleep, or are about to
	begun   atomic.Uint64 // waits so far
	waiting atomic.Int64  // of those, how many are under way
	ended   atomic.Uint64 // and how many have got what they waited for

	mu     sync.Mutex
	idle   sync.Cond // calls is 0
	calls  int       // that wait, or are about to; Provider.Close waits for their end
	parked []*parked // of those, the ones that onlookers see
	onIdle func()    // called when waiting has become 0
}

func (s *sleepers) init(bell shm.Doorbell, onIdle func()) {
	s.bell, s.idle.L, s.onIdle = bell, &s.mu, onIdle
}

// wake makes all waits look again. It costs a load when nobody sleeps. What they
// are to find has been stored with a barrier, or by one who has passed asym.Light.
func (s *sleepers) wake() {
	if s.asleep.Load() != 0 { // ORDER asleep: after what they are to find; pairs with the addition and the barrier in enter
		s.rouse()
	}
}

// rouse stands apart so that the compiler can put wake where it is called.
//
//go:noinline
func (s *sleepers) rouse() {
	if !s.shut.Load() {
		s.bell.Ring()
	}
}

// begin counts a call that waits, unless there may be none any more.
func (s *sleepers) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut.Load() {
		return false
	}
	s.calls++
	return true
}

func (s *sleepers) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 {
		s.idle.Broadcast()
	}
}

// attend notes that a wait begins, which from now on serves everything of this
// process, and part that it ends.
func (s *sleepers) attend() {
	s.begun.Add(1)
	s.waiting.Add(1)
}

func (s *sleepers) part() {
	if s.waiting.Add(-1) == 0 {
		s.onIdle()
	}
}

// close ends all waits, and returns when they have ended.
func (s *sleepers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut.Store(true)
	s.bell.Ring()
	for s.calls > 0 {
		s.idle.Wait()
	}
}

func (s *sleepers) enter() (ticket uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep.Add(1) // ORDER asleep: before the barrier in Arm and the last look; pairs with the load in wake
	return s.bell.Arm()
}

func (s *sleepers) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asleep.Add(-1) == 0 {
		s.bell.Disarm()
	}
}

// errClosed ends the waits of a provider that is being closed.
var errClosed = errors.New("the provider is closed")

// canceled is what a call reports whose wait ended with err.
func canceled(ctx context.Context, err error, op, object string) error {
	if errors.Is(err, errClosed) {
		return &nd.OpError{Op: op, Object: object, Status: nd.Canceled, Err: err, Next: "close the provider when no call waits any more"}
	}
	return nd.CanceledError(ctx, op, object)
}

// parked is a call that has waited for long enough to be seen by onlookers.
type parked struct {
	call  testimony.Call
	since time.Time
}

// calling lists them for onlookers.
func (s *sleepers) calling() (calls []testimony.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.parked {
		call := c.call
		call.Since = shm.Clock() - int64(time.Since(c.since))
		calls = append(calls, call)
	}
	return calls
}

func (s *sleepers) list(call testimony.Call) *parked {
	c := &parked{call, time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = append(s.parked, c)
	return c
}

func (s *sleepers) unlist(c *parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.parked, c)
	s.parked = slices.Delete(s.parked, i, i+1)
}

// WaitFor returns nil when ready does return true, or ctx's error, or another
// when the provider is closed. In between
// it serves everything of this process, and sleeps when there is nothing to
// do. ready is called again whenever a peer or this process has rung; it must
// not block. Onlookers see the call.
func (p *Provider) WaitFor(ctx context.Context, call testimony.Call, ready func() bool) error {
	return p.wait(ctx, call, nil, ready)
}

// wait returns when ready does, or with ctx's error. In between it moves
// everything of this process that can be moved. drive, if not nil, moves what
// ready depends on, and is called more often.
func (p *Provider) wait(ctx context.Context, call testimony.Call, drive func(), ready func() bool) error {
	if ready() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !p.sleep.begin() {
		return errClosed
	}
	defer p.sleep.end()
	p.sleep.attend()
	defer p.sleep.part()
	c, over, err := p.hover(ctx, call, drive, ready)
	if !over {
		if c == nil {
			c = p.sleep.list(call)
		}
		err = p.park(ctx, ready)
	}
	if c != nil {
		p.sleep.unlist(c)
	}
	if err == nil {
		p.sleep.ended.Add(1)
		p.patrol.disturb()
	}
	return err
}

// hover is a wait's first part, in which it does not sleep. It reports whether
// the wait is over, and how. Once it has yielded often, onlookers see the call: on a
// crowded machine each yield can take as long as the turns of all other processes.
// The caller unlists c unless it is nil.
func (p *Provider) hover(ctx context.Context, call testimony.Call, drive func(), ready func() bool) (c *parked, over bool, err error) {
	spin, yields := p.patience()
	for i := range spin + yields {
		if drive != nil {
			drive()
		}
		if ready() {
			return c, true, nil
		}
		if i == spin+yieldsToList {
			c = p.sleep.list(call)
		}
		serve, share := spinsToServe, spinsToShare
		if i >= spin {
			serve, share = yieldsToServe, yieldsToShare
			shm.Yield()
		}
		if i%serve == serve-1 {
			p.progress()
		}
		if i%share == share-1 {
			runtime.Gosched()
			if err := ctx.Err(); err != nil {
				return c, true, err
			}
		}
		if p.sleep.shut.Load() {
			return c, true, errClosed
		}
	}
	return c, false, nil
}

// park is the rest of a wait. It sleeps whenever there is nothing to do.
func (p *Provider) park(ctx context.Context, ready func() bool) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.sleep.wake()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // it may be in the arena, which may go when we have returned
		}
	}()
	yields := 0 // consecutive ones to the holder of an endpoint
	for {
		ticket := p.sleep.enter()
		p.patrol.due()
		m := p.progress()
		if m != held {
			yields = 0
		}
		done, err := ready(), ctx.Err()
		if p.sleep.shut.Load() {
			err = errClosed
		}
		switch {
		case done || err != nil:
		case m == progressed:
		case m == held && yields < heldYields:
			yields++
			shm.Yield()
		case m == held || p.restless():
			p.sleep.bell.Sleep(ticket, restlessLimit)
		default:
			p.sleep.bell.Sleep(ticket, sleepLimit)
		}
		p.sleep.leave()
		// A ring that came while we were armed has woken nobody else.
		left := p.progress()
		if m == progressed {
			p.patrol.disturb()
		}
		done = done || ready()
		if left == held && (done || err != nil) {
			p.engine.nudge() // this wait does not check again
		}
		switch {
		case done:
			return nil
		case err != nil:
			return err
		}
	}
}

// stir makes the waits, or the engine if there is none, check the endpoints. During a wait
// the engine does not serve them. A sleeping wait must be woken for work that no ring of
// a peer announces.
func (p *Provider) stir() {
	p.sleep.wake()
	p.engine.nudge()
}

// dozes tells whether a wait of this process, or its engine, sleeps or is about
// to. Both arm their bell before they look at the endpoints for the last time.
func (p *Provider) dozes() bool { return p.sleep.bell.Armed() || p.engine.bell.Armed() }

// patience returns how many rounds a wait spins, and then yields, before it
// sleeps.
func (p *Provider) patience() (spin, yields int) {
	crowd, cores := int(p.crowd.Load()), runtime.NumCPU()
	switch {
	case crowd <= cores:
		return spinRounds, yieldRounds
	case crowd <= cores*manyPerCore:
		return 0, yieldRounds
	}
	return 0, 0
}

// countCrowd counts the processes that share the cores. All ranks of a job count from the
// start, although they arrive one after the other.
func (p *Provider) countCrowd() {
	p.crowd.Store(int32(max(p.arena.LiveMembers(), p.arena.Ranks())))
}

// progress moves everything of this process that can be moved now.
func (p *Provider) progress() motion {
	m := motionOf(p.member.HasMail() && p.collectMail())
	for _, ep := range *p.live.Load() {
		m = max(m, ep.drive())
	}
	return m
}
