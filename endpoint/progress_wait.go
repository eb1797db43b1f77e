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

// A wait first spins for about as long as an answer from another core takes. Then it yields its
// core, because the answer may have to come from a process that waits for this core. Then it
// sleeps. If processes outnumber cores it does not spin. A yield costs almost nothing while no
// other process wants the core, so the number of yields is small enough that a long wait uses no
// noticeable processor time.
const (
	spinRounds  = 500
	yieldRounds = 160
	// With more processes per core than this a wait sleeps at once: after a yield its next time
	// slice would be far away.
	maxPerCoreToYield = 64
	// After this many rounds a wait makes progress on everything of the process.
	spinsPerProgress  = 64
	yieldsPerProgress = 4
	// After this many rounds a wait lets other goroutines run. This is rare because the Go
	// runtime then wakes another thread.
	spinsPerGosched     = 512
	yieldsPerGosched    = 32
	yieldsBeforeListing = 40 // after this many yields a wait is listed for observers
	// A sleeping wait wakes up after maxSleep even if its doorbell is not rung. Correctness does
	// not depend on it. It is long because a blocking system call is expensive in the Go
	// runtime.
	maxSleep = 5 * time.Second
	// A wait sleeps for pollInterval at most while there is work that no doorbell announces, or
	// when it has yielded maxYieldsToHolder times to a goroutine that holds an endpoint.
	pollInterval      = time.Millisecond
	maxYieldsToHolder = 64
)

// waiterSet is the set of waits of this process. They sleep on the member's doorbell.
type waiterSet struct {
	bell   shm.Doorbell
	closed atomic.Bool // no call may begin, and the arena may be unmapped

	asleep    atomic.Int32  // waits that sleep or are about to
	started   atomic.Uint64 // waits so far
	waiting   atomic.Int64  // waits in progress
	completed atomic.Uint64 // waits that ended successfully

	mu     sync.Mutex
	idle   sync.Cond     // broadcast when calls becomes 0
	calls  int           // calls in progress that use the arena or wait; Provider.Close blocks until they end
	listed []*listedCall // calls that observers see
	onIdle func()        // called when waiting becomes 0
}

func (s *waiterSet) init(bell shm.Doorbell, onIdle func()) {
	s.bell, s.idle.L, s.onIdle = bell, &s.mu, onIdle
}

// wake makes all waits check their conditions again. It costs one load if no wait sleeps. Before
// the call, the caller stores what the waits check, and executes a barrier or asym.Light.
func (s *waiterSet) wake() {
	if s.asleep.Load() != 0 { // ORDER asleep: after the store of what the waits check; pairs with the addition and the barrier in arm
		s.ring()
	}
}

// ring is not part of wake so that the compiler can inline wake.
//
//go:noinline
func (s *waiterSet) ring() {
	if !s.closed.Load() {
		s.bell.Ring()
	}
}

// beginCall counts a call that uses the arena or waits. It returns false if the provider is
// closed.
func (s *waiterSet) beginCall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.calls++
	return true
}

func (s *waiterSet) endCall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 {
		s.idle.Broadcast()
	}
}

// beginWait counts a wait, which from now on makes progress on everything of this process.
// endWait ends it.
func (s *waiterSet) beginWait() {
	s.started.Add(1)
	s.waiting.Add(1)
}

func (s *waiterSet) endWait() {
	if s.waiting.Add(-1) == 0 {
		s.onIdle()
	}
}

// close ends all waits. It blocks until all calls have ended.
func (s *waiterSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.Store(true)
	s.bell.Ring()
	for s.calls > 0 {
		s.idle.Wait()
	}
}

func (s *waiterSet) arm() (ticket uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep.Add(1) // ORDER asleep: before the barrier in Arm and the last check; pairs with the load in wake
	return s.bell.Arm()
}

func (s *waiterSet) disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asleep.Add(-1) == 0 {
		s.bell.Disarm()
	}
}

// errClosed is the error of a wait that Provider.Close ended.
var errClosed = errors.New("the provider is closed")

// canceled returns the error of a call whose wait ended with err.
func canceled(ctx context.Context, err error, op, object string) error {
	if errors.Is(err, errClosed) {
		return &nd.OpError{Op: op, Object: object, Status: nd.Canceled, Err: err, Next: "close the provider after all calls have returned"}
	}
	return nd.CanceledError(ctx, op, object)
}

// listedCall is a call that observers see because it has waited for some time.
type listedCall struct {
	call  testimony.Call
	since time.Time
}

// listedCalls returns the listed calls for observers.
func (s *waiterSet) listedCalls() (calls []testimony.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.listed {
		call := c.call
		call.Since = shm.Clock() - int64(time.Since(c.since))
		calls = append(calls, call)
	}
	return calls
}

func (s *waiterSet) list(call testimony.Call) *listedCall {
	c := &listedCall{call, time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = append(s.listed, c)
	return c
}

func (s *waiterSet) unlist(c *listedCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.listed, c)
	s.listed = slices.Delete(s.listed, i, i+1)
}

// WaitFor blocks until ready returns true. It returns ctx's error if ctx ends first, and another
// error if the provider is closed. While it waits it makes progress on everything of this
// process, and sleeps when there is nothing to do. ready is called again when a peer or this
// process rings the doorbell; it must not block. Observers see call.
func (p *Provider) WaitFor(ctx context.Context, call testimony.Call, ready func() bool) error {
	return p.wait(ctx, call, nil, ready)
}

// wait is WaitFor with a function that makes progress on what ready depends on. drive is called
// more often than the rest is driven; nil means none.
func (p *Provider) wait(ctx context.Context, call testimony.Call, drive func(), ready func() bool) error {
	if ready() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !p.waiters.beginCall() {
		return errClosed
	}
	defer p.waiters.endCall()
	p.waiters.beginWait()
	defer p.waiters.endWait()
	c, over, err := p.spin(ctx, call, drive, ready)
	if !over {
		if c == nil {
			c = p.waiters.list(call)
		}
		err = p.park(ctx, ready)
	}
	if c != nil {
		p.waiters.unlist(c)
	}
	if err == nil {
		p.waiters.completed.Add(1)
		p.housekeeper.wakeIfQuiet()
	}
	return err
}

// spin is the first part of a wait, in which it does not sleep. It reports whether the wait is
// over, and its error. After many yields it lists the call for observers, because on a crowded
// machine each yield can take as long as the time slices of all other processes. The caller
// unlists c unless it is nil.
func (p *Provider) spin(ctx context.Context, call testimony.Call, drive func(), ready func() bool) (c *listedCall, over bool, err error) {
	spin, yields := p.spinBudget()
	for i := range spin + yields {
		if drive != nil {
			drive()
		}
		if ready() {
			return c, true, nil
		}
		if i == spin+yieldsBeforeListing {
			c = p.waiters.list(call)
		}
		serve, share := spinsPerProgress, spinsPerGosched
		if i >= spin {
			serve, share = yieldsPerProgress, yieldsPerGosched
			shm.Yield()
		}
		if i%serve == serve-1 {
			p.progressAll()
		}
		if i%share == share-1 {
			runtime.Gosched()
			if err := ctx.Err(); err != nil {
				return c, true, err
			}
		}
		if p.waiters.closed.Load() {
			return c, true, errClosed
		}
	}
	return c, false, nil
}

// park is the second part of a wait. It sleeps whenever there is nothing to do.
func (p *Provider) park(ctx context.Context, ready func() bool) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.waiters.wake()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // it may be using the arena, which may be unmapped after this call
		}
	}()
	yields := 0 // consecutive yields to the holder of an endpoint
	for {
		ticket := p.waiters.arm()
		p.housekeeper.checkDue()
		m := p.progressAll()
		if m != held {
			yields = 0
		}
		done, err := ready(), ctx.Err()
		if p.waiters.closed.Load() {
			err = errClosed
		}
		switch {
		case done || err != nil:
		case m == progressed:
		case m == held && yields < maxYieldsToHolder:
			yields++
			shm.Yield()
		case m == held || p.needsPolling():
			p.waiters.bell.Sleep(ticket, pollInterval)
		default:
			p.waiters.bell.Sleep(ticket, maxSleep)
		}
		p.waiters.disarm()
		// A ring while this wait was armed has woken no other process or goroutine.
		left := p.progressAll()
		if m == progressed {
			p.housekeeper.wakeIfQuiet()
		}
		done = done || ready()
		if left == held && (done || err != nil) {
			p.engine.wake() // because this wait does not check again
		}
		switch {
		case done:
			return nil
		case err != nil:
			return err
		}
	}
}

// wakeProgress makes the waits, or the engine if there are none, drive the endpoints. A caller
// that adds work which no peer announces must call it: during a wait the engine does not drive
// the endpoints, and the wait may sleep.
func (p *Provider) wakeProgress() {
	p.waiters.wake()
	p.engine.wake()
}

// hasArmedDoorbell reports whether a wait of this process or its engine sleeps or is about to.
// Both arm their doorbell before they drive the endpoints for the last time.
func (p *Provider) hasArmedDoorbell() bool { return p.waiters.bell.Armed() || p.engine.bell.Armed() }

// spinBudget returns how many rounds a wait spins and how many it then yields before it sleeps.
func (p *Provider) spinBudget() (spin, yields int) {
	crowd, cores := int(p.processes.Load()), runtime.NumCPU()
	switch {
	case crowd <= cores:
		return spinRounds, yieldRounds
	case crowd <= cores*maxPerCoreToYield:
		return 0, yieldRounds
	}
	return 0, 0
}

// countProcesses counts the processes that share the cores. All ranks of a job count from the
// start, although they join one after the other.
func (p *Provider) countProcesses() {
	p.processes.Store(int32(max(p.arena.LiveMembers(), p.arena.Ranks())))
}

// progressAll makes progress on everything of this process.
func (p *Provider) progressAll() motion {
	m := motionOf(p.member.HasMail() && p.pollInbox())
	for _, ep := range *p.endpoints.Load() {
		m = max(m, ep.drive())
	}
	return m
}
