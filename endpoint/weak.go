package endpoint

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A provider with a weak order delays and reorders whatever the model leaves open. Programs that rely on
// more fail then. docs/weak-order.md lists the delays, and the orders that remain.
//
// Each decision depends on the seed, the member's slot, and the numbers of the endpoint and of the request. A
// delay is a number of steps of its endpoint: calls of the program that drive the endpoint. The clock of
// the machine has no part in it, so a program that makes the same calls again meets the same order.
//
// slowBit keeps all requests and messages from the fast path. On the slow path, each place that waits has
// a check of queuePair.weak, which is nil without a weak order.

// weakOrder is the weak order of a provider; nil = none.
type weakOrder struct {
	seed         uint64        // of this member
	events       atomic.Uint64 // calls of delayEvent
	engineRounds atomic.Uint64 // how often the engine has driven an endpoint: if it has, the time has a part in the order
}

// choice is a kind of decision.
type choice uint64

const (
	ofMember choice = iota
	ofScale
	ofStart     // when a request begins to run
	ofResult    // when the result of a finished request is queued
	ofReads     // which Reads later requests may overtake, and for how long
	ofMessages  // when an entry of the peer is served
	ofDelivery  // when the receive of a message that is in memory completes
	ofPlacement // in which parts and order bytes are stored
	ofEvents
)

func newWeakOrder(seed uint64, member shm.MemberID) *weakOrder {
	w := &weakOrder{seed: seed}
	w.seed = w.draw(ofMember, 0, uint64(member.Slot())) // ranks have the slot of their number
	return w
}

// draw returns the random number that belongs to a decision about a request or entry of an endpoint.
func (w *weakOrder) draw(c choice, endpoint, number uint64) uint64 {
	return rand.NewPCG(w.seed^uint64(c)<<56, endpoint<<40^number).Uint64()
}

// delayEvent makes a Notify return late: other goroutines run first. They are few turns, because among busy goroutines each takes long.
func (w *weakOrder) delayEvent() {
	if w == nil {
		return
	}
	for range w.draw(ofEvents, 0, w.events.Add(1)) % 4 {
		runtime.Gosched()
	}
}

// weakEndpoint is the weak order of an endpoint, guarded by its lock; nil = none.
type weakEndpoint struct {
	ep       *queuePair
	order    *weakOrder
	clock    uint64        // steps so far
	requests []weakRequest // parallel to requester.requests
	reads    []uint64      // numbers of the Reads that are set aside, see weak_reads.go
	begun    bool          // the first of them has copied some bytes: no other request runs before its end
	message  weakMessage

	idleRounds int // of the engine, since the program last drove the endpoint
}

// weakRequest is what a request waits for.
type weakRequest struct {
	id            uint64 // number of the request plus 1
	start, result uint64 // see isDue
	read          uint64
	placement     placement
}

// weakMessage is what the ring entry at the front of the peer's ring waits for.
type weakMessage struct {
	id              uint64 // number of the entry plus 1
	start, delivery uint64
	isPlaced        bool // its data is in the receive
	placement       placement
}

func newWeakEndpoint(ep *queuePair) *weakEndpoint {
	return &weakEndpoint{ep: ep, order: ep.provider.weak, clock: 1, requests: make([]weakRequest, len(ep.req.requests))}
}

func (w *weakEndpoint) draw(c choice, number uint64) uint64 {
	return w.order.draw(c, w.ep.number, number)
}

// isDue reports whether a delay of steps is over. Its first call begins the delay, and stores its end into due.
func (w *weakEndpoint) isDue(due *uint64, steps uint64) bool {
	if *due == 0 {
		*due = w.clock + steps
	}
	return w.clock >= *due
}

// steps returns the delay for a decision. Half of the delays are 0. For each kind of decision, an endpoint has
// a greatest delay: some endpoints are slow where others are fast.
func (w *weakEndpoint) steps(c choice, number uint64) uint64 {
	d := w.draw(c, number)
	if d&1 == 0 {
		return 0
	}
	greatest := [...]uint64{2, 8, 32}[w.draw(ofScale, uint64(c))%3]
	return 1 + d>>1%greatest
}

// request returns the state of a request.
func (w *weakEndpoint) request(number uint64) *weakRequest {
	s := &w.requests[number&uint64(len(w.requests)-1)]
	if s.id != number+1 {
		*s = weakRequest{id: number + 1}
	}
	return s
}

// beforeExecute delays request r, the next to run, or sets it aside. If it reports true, out replaces the
// outcome of execute.
func (w *weakEndpoint) beforeExecute(r *request) (out outcome, handled bool) {
	number := w.ep.req.next
	s := w.request(number)
	switch {
	case r.Transferred > 0:
		return 0, false
	case !w.isDue(&s.start, w.steps(ofStart, number)):
		return blocked, true
	case r.Kind == nd.RequestSend && w.ep.conn.peerHasSRQ && w.hasReads():
		return blocked, true // such a Send waits in the ring, without limit; no Read may get behind it
	case w.mayOvertake(r) && w.draw(ofReads, number)&1 != 0:
		w.reads = append(w.reads, number)
		return executed, true
	}
	return 0, false
}

// resultIsDue reports whether the result of a finished request may be queued. After the end of a connection
// no result is delayed.
func (w *weakEndpoint) resultIsDue(number uint64) bool {
	return w.ep.hasEnded() || w.isDue(&w.request(number).result, w.steps(ofResult, number))
}

// isBusy reports whether a request or a message waits for steps, which no ring announces.
func (w *weakEndpoint) isBusy() bool {
	return w != nil && (w.ep.sq.completed != w.ep.req.submitted || w.ep.serving)
}

// engineMayDrive reports whether the engine drives the endpoint. While the program does, the engine does not:
// its rounds depend on the time. scanned says that the program has done so since the last round.
func (w *weakEndpoint) engineMayDrive(scanned bool) bool {
	const rounds = 10
	if w == nil {
		return true
	}
	if w.idleRounds++; scanned {
		w.idleRounds = 0
	}
	if w.idleRounds < rounds {
		return false
	}
	w.order.engineRounds.Add(1)
	return true
}
