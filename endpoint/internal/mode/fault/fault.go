// Package fault is a mode of endpoints: it makes the rules of a fault plan act on requests, messages and calls.
//
// Three places ask the plan about a request: its post, the moment before it runs, and the moment before its result is
// queued. A message is looked up before it is stored into its receive. Each place asks once for a request, however
// often the request is tried.
package fault

// TWIN c/src/endpoint/fault.c.

import (
	"fmt"
	"time"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
)

const next = "the fault plan asks for it: change the rule if you do not want it"

// Now is the clock of delays.
var Now = time.Now

// pending is a rule that acts on a request or a message.
type pending struct {
	faultplan.Fired
	until  time.Time // of a delay
	done   bool      // the action is complete
	inline []byte    // see stageCorrupted
}

func (f *pending) is(a faultplan.Action) bool { return f != nil && f.Action == uint32(a) }

// delayIsOver ends a delay when its time has come.
func (f *pending) delayIsOver() bool {
	f.done = f.done || !Now().Before(f.until)
	return f.done
}

// Hook makes the rules of a plan act on the requests and messages of an endpoint.
type Hook struct {
	mode.Hook
	ep       mode.Endpoint
	injector *faultplan.Injector
	requests []request // one for each of Endpoint.Requests

	message *pending // rule that acts on the current message; nil = none
	asked   bool     // the plan has been asked about that message
	delays  int      // that have begun
}

// request is what the plan has to do with a request.
type request struct {
	id uint64 // number of the request plus 1
	*pending
	window uint64 // number of the window or token for rules; 0 = none, or no rule asks for it
	phases uint8  // a bit for each phase in which the plan has been asked
}

// New returns the hook of an endpoint. inner is the hook inside it.
func New(injector *faultplan.Injector, ep mode.Endpoint, inner mode.Hook) *Hook {
	return &Hook{Hook: inner, ep: ep, injector: injector, requests: make([]request, ep.Requests)}
}

// state returns the state of a request.
func (h *Hook) state(r *mode.Request) *request {
	s := &h.requests[r.Number&uint64(len(h.requests)-1)]
	if s.id != r.Number+1 {
		*s = request{id: r.Number + 1}
	}
	return s
}

// begin begins the action of a rule.
func (h *Hook) begin(f faultplan.Fired) *pending {
	if f.Action == uint32(faultplan.Delay) {
		h.delays++
	}
	return &pending{Fired: f, until: Now().Add(time.Duration(f.Delay))}
}

// isDelaying reports whether f, which delays a request or message, does so still.
func (h *Hook) isDelaying(f *pending) bool {
	if !f.done && f.delayIsOver() {
		h.delays--
	}
	return !f.done
}

// ask asks the plan about a request. It asks once in each phase.
func (h *Hook) ask(r *mode.Request, phase faultplan.Phase) (f faultplan.Fired, ok bool) {
	s := h.state(r)
	if s.phases&(1<<phase) != 0 {
		return f, false
	}
	s.phases |= 1 << phase
	op, isKnown := operations[r.OpName()]
	if !isKnown { // no rule is about it
		return f, false
	}
	if op == faultplan.Invalidate && r.Object.IsRegion() {
		op = faultplan.InvalidateRegion
	}
	return h.injector.Next(faultplan.Event{Operation: op, Phase: phase, Peer: h.ep.PeerRank(), Endpoint: h.ep.Number, Window: s.window, Size: r.Total})
}

// Post asks the plan about a post.
func (h *Hook) Post(r *mode.Request) error {
	s := h.state(r)
	*s = request{id: s.id} // also if an earlier post with this number has failed
	if h.injector.UsesWindows() {
		var named any
		if r.Object != nil {
			named = r.Object
		}
		token := r.RemoteToken
		if r.HasImmediate && r.Kind == nd.RequestSend {
			token = 0 // it is the number that the message brings
		}
		s.window = h.injector.WindowNumber(uint32(token), named)
	}
	if f, ok := h.ask(r, faultplan.Post); ok {
		if f.Action == uint32(faultplan.Fail) {
			return h.ep.Error(r.OpName(), nd.Status(f.Status), f.String(), next)
		}
		h.disrupt(f, r.OpName(), false)
	}
	return h.Hook.Post(r)
}

// BeforeRun asks the plan about a request that is the next to run, and acts.
func (h *Hook) BeforeRun(r *mode.Request) mode.Answer {
	s := h.state(r)
	if f, ok := h.ask(r, faultplan.Execute); ok {
		s.pending, r.InOrder = h.begin(f), true
	}
	f := s.pending
	switch {
	case f == nil || h.untilAction(r, 1) == 1:
		return h.Hook.BeforeRun(r)
	case f.After > 0 && r.ResponderCopies && r.EndEntry != 0 && !h.ep.IsReleased(r.EndEntry):
		return mode.Hold // the peer has yet to copy the bytes before the fault
	case f.is(faultplan.Delay):
		if h.isDelaying(f) {
			return mode.Hold
		}
		return h.Hook.BeforeRun(r)
	}
	action := faultplan.Action(f.Action)
	if isDisruption := action != faultplan.Corrupt && action != faultplan.Fail && action != faultplan.InvalidateNow; isDisruption && !h.ep.IsOldest(r) {
		return mode.Hold // until the earlier requests are complete: else chance would decide which of them succeed
	}
	f.done = true
	switch action {
	case faultplan.Corrupt:
		if !h.stageCorrupted(r, f) {
			return mode.Done
		}
		return h.Hook.BeforeRun(r)
	case faultplan.Fail:
		h.ep.Reject(r, nd.Status(f.Status), fmt.Sprintf("%v, after %d bytes", f, f.After))
		return mode.Done
	case faultplan.InvalidateNow:
		h.ep.RejectRemote(r, fmt.Sprintf("%v has invalidated the token after %d bytes", f, f.After))
		return mode.Done
	}
	if h.disrupt(f.Fired, r.OpName(), false); h.ep.HasFailed() {
		return mode.Hold
	}
	return h.Hook.BeforeRun(r)
}

// untilAction limits n, the next bytes of r, to those that come before the action of a rule. A message in a ring entry
// travels whole, so the action comes before it.
func (h *Hook) untilAction(r *mode.Request, n uint64) uint64 {
	f := h.state(r).pending
	if f == nil || f.done || brings(r) && f.is(faultplan.Corrupt) { // Arrived acts on it
		return n
	}
	if r.Kind == nd.RequestSend && r.FitsEntry(wire.SendInEntry) {
		return 0
	}
	return min(n, f.After-min(f.After, r.Transferred))
}

// Bytes ends a part of a request where a rule acts.
func (h *Hook) Bytes(r *mode.Request, n uint64) (at, m uint64, a mode.Answer) {
	if n = h.untilAction(r, n); n == 0 {
		return 0, 0, mode.Split
	}
	return h.Hook.Bytes(r, n)
}

// brings reports whether a request stores bytes of the peer here: a Read, or the old value of an atomic.
func brings(r *mode.Request) bool { return r.Kind == nd.RequestRead || r.IsAtomic() }

// Arrived changes a byte that a Read or an atomic has brought, if a rule asks for it.
func (h *Hook) Arrived(r *mode.Request) {
	h.Hook.Arrived(r)
	if f := h.state(r).pending; brings(r) && f.is(faultplan.Corrupt) && !f.done && r.Status == nd.Success {
		f.done = true
		h.corrupt(r.SGEs, f)
	}
}

// BeforeCompletion asks the plan about a request that is the next to complete. A request that has failed completes as it is.
func (h *Hook) BeforeCompletion(r *mode.Request) bool {
	s := h.state(r)
	if s.pending != nil && s.inline != nil {
		r.Inline = s.inline
	}
	return (r.PostedAfterEnd || r.Status != nd.Success || h.mayComplete(r)) && h.Hook.BeforeCompletion(r)
}

func (h *Hook) mayComplete(r *mode.Request) bool {
	s := h.state(r)
	if f, ok := h.ask(r, faultplan.Complete); ok {
		s.pending = h.begin(f)
	}
	f := s.pending
	switch {
	case f == nil || f.Phase != uint32(faultplan.Complete) || f.done:
		return true
	case f.is(faultplan.Delay):
		return !h.isDelaying(f)
	}
	f.done = true
	if f.is(faultplan.Fail) {
		h.ep.Reject(r, nd.Status(f.Status), f.String())
		return true
	}
	h.disrupt(f.Fired, r.OpName(), false)
	return !h.ep.HasEnded()
}

// Waits reports whether a rule delays a request or a message.
func (h *Hook) Waits(isBusy bool) bool { return h.delays > 0 || h.Hook.Waits(isBusy) }

// End forgets the delays.
func (h *Hook) End() {
	h.delays = 0
	h.Hook.End()
}
