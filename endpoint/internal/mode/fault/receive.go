package fault

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
)

func (h *Hook) askReceive(phase faultplan.Phase, size uint64) (faultplan.Fired, bool) {
	return h.injector.Next(faultplan.Event{Operation: faultplan.Receive, Phase: phase, Peer: h.ep.PeerRank(), Endpoint: h.ep.Number, Size: size})
}

// PostReceive asks the plan about the post of a receive.
func (h *Hook) PostReceive(size uint64) error {
	if f, ok := h.askReceive(faultplan.Post, size); ok {
		if f.Action == uint32(faultplan.Fail) {
			return h.ep.Error("receive", nd.Status(f.Status), f.String(), next)
		}
		h.disrupt(f, "receive", true)
	}
	return h.Hook.PostReceive(size)
}

// BeforeReceive asks the plan about the message that e begins or continues, once, and acts.
func (h *Hook) BeforeReceive(e *wire.Entry) mode.Answer {
	if e.Kind == wire.SendFailed {
		return h.Hook.BeforeReceive(e) // there is no message
	}
	if !h.asked {
		h.asked = true
		size := e.RequestLength
		if e.Kind == wire.SendInEntry {
			size = uint64(e.PayloadLength)
		}
		if f, ok := h.askReceive(faultplan.Execute, size); ok {
			h.message = h.begin(f)
		}
	}
	f := h.message
	switch {
	case f == nil || f.done || f.is(faultplan.Corrupt): // Received changes the byte
		return h.Hook.BeforeReceive(e)
	case f.is(faultplan.Delay):
		if h.isDelaying(f) {
			return mode.Hold
		}
		return h.Hook.BeforeReceive(e)
	}
	f.done = true
	if f.is(faultplan.Fail) {
		h.ep.FailReceive(nd.Status(f.Status), nd.RemoteError, f.String(), next)
		return mode.Done
	}
	if h.disrupt(f.Fired, "receive", true); h.ep.HasFailed() {
		return mode.Hold
	}
	return h.Hook.BeforeReceive(e)
}

// Received changes a byte of a message, if a rule asks for it.
func (h *Hook) Received(e *wire.Entry, entries []wire.SGE, n uint64) bool {
	if f := h.message; f.is(faultplan.Corrupt) && !f.done && f.Offset < n {
		f.done = true
		h.corrupt(entries, f)
	}
	return h.Hook.Received(e, entries, n)
}

// Served forgets the rule of the current message.
func (h *Hook) Served() {
	if h.message.is(faultplan.Delay) && !h.message.done {
		h.delays--
	}
	h.message, h.asked = nil, false
	h.Hook.Served()
}
