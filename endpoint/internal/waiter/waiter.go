// Package waiter holds the waits of one process: how many there are, which of them sleep on the
// member's doorbell, and which of them observers see. A wait makes progress before it sleeps;
// package endpoint does that part.
package waiter

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/doorbell"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
)

// Set is the set of waits of a process. They sleep on the member's doorbell. Call Init before
// any other method.
type Set struct {
	bell   *doorbell.Doorbell
	closed atomic.Bool // no call may begin, and the arena may be unmapped

	asleep    atomic.Int32  // waits that sleep or are about to
	started   atomic.Uint64 // waits so far
	waiting   atomic.Int64  // waits in progress
	completed atomic.Uint64 // waits that ended successfully

	mu      sync.Mutex
	idle    sync.Cond // broadcast when inCalls becomes 0
	inCalls int       // calls in progress
	listed  []*Call   // calls that observers see
	onIdle  func()    // called when waiting becomes 0
}

// Call is a call that observers see because it has waited for some time.
type Call struct {
	call  statuspage.Call
	since time.Time
}

// Init sets the doorbell on which the waits sleep, and a function that is called when the last
// wait in progress ends.
func (s *Set) Init(bell *doorbell.Doorbell, onIdle func()) {
	s.bell, s.idle.L, s.onIdle = bell, &s.mu, onIdle
}

// Wake makes all waits check their conditions again. It costs one load if no wait sleeps. Before
// the call, the caller stores what the waits check, and executes a barrier or asym.Light.
func (s *Set) Wake() {
	if s.asleep.Load() != 0 { // ORDER asleep: after the store of what the waits check; pairs with the addition and the barrier in Arm
		s.ring()
	}
}

// ring is not part of Wake so that the compiler can inline Wake.
//
//go:noinline
func (s *Set) ring() {
	if !s.closed.Load() {
		s.bell.Ring()
	}
}

// WakeAll is Wake, also if a peer has cleared the doorbell's word.
func (s *Set) WakeAll() {
	if s.asleep.Load() != 0 && !s.closed.Load() {
		s.bell.WakeAll()
	}
}

// BeginCall counts a call that uses the arena or waits. It returns false after Close.
func (s *Set) BeginCall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.inCalls++
	return true
}

// EndCall ends a call for which BeginCall returned true.
func (s *Set) EndCall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inCalls--; s.inCalls == 0 {
		s.idle.Broadcast()
	}
}

// BeginWait counts a wait, which from now on makes progress on all objects of this process.
func (s *Set) BeginWait() {
	s.started.Add(1)
	s.waiting.Add(1)
}

// EndWait ends a wait.
func (s *Set) EndWait() {
	if s.waiting.Add(-1) == 0 {
		s.onIdle()
	}
}

// Complete counts a wait that ended successfully.
func (s *Set) Complete() { s.completed.Add(1) }

// Close ends all waits. It blocks until all calls have ended.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.Store(true)
	s.bell.WakeAll() // not Ring: a peer may have cleared the doorbell's word
	for s.inCalls > 0 {
		s.idle.Wait()
	}
}

// IsClosed reports whether Close was called. The arena may be unmapped then.
func (s *Set) IsClosed() bool { return s.closed.Load() }

// Started returns the number of waits so far.
func (s *Set) Started() uint64 { return s.started.Load() }

// Completed returns the number of waits that ended successfully.
func (s *Set) Completed() uint64 { return s.completed.Load() }

// Waiting returns the number of waits in progress.
func (s *Set) Waiting() int64 { return s.waiting.Load() }

// Sleeping returns the number of waits that sleep or are about to.
func (s *Set) Sleeping() int32 { return s.asleep.Load() }

// Arm prepares a sleep. After it the caller checks its condition for the last time, and then
// calls Sleep with the ticket, or not, and Disarm.
func (s *Set) Arm() (ticket uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep.Add(1) // ORDER asleep: before the barrier in Doorbell.Arm and the last check; pairs with the load in Wake
	return s.bell.Arm()
}

// IsArmed reports whether the doorbell is armed: a wait sleeps or is about to.
func (s *Set) IsArmed() bool { return s.bell.Armed() }

// Sleep blocks until the doorbell is rung, unless it was rung since Arm, or for limit.
func (s *Set) Sleep(ticket uint32, limit time.Duration) { s.bell.Sleep(ticket, limit) }

// Disarm ends what Arm began.
func (s *Set) Disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asleep.Add(-1) == 0 {
		s.bell.Disarm()
	}
}

// List makes a call visible to observers.
func (s *Set) List(call statuspage.Call) *Call {
	c := &Call{call, time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = append(s.listed, c)
	return c
}

// Unlist ends that.
func (s *Set) Unlist(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.listed, c)
	s.listed = slices.Delete(s.listed, i, i+1)
}

// Calls returns the listed calls.
func (s *Set) Calls() (calls []statuspage.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.listed {
		call := c.call
		call.Since = linux.HostClock() - int64(time.Since(c.since))
		calls = append(calls, call)
	}
	return calls
}
