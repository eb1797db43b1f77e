package endpoint

// TWIN c/src/endpoint/req_execute.c, c/src/endpoint/req_bind.c.

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// execute runs or continues request r, the oldest that is not executed. It transfers at most *budget
// bytes and subtracts them.
func (ep *queuePair) execute(r *request, budget *uint64) outcome {
	if r.State == mode.Draining {
		return ep.executeInvalidate(r)
	}
	switch r.Kind {
	case nd.RequestBind, nd.RequestFastRegister:
		return ep.executeBind(r)
	case nd.RequestInvalidate:
		return ep.executeInvalidate(r)
	case nd.RequestSend:
		return ep.executeSend(r, budget)
	case nd.RequestFetchAndAdd, nd.RequestCompareAndSwap, nd.RequestSwap:
		return ep.executeAtomic(r)
	case nd.RequestRead, nd.RequestWrite:
		return ep.executeOneSided(r, budget)
	}
	return ep.reject(r, nd.NotSupported, "no code executes requests of type %v", r.Kind)
}

// executeOneSided is execute for a Read or Write.
func (ep *queuePair) executeOneSided(r *request, budget *uint64) outcome {
	if r.Kind == nd.RequestRead && ep.req.readLimit == 0 {
		return ep.reject(r, nd.InvalidDeviceRequest, noReads)
	}
	if r.HasImmediate && !r.hasReceive {
		if r.Total > 0 && !ep.mustPeerCopy() { // before it waits for a Receive
			if out := ep.checkRange(r); out != executed || r.State == mode.Finished {
				return out
			}
		}
		if out := ep.takeReceive(r); out != executed || r.State == mode.Finished {
			return out
		}
	}
	if r.Total == 0 && !r.HasImmediate {
		r.Finish(nd.Success) // an empty Read or Write only checks the connection
		return executed
	}
	if r.Flags.Has(nd.ReadLocalInvalidate) && r.Object == nil {
		r.Object = ep.adapter.domain.Find(r.SGEs[0].Token, window.Local, ep.number) // the region that the Read invalidates
		if r.Object == nil {
			return ep.rejectSink(r)
		}
	}
	if r.isIncomplete() {
		return blocked
	}
	if !r.ResponderCopies && r.Transferred == 0 {
		r.ResponderCopies = ep.mustPeerCopy() || ep.conn.copyWouldOvertake()
	}
	if r.ResponderCopies {
		return ep.sendFragments(r, budget)
	}
	return ep.copyOneSided(r, budget)
}

// executeBind applies the binding that postBind has prepared, or the registration of FastRegister.
func (ep *queuePair) executeBind(r *request) outcome {
	b := r.binding
	r.binding = nil
	if !b.Apply() {
		return ep.reject(r, nd.InvalidDeviceRequest, "%s", whyNotBound(r.Object))
	}
	ep.bound.Add(r.Object)
	r.Finish(nd.Success)
	return executed
}

// executeInvalidate revokes a token, and completes the request when no peer uses the token (drain).
func (ep *queuePair) executeInvalidate(r *request) outcome {
	done := false
	if r.State != mode.Draining {
		if r.Object.IsRegion() && (ep.conn.hasUnexecutedRequests() || ep.conn.awaitsResults() || ep.hasAside()) {
			return ep.stall(r, stallOrder) // the peer has not run all requests that may name the region's local token
		}
		if r.Object.IsRegion() && !ep.settleArrived() {
			return ep.stall(r, stallOrder) // the failed Read ends the connection when it completes
		}
		var ok bool
		if _, done, ok = r.Object.Invalidate(ep.number); !ok {
			return ep.reject(r, nd.InvalidDeviceRequest, "%s", whyNotInvalidated(r.Object))
		}
		ep.bound.Remove(r.Object)
		r.State = mode.Draining
	}
	if !done && !r.Object.EndInvalidation() {
		return ep.stall(r, stallDrain)
	}
	ep.completeInvalidate(r)
	return executed
}

// whyNotBound says why a window could not be bound, or a region not be registered.
func whyNotBound(object *window.Invalidatable) string {
	if object.IsRegion() {
		return "the region is registered already, or closed: invalidate it first"
	}
	return "the window is bound already, or closed: invalidate it first"
}

// whyNotInvalidated says why object could not be invalidated on an endpoint.
func whyNotInvalidated(object *window.Invalidatable) string {
	if object.IsRegion() {
		return "the region is not registered on this endpoint, or a window still uses it"
	}
	return "the window is not bound on this endpoint"
}

// checkRange checks the whole remote range of a Read or Write. It rejects the request, or returns blocked, if it cannot go on.
func (ep *queuePair) checkRange(r *request) outcome {
	right := window.Write
	if r.Kind == nd.RequestRead {
		right = window.Read
	}
	ep.sink = window.Operand{Token: r.RemoteToken, Rights: window.Remote | right, Far: &ep.conn.far, BindCheck: &r.remoteBindCheck, Address: r.RemoteAddress}
	switch f := ep.guard.Check(&ep.sink, r.Total); f {
	case window.NoFault, window.FaultUnreachable:
		return executed
	case window.FaultDisconnected:
		return blocked
	default:
		return ep.rejectRemote(r, f)
	}
}

// copyOneSided runs a Read or a Write in this process: it copies between local memory and the peer's.
// If the peer's memory is not in the arena, it leaves the copy to the peer.
func (ep *queuePair) copyOneSided(r *request, budget *uint64) outcome {
	write := r.Kind == nd.RequestWrite
	local, remote, right := &ep.source, &ep.sink, window.Write
	if !write {
		local, remote, right = &ep.sink, &ep.source, window.Read
	}
	if r.Transferred == 0 && r.Total > 0 && (len(r.SGEs) > 1 || r.Total > *budget || ep.hook != nil || r.limit(r.Total) < r.Total) {
		if out := ep.checkRange(r); out != executed || r.State == mode.Finished { // before the first byte is copied
			return out
		}
	}
	*remote = window.Operand{Token: r.RemoteToken, Rights: window.Remote | right, Far: &ep.conn.far, BindCheck: &r.remoteBindCheck}
	for r.Transferred < r.Total {
		if *budget == 0 {
			return partial
		}
		at, n, out := ep.nextBytes(r, *budget)
		if n == 0 {
			return out
		}
		e := wire.SGEAt(r.SGEs, at)
		if n = r.limit(min(n, uint64(e.Length))); n == 0 {
			return blocked
		}
		// e is a range of the program's memory, or of the bytes that the post copied (Inline), or that a relay passes.
		if write {
			r.setOperand(local, e, window.Read)
		} else {
			r.setOperand(local, e, window.Write)
		}
		remote.Address = r.RemoteAddress + at
		matches, sinkFault, sourceFault := ep.copyRequest(r, n)
		remoteFault, localFault := sinkFault, sourceFault
		if !write {
			remoteFault, localFault = sourceFault, sinkFault
		}
		switch {
		case remoteFault == window.FaultDisconnected:
			return blocked // the next check of the connection notices the end too
		case remoteFault == window.FaultUnreachable && r.Transferred == 0:
			r.ResponderCopies = true
			return ep.sendFragments(r, budget)
		case remoteFault != window.NoFault:
			return ep.rejectRemote(r, remoteFault)
		case localFault != window.NoFault:
			return ep.rejectLocal(r, e, localFault)
		case !matches:
			return executed
		}
		ep.countCopied(r, n)
		*budget -= n
	}
	if r.HasImmediate {
		return ep.pushWritePlaced(r)
	}
	r.Finish(nd.Success)
	return executed
}

// pushWritePlaced tells the peer that a Write with immediate data is in its memory.
func (ep *queuePair) pushWritePlaced(r *request) outcome {
	flags := wire.FlagFirst | wire.FlagLast | r.entryFlags()&^wire.FlagHashed
	if r.needsAck {
		flags |= wire.FlagAckRequest
	}
	entry := ring.Words{wire.Header(wire.WritePlaced, flags, 0, nd.Token(r.Immediate)), r.Total}
	if !ep.pushEntry(r, &entry, true) {
		return ep.stall(r, stallQueue)
	}
	ep.conn.record.Peer.Wake()
	if !r.needsAck {
		ep.completeIfOpen(r)
	}
	return executed
}
