// Package weak is a mode of endpoints: it delays and reorders whatever the model leaves open. Programs that rely on
// more fail then. docs/weak-order.md lists the delays, and the orders that remain.
//
// Each decision depends on the seed, the member's slot, and the numbers of the endpoint and of the request. A
// delay is a number of steps of its endpoint: calls of the program that drive the endpoint. The clock of
// the machine has no part in it, so a program that makes the same calls again meets the same order.
package weak

// TWIN c/src/endpoint/weak.c.

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// Order is the weak order of a provider.
type Order struct {
	mode.Calls
	Events atomic.Uint64 // calls of Return

	seed uint64 // of this member
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

// New returns the weak order of the member with a slot. inner is the hook for calls inside it.
func New(seed uint64, slot int, inner mode.Calls) *Order {
	o := &Order{Calls: inner, seed: seed}
	o.seed = o.draw(ofMember, 0, uint64(slot)) // ranks have the slot of their number
	return o
}

// draw returns the random number that belongs to a decision about a request or entry of an endpoint.
func (o *Order) draw(c choice, endpoint, number uint64) uint64 {
	return rand.NewPCG(o.seed^uint64(c)<<56, endpoint<<40^number).Uint64()
}

// Return makes a wait return late: other goroutines run first. They are few turns, because among busy goroutines each takes long.
func (o *Order) Return() {
	for range o.draw(ofEvents, 0, o.Events.Add(1)) % 4 {
		runtime.Gosched()
	}
	o.Calls.Return()
}

// Hook is the weak order of an endpoint.
type Hook struct {
	mode.Hook
	ep       mode.Endpoint
	order    *Order
	clock    uint64    // steps so far
	requests []request // one for each of Endpoint.Requests
	message  message

	idleRounds int // of the engine, since the program last drove the endpoint
}

// request is what a request waits for.
type request struct {
	id            uint64 // number of the request plus 1
	start, result uint64 // see isDue
	read          uint64
	placement     placement
}

// message is what the ring entry at the front of the peer's ring waits for.
type message struct {
	id              uint64 // number of the entry plus 1
	start, delivery uint64
	isPlaced        bool // its data is in the receive
	placement       placement
}

// Endpoint returns the hook of an endpoint. inner is the hook inside it.
func (o *Order) Endpoint(ep mode.Endpoint, inner mode.Hook) *Hook {
	return &Hook{Hook: inner, ep: ep, order: o, clock: 1, requests: make([]request, ep.Requests)}
}

func (w *Hook) draw(c choice, number uint64) uint64 {
	return w.order.draw(c, w.ep.Number, number)
}

// isDue reports whether a delay of steps is over. Its first call begins the delay, and stores its end into due.
func (w *Hook) isDue(due *uint64, steps uint64) bool {
	if *due == 0 {
		*due = w.clock + steps
	}
	return w.clock >= *due
}

// steps returns the delay for a decision. Half of the delays are 0. For each kind of decision, an endpoint has
// a greatest delay: some endpoints are slow where others are fast.
func (w *Hook) steps(c choice, number uint64) uint64 {
	d := w.draw(c, number)
	if d&1 == 0 {
		return 0
	}
	greatest := [...]uint64{2, 8, 32}[w.draw(ofScale, uint64(c))%3]
	return 1 + d>>1%greatest
}

// state returns the state of a request.
func (w *Hook) state(r *mode.Request) *request {
	s := &w.requests[r.Number&uint64(len(w.requests)-1)]
	if s.id != r.Number+1 {
		*s = request{id: r.Number + 1}
	}
	return s
}

// BeforeRun delays a request, or sets a Read aside.
func (w *Hook) BeforeRun(r *mode.Request) mode.Answer {
	s, isAside := w.state(r), r.State == mode.SetAside
	switch {
	case r.Transferred > 0:
	case isAside && !w.isDue(&s.read, w.draw(ofReads, r.Number)>>1%64), !isAside && !w.isDue(&s.start, w.steps(ofStart, r.Number)):
		return mode.Hold
	case r.Kind == nd.RequestRead && !isAside && w.draw(ofReads, r.Number)&1 != 0:
		return mode.Aside
	}
	return w.Hook.BeforeRun(r)
}

// BeforeCompletion delays a result. After the end of a connection no result is delayed.
func (w *Hook) BeforeCompletion(r *mode.Request) bool {
	return (w.ep.HasEnded() || w.isDue(&w.state(r).result, w.steps(ofResult, r.Number))) && w.Hook.BeforeCompletion(r)
}

// BeforeServing delays the entry at the front of the peer's ring. It may store the data of a message some time
// before the receive completes.
func (w *Hook) BeforeServing(e *wire.Entry) mode.Answer {
	s, number := w.front()
	if !w.isDue(&s.start, w.steps(ofMessages, number)) {
		return mode.Hold
	}
	if e.Kind != wire.SendInEntry || e.Flags&wire.FlagInvalidate != 0 {
		return w.Hook.BeforeServing(e)
	}
	if !s.isPlaced {
		var a mode.Answer
		if a, s.isPlaced = w.ep.PlaceEarly(e); a != mode.Run {
			return a
		}
	}
	if s.isPlaced && !w.isDue(&s.delivery, w.steps(ofDelivery, number)) {
		return mode.Hold
	}
	return w.Hook.BeforeServing(e) // the endpoint stores the data once more
}

// Step counts a step of the delays.
func (w *Hook) Step() { w.clock++ }

// Waits reports whether a request or a message waits for steps.
func (w *Hook) Waits(isBusy bool) bool { return isBusy }

// EngineTurn keeps the engine from an endpoint while the program drives it, because the rounds of the engine depend on the time.
func (w *Hook) EngineTurn(hasScanned bool) bool {
	const rounds = 10
	if w.idleRounds++; hasScanned {
		w.idleRounds = 0
	}
	return w.idleRounds >= rounds
}
