package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// stageCorrupted copies the data of a Send or Write, with a wrong byte. The request then transfers the
// copy, as a request with Inline does. It reports false if it has rejected r, because a local token does not allow
// the copy.
func (ep *queuePair) stageCorrupted(r *request) bool {
	f, data := r.fault, make([]byte, 0, r.Total)
	f.inline = r.Inline // with its capacity, for the next request
	for _, e := range r.SGEs {
		part := data[len(data):][:e.Length]
		data = data[:len(data)+len(part)]
		r.setOperand(&ep.source, e, window.Read)
		ep.sink = window.Operand{Mem: part}
		if _, _, fault := ep.guard.Copy(&ep.sink, &ep.source, uint64(e.Length)); fault != window.NoFault {
			ep.rejectLocal(r, e, fault)
			return false
		}
	}
	data[f.Offset] ^= byte(f.Flip) // the rule matches only requests that have this byte
	r.Inline, r.Flags = data, r.Flags|nd.Inline
	r.SGEs = append(r.SGEs[:0], wire.SGE{Length: uint32(len(data))})
	return true
}

// corruptSink changes a byte that a Read has received, if a rule asks for it.
func (ep *queuePair) corruptSink(r *request) {
	if f := r.fault; r.Kind == nd.RequestRead && f.is(faultplan.Corrupt) && !f.done && r.Status == nd.Success {
		f.done = true
		ep.corrupt(r.SGEs, f)
	}
}

// corrupt changes a byte of local memory, if its token still allows that.
func (ep *queuePair) corrupt(entries []wire.SGE, f *pendingFault) {
	var b [1]byte
	e := wire.SGEAt(entries, f.Offset)
	mode.SetLocalOperand(&ep.source, e, window.Read)
	ep.sink = window.Operand{Mem: b[:]}
	if _, _, fault := ep.guard.Copy(&ep.sink, &ep.source, 1); fault != window.NoFault {
		return
	}
	b[0] ^= byte(f.Flip)
	mode.SetLocalOperand(&ep.sink, e, window.Write)
	ep.source = window.Operand{Mem: b[:]}
	ep.guard.Copy(&ep.sink, &ep.source, 1)
}

// faultAtReceivePost asks the plan about the post of receive r. It returns the error of the post, or nil.
func (ep *queuePair) faultAtReceivePost(r *receive) error {
	if ep.faults() == nil {
		return nil
	}
	f, ok := ep.nextReceiveFault(faultplan.Post, r.capacity)
	if !ok {
		return nil
	}
	if f.Action == uint32(faultplan.Fail) {
		return ep.opError("receive", nd.Status(f.Status), f.String(), atFaultRule)
	}
	ep.disrupt(f, "receive", ep.rq.cq)
	return nil
}

// faultAtPost asks the plan about the post of a receive of size bytes. The event has no endpoint, so no rule that ends a
// connection or overruns a queue acts here. It returns the error of the post, or nil.
func (q *sharedReceiveQueue) faultAtPost(size uint64) error {
	injector := q.adapter.provider.faults
	if injector == nil {
		return nil
	}
	f, ok := injector.Next(faultplan.Event{Operation: faultplan.Receive, Phase: faultplan.Post, Peer: shm.NoRank, Size: size})
	if !ok {
		return nil
	}
	if f.Action == uint32(faultplan.Fail) {
		return q.opError("receive", nd.Status(f.Status), f.String(), atFaultRule)
	}
	signalSelf(f)
	return nil
}

func (ep *queuePair) nextReceiveFault(phase faultplan.Phase, size uint64) (faultplan.Fired, bool) {
	return ep.faults().Next(faultplan.Event{Operation: faultplan.Receive, Phase: phase, Peer: ep.peerRank(), Endpoint: ep.number, Size: size})
}

// faultBeforeReceive asks the plan about the message that entry begins or continues, once, and acts. If it
// reports true, out replaces the outcome of serveEntry.
func (ep *queuePair) faultBeforeReceive(entry *wire.Entry, r *receive) (out outcome, handled bool) {
	if entry.Kind == wire.SendFailed {
		return 0, false // there is no message
	}
	if !ep.resp.faultAsked {
		ep.resp.faultAsked = true
		size := entry.RequestLength
		if entry.Kind == wire.SendInEntry {
			size = uint64(entry.PayloadLength)
		}
		if f, ok := ep.nextReceiveFault(faultplan.Execute, size); ok {
			ep.resp.fault = newPendingFault(f)
		}
	}
	f := ep.resp.fault
	switch {
	case f == nil || f.done || f.is(faultplan.Corrupt): // completeReceive changes the byte
		return 0, false
	case f.is(faultplan.Delay):
		return blocked, !f.delayIsOver()
	}
	f.done = true
	if f.is(faultplan.Fail) {
		ep.completeReceive(r, nd.Status(f.Status), 0, 0)
		ep.failServing(nd.RemoteError, ep.opError("receive", nd.Status(f.Status), f.String(), atFaultRule))
		return executed, true
	}
	ep.disrupt(f.Fired, "receive", ep.rq.cq)
	return blocked, ep.state() == failed || ep.hasOverrun()
}

// corruptMessage changes a byte of the message of length bytes that r has received, if a rule asks for it.
func (ep *queuePair) corruptMessage(r *receive, s nd.Status, bytes uint64) {
	if f := ep.resp.fault; f.is(faultplan.Corrupt) && !f.done && s == nd.Success && f.Offset < bytes {
		f.done = true
		ep.corrupt(r.sges(), f)
	}
}
