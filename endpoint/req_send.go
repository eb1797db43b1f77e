package endpoint

// TWIN c/src/endpoint/req_send.c.

import (
	"time"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// executeSend sends a message to the peer's oldest receive.
func (ep *queuePair) executeSend(r *request, budget *uint64) outcome {
	c := ep.conn
	if r.isIncomplete() {
		return blocked
	}
	if !r.hasReceive {
		if out := ep.takeReceive(r); out != executed || r.State == mode.Finished {
			return out
		}
		// The message must not overtake entries that the peer has yet to copy: an earlier message
		// or Write may store to the same bytes, or fail. A later message could change the bytes of a
		// hashed one before the peer has checked them.
		r.ResponderCopies = c.peerHasSRQ || r.Invalidate || r.Hashed || ep.mustPeerCopy() || c.copyWouldOvertake()
		if r.Total > wire.MaxSendInEntry && !r.ResponderCopies {
			ep.req.peerReceiveSGEs, ep.req.peerReceiveCapacity = c.nextReceive(&ep.req.peerReceiveBuffer)
			if r.Total > ep.req.peerReceiveCapacity {
				r.hasReceive = false // if the ring has no room for the report, execute starts over
				if e, f := ep.checkLocalAccess(r); f != window.NoFault {
					return ep.rejectLocal(r, e, f) // an error of this side's own entries takes precedence
				}
				return ep.rejectReceive(r, nd.BufferOverflow, tooLong, r.Total, ep.req.peerReceiveCapacity)
			}
			r.ResponderCopies = ep.needsPeerCopy(ep.req.peerReceiveSGEs)
		}
	}
	switch {
	case r.FitsEntry(wire.SendInEntry):
		return ep.pushSendInEntry(r)
	case r.ResponderCopies:
		return ep.sendFragments(r, budget)
	}
	return ep.copyToReceive(r, budget)
}

// takeReceive makes sure that the peer has a receive for r. The receive is for r, because such requests are executed in order.
func (ep *queuePair) takeReceive(r *request) outcome {
	c := ep.conn
	switch {
	case r.HasImmediate && !c.peerExtended: // a request of a relay; else the post has failed
		return ep.reject(r, nd.NotSupported, noExtension, c.peerName)
	case c.peerHasSRQ:
		// Only the peer knows whether its shared queue has a receive. The entry waits in the ring for one, without limit.
		r.needsAck = true
	case !c.hasReceive():
		if ep.requestWakeup(); !c.hasReceive() {
			return ep.awaitReceive(r)
		}
		fallthrough
	default:
		ep.cancelWakeup()
	}
	r.hasReceive = true
	return executed
}

// checkLocalAccess returns the first entry of r that must not be read, and why.
func (ep *queuePair) checkLocalAccess(r *request) (wire.SGE, window.Fault) {
	for _, e := range r.SGEs {
		r.setOperand(&ep.source, e, window.Read)
		if f := ep.guard.Check(&ep.source, uint64(e.Length)); f != window.NoFault {
			return e, f
		}
	}
	return wire.SGE{}, window.NoFault
}

// needsPeerCopy reports whether only the peer can fill one of the entries of its receive after the
// first. The copy itself detects that for the first entry. With a hook the copy may begin with another one.
func (ep *queuePair) needsPeerCopy(entries []wire.SGE) bool {
	first := 1
	if ep.hook != nil {
		first = 0
	}
	for i := first; i < len(entries); i++ {
		e := entries[i]
		ep.sink = window.Operand{Token: e.Token, Rights: window.Local | window.Write, Address: e.Address, Far: &ep.conn.far}
		if ep.guard.Check(&ep.sink, uint64(e.Length)) == window.FaultUnreachable {
			return true
		}
	}
	return false
}

// awaitReceive waits until the peer posts a receive, at most for the receive time-out.
func (ep *queuePair) awaitReceive(r *request) outcome {
	limit := ep.provider.options.ReceiveTimeout
	switch limit {
	case NoLimit:
		return ep.stall(r, stallReceive)
	case AtOnce:
		return ep.reject(r, nd.IOTimeout, "the peer (%s) has no receive posted", ep.conn.peerName)
	}
	now := time.Now()
	if r.deadline.IsZero() {
		r.deadline = now.Add(limit)
	}
	if now.Before(r.deadline) {
		return ep.stall(r, stallReceive)
	}
	return ep.reject(r, nd.IOTimeout, "the peer (%s) has posted no receive for %v", ep.conn.peerName, limit)
}

// pushSendInEntry sends a whole message in one ring entry.
func (ep *queuePair) pushSendInEntry(r *request) outcome {
	c := ep.conn
	if !ep.hasFreeEntry() {
		return ep.stall(r, stallQueue)
	}
	payload, ok := ep.gatherPayload(r)
	if !ok {
		return executed
	}
	flags := wire.FlagFirst | wire.FlagLast | r.entryFlags()
	// Unless the next receive can certainly hold the message, only the peer knows whether it did. Only the peer
	// checks the hash.
	if r.Invalidate || r.Hashed || r.needsAck || !c.credit.Fits(c.out.Published(), r.Total) {
		r.needsAck = true
		flags |= wire.FlagAckRequest
	}
	entry := ring.Words{wire.Header(wire.SendInEntry, flags, int(r.Total), r.RemoteToken)}
	wire.PutPayload(&entry, 1, payload)
	ep.pushEntry(r, &entry, true)
	c.credit.PayloadEndBeforeRun = r.EndEntry // later requests must not overtake the payload
	c.record.Peer.Wake()
	if !r.needsAck {
		ep.completeIfOpen(r)
	}
	return executed
}

// copyToReceive copies a message into the peer's posted receive, and then tells the peer.
func (ep *queuePair) copyToReceive(r *request, budget *uint64) outcome {
	c := ep.conn
	for r.Transferred < r.Total {
		if *budget == 0 {
			return partial
		}
		at, n, out := ep.nextBytes(r, *budget)
		if n == 0 {
			return out
		}
		from, to := wire.SGEAt(r.SGEs, at), wire.SGEAt(ep.req.peerReceiveSGEs, at)
		n = min(n, uint64(from.Length), uint64(to.Length))
		if n == 0 {
			return ep.rejectReceive(r, nd.AccessViolation, "the entries of the posted receive hold less than its %d bytes", ep.req.peerReceiveCapacity)
		}
		if n = r.limit(n); n == 0 {
			return blocked
		}
		r.setOperand(&ep.source, from, window.Read)
		ep.sink = window.Operand{Token: to.Token, Rights: window.Local | window.Write, Address: to.Address, Far: &c.far, BindCheck: &r.remoteBindCheck}
		_, remoteFault, localFault := ep.guard.Copy(&ep.sink, &ep.source, n)
		switch {
		case remoteFault == window.FaultDisconnected:
			return blocked
		case remoteFault == window.FaultUnreachable && r.Transferred == 0:
			r.ResponderCopies = true
			return ep.sendFragments(r, budget)
		case remoteFault != window.NoFault:
			return ep.rejectReceive(r, nd.AccessViolation, "the posted receive's entry of %s: %v", ep.describeAccess(&ep.sink, uint64(to.Length)), remoteFault)
		case localFault != window.NoFault:
			return ep.rejectLocal(r, from, localFault)
		}
		ep.countCopied(r, n)
		*budget -= n
	}
	entry := ring.Words{wire.Header(wire.SendPlaced, wire.FlagFirst|wire.FlagLast|r.entryFlags(), 0, r.RemoteToken), r.Total}
	if !ep.pushEntry(r, &entry, true) {
		return ep.stall(r, stallQueue)
	}
	c.record.Peer.Wake()
	ep.completeIfOpen(r)
	return executed
}

// completeIfOpen completes a Send whose entry is in the ring, if the peer is sure to consume it. The
// side that ends a connection first changes its state and then reads the ring once more. So if the
// state is unchanged after the push, the peer finds the entry. Otherwise only the peer knows.
func (ep *queuePair) completeIfOpen(r *request) {
	if ep.conn.far.IsOpen() { // ORDER conn-state: after the push; pairs with the change of state before leavePeerState reads the ring
		r.Finish(nd.Success)
		return
	}
	r.needsAck = true
	ep.conn.credit.AckRequestEnd = r.EndEntry
}

// rejectReceive tells the peer that its receive has failed with status s, and rejects the Send.
func (ep *queuePair) rejectReceive(r *request, s nd.Status, format string, args ...any) outcome {
	entry := ring.Words{wire.Header(wire.SendFailed, wire.FlagFirst|wire.FlagLast, 0, 0), uint64(s), r.Total}
	if !ep.pushEntry(r, &entry, true) {
		return ep.stall(r, stallQueue)
	}
	ep.counters.accessRefused++
	ep.localQP.ReceiveStatus.Store(uint32(s)) // ORDER reason: before the swap in Record.Move; pairs with the load in setCauseFromPeer
	return ep.reject(r, nd.RemoteError, format, args...)
}
