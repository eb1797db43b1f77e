package endpoint

// TWIN c/src/endpoint/progress_engine.c.

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/doorbell"
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

// Interval between two rounds of the housekeeper: while the process makes progress, and after it
// has made none for quietAfter.
const (
	quietAfter    = 3 * time.Second
	busyInterval  = 100 * time.Millisecond
	quietInterval = 2 * time.Second
)
