package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// serve handles messages of the peer in order, as far as the budget goes.
func (ep *Endpoint) serve(budget *uint64) (moved bool) {
	c := ep.conn
	m := &ep.message
	for *budget > 0 {
		if !ep.halfway {
			slot := c.in.Front() // once: the peer may take the message back
			if slot == nil {
				break
			}
			if ep.takeOne(slot) || ep.landNow(slot) {
				moved = true
				*budget -= min(*budget, shm.SlotSize)
				continue
			}
			ep.arrived = *slot
		}
		if !ep.halfway && !m.decode(&ep.arrived) {
			ep.terminate(ep.lie("a message of kind %d and length %d", m.kind, m.length))
			return true
		}
		ep.halfway = true // until it is consumed the slot counts no more: the peer may scribble over it
		before := ep.served
		switch ep.handle(m, budget) {
		case waits:
			return moved || ep.served != before
		case partial:
			return true
		}
		moved = true
		if ep.state() == failed {
			return true
		}
		ep.consumed(m)
		*budget -= min(*budget, shm.SlotSize) // even if it moved nothing: the peer may never stop
	}
	if moved && c.in.Unreleased() > 0 {
		c.in.Release() // the peer may hold requests back until it knows; it does not wait for a ring
	}
	return moved
}

// consumed is done with a message.
func (ep *Endpoint) consumed(m *message) {
	c := ep.conn
	c.in.Advance()
	ep.halfway, ep.served = false, 0
	awaited := m.flags&flagAwaited != 0
	if !awaited && c.in.Unreleased() < c.in.Size()/4 {
		return
	}
	ep.release(awaited)
}

// release gives consumed slots back, and wakes the peer if it waits for that.
func (ep *Endpoint) release(awaited bool) {
	c := ep.conn
	if c.out.Relaxed() {
		c.in.Release()
	} else {
		c.in.ReleaseFenced()
	}
	if awaited || c.peerState.stalled.Load() != 0 { // ORDER stalled: after the release; pairs with the swap and the barrier in stall
		c.peer.Ring()
	}
}

// lie describes what no sound peer does.
func (ep *Endpoint) lie(format string, args ...any) error {
	ep.provider.member.RecordLostPeer(ep.conn.peer.ID())
	return ep.fail("serve", nd.ConnectionAborted, "the peer ("+ep.conn.peerName+") sent "+fmt.Sprintf(format, args...), "the peer's memory is damaged, or it runs other software")
}

func (ep *Endpoint) handle(m *message, budget *uint64) outcome {
	switch m.kind {
	case writePiece, readPiece:
		return ep.servePiece(m, budget)
	case writeInline:
		return ep.serveWrite(m)
	}
	switch {
	case ep.shared != nil && (m.kind == sendPlaced || m.kind == sendFailed || m.flags&flagAwaited == 0):
		ep.terminate(ep.lie("a message of kind %d and flags %#x to a shared receive queue", m.kind, m.flags))
		return ready
	case ep.delivered != ep.posted: // a part of the message has been here already, or the receive is our own
	case ep.shared == nil:
		ep.terminate(ep.lie("a message without a posted receive"))
		return ready
	case ep.state() == peerGone || !ep.shared.assignReceive(ep): // the peer has canceled what it sent when it left
		return waits
	}
	r := &ep.receives[ep.delivered&uint64(len(ep.receives)-1)]
	switch m.kind {
	case sendPlaced:
		ep.deliver(r, nd.Success, min(m.address, r.capacity), 0)
		return ready
	case sendFailed:
		return ep.serveFailure(m, r)
	case sendPiece:
		return ep.servePieceOfSend(m, r, budget)
	}
	return ep.serveSend(m, r)
}

// deliver completes the oldest receive.
func (ep *Endpoint) deliver(r *receive, s nd.Status, bytes uint64, revoked nd.Token) {
	ep.result = nd.Result{Status: s, RequestContext: r.context, RequestType: nd.RequestReceive}
	if s == nd.Success {
		ep.result.BytesTransferred = uint32(bytes)
		if revoked != 0 {
			ep.result.RequestType, ep.result.InvalidatedToken = nd.RequestReceiveAndInvalidate, revoked
		}
	}
	ep.delivered++
	ep.placed = 0
	// A result that no message has made is a failure, which everybody notices anyway.
	ep.receiveCQ.push(&ep.result, &ep.receivesTaken, ep.message.flags&flagSolicited != 0)
}

// serveSend takes a message that came within its slot.
func (ep *Endpoint) serveSend(m *message, r *receive) outcome {
	if ep.revoking == nil {
		if m.flags&flagInvalidate != 0 && !ep.mayRevoke(m, r) {
			return ready
		}
		if uint64(m.length) > r.capacity {
			return ep.overflow(r, uint64(m.length))
		}
		ep.source = window.Operand{Mem: m.payload[:]}
		if !ep.fill(r, 0, uint64(m.length)) {
			return ready
		}
	}
	return ep.endOfSend(m, r, uint64(m.length))
}

// stopped is the outcome of a message that could not be filled in: over with
// the connection, or not to be taken as done.
func (ep *Endpoint) stopped() outcome {
	if ep.state() == failed {
		return ready
	}
	return waits
}

// fill copies n bytes of ep.source, which follows along, into the entries of a
// receive from byte at on. false means that the receive has failed.
func (ep *Endpoint) fill(r *receive, at, n uint64) bool {
	for n > 0 {
		e := cut(r.entries(), at)
		part := min(uint64(e.length), n)
		own(&ep.sink, e, window.Write)
		ep.sink.Generation = &ep.message.ours
		_, ownFault, farFault := ep.guard.Copy(&ep.sink, &ep.source, part)
		switch {
		case ownFault != window.NoFault:
			ep.deliver(r, nd.AccessViolation, 0, 0)
			ep.blame(nd.RemoteError, ep.fail("receive", nd.AccessViolation, fmt.Sprintf("entry of %s: %v", ep.ownEntry(e), ownFault), ""))
			return false
		case farFault == window.FaultDisconnected:
			return false // the next look at the connection sees it too
		case farFault != window.NoFault:
			ep.blame(nd.AccessViolation, ep.fail("receive", nd.RemoteError,
				fmt.Sprintf("the sender's memory, %s: %v", ep.granting(&ep.source, part), farFault), ""))
			return false
		}
		if ep.source.Mem != nil {
			ep.source.Mem = ep.source.Mem[part:]
		} else {
			ep.source.Address += part
		}
		at += part
		n -= part
	}
	return true
}

func (ep *Endpoint) overflow(r *receive, total uint64) outcome {
	ep.deliver(r, nd.BufferOverflow, 0, 0)
	ep.blame(nd.RemoteError, ep.fail("receive", nd.BufferOverflow, fmt.Sprintf(tooLong, total, r.capacity), "post larger receives"))
	return ready
}

// blame fails the connection because of the message being served; status is
// what the peer's request is to show.
func (ep *Endpoint) blame(status nd.Status, cause error) {
	in := ep.conn.in
	in.Release()
	ep.half.faultStatus.Store(uint32(status))
	ep.half.fault.Store(in.NextIndex() + 1) // ORDER fault: before the abort, whose reader loads it
	in.Advance()                            // not released: the peer must not take it for done
	ep.conn.inboundFailed = true
	ep.provider.member.RecordLostPeer(ep.conn.peer.ID())
	ep.terminate(cause)
}

// mayRevoke checks the token that a message is to invalidate, before anything
// else happens.
func (ep *Endpoint) mayRevoke(m *message, r *receive) bool {
	if ep.adapter.space.FindRemote(m.token, ep.number) != nil {
		return true
	}
	ep.deliver(r, nd.InvalidDeviceRequest, 0, 0)
	ep.blame(nd.RemoteError, ep.fail("receive", nd.InvalidDeviceRequest, fmt.Sprintf("the peer asked to invalidate %v, which is no window or region of this endpoint that can be", m.token), ""))
	return false
}

// endOfSend invalidates the window that the message names, if any, and then
// completes the receive: whoever sees the completion knows that nobody uses
// the window any more.
func (ep *Endpoint) endOfSend(m *message, r *receive, total uint64) outcome {
	if m.flags&flagInvalidate == 0 {
		ep.deliver(r, nd.Success, total, 0)
		return ready
	}
	if ep.revoking == nil {
		l := ep.adapter.space.FindRemote(m.token, ep.number)
		ok := l != nil
		if ok {
			ep.revokedToken, ok = l.Invalidate(ep.number)
		}
		if !ok { // a local Invalidate was faster, or windows use the region
			ep.deliver(r, nd.InvalidDeviceRequest, 0, 0)
			ep.blame(nd.RemoteError, ep.fail("receive", nd.InvalidDeviceRequest, fmt.Sprintf("%v was invalidated while the message arrived, or windows are bound to its region", m.token), ""))
			return ready
		}
		ep.revoking = l
		ep.bound.remove(l)
		if !l.Drained(ep.revokedToken) {
			ep.provider.wakeProgress() // the end of a drain is not announced
		}
	}
	if !ep.revoking.Drained(ep.revokedToken) {
		return waits
	}
	ep.revoking.Release()
	ep.revoking = nil
	ep.deliver(r, nd.Success, total, ep.revokedToken)
	return ready
}

// failure is the status that a receive shows which the sender could not fill:
// one that a sound peer can mean.
func (m *message) failure() nd.Status {
	if s := nd.Status(m.address); s == nd.BufferOverflow {
		return s
	}
	return nd.AccessViolation
}

// serveFailure completes a receive that the sender could not fill.
func (ep *Endpoint) serveFailure(m *message, r *receive) outcome {
	status, detail := m.failure(), fmt.Sprintf(tooLong, m.total, r.capacity)
	if status == nd.AccessViolation {
		detail = fmt.Sprintf("a message of %d bytes for %s", m.total, ep.faulty(r))
	}
	ep.deliver(r, status, 0, 0)
	ep.conn.in.Advance()
	ep.terminate(ep.fail("receive", status, detail+": not delivered by the peer ("+ep.conn.peerName+")", "post receives that are large enough, with valid tokens"))
	return ready
}

// servePieceOfSend copies a part of a message from the sender's memory.
func (ep *Endpoint) servePieceOfSend(m *message, r *receive, budget *uint64) outcome {
	if m.flags&flagFirst != 0 && ep.served == 0 && ep.revoking == nil {
		ep.placed = 0
		if m.flags&flagInvalidate != 0 && !ep.mayRevoke(m, r) {
			return ready
		}
		if m.total > r.capacity {
			return ep.overflow(r, m.total)
		}
	}
	if m.size > r.capacity-min(ep.placed, r.capacity)+ep.served {
		ep.terminate(ep.lie("more than the %d bytes that it announced", m.total))
		return ready
	}
	for ep.served < m.size {
		if *budget == 0 {
			return partial
		}
		n := min(m.size-ep.served, *budget)
		ep.source = window.Operand{Token: m.local, Rights: window.Local | window.Read, Address: m.address + ep.served, Peer: &ep.conn.ref, Generation: &m.far}
		if !ep.fill(r, ep.placed, n) {
			return ep.stopped()
		}
		ep.placed += n
		ep.served += n
		*budget -= n
	}
	if m.flags&flagLast == 0 {
		return ready
	}
	return ep.endOfSend(m, r, ep.placed)
}

// servePiece runs a part of the peer's Read or Write against our memory.
func (ep *Endpoint) servePiece(m *message, budget *uint64) outcome {
	ours, far, right, farRight := &ep.sink, &ep.source, window.Write, window.Read
	if m.kind == readPiece {
		ours, far, right, farRight = &ep.source, &ep.sink, window.Read, window.Write
	}
	*ours = window.Operand{Token: m.token, Rights: window.Remote | right, Address: m.remote, Endpoint: ep.number, Generation: &m.ours}
	// The range of the request is checked as a whole before a byte of it moves.
	whole := m.size
	if m.flags&flagFirst != 0 {
		whole = max(m.size, m.total)
	}
	if ep.served == 0 && whole > min(m.size, *budget) {
		if f := ep.guard.Check(ours, whole); f != window.NoFault {
			ep.blameAccess(m, ours, whole, f)
			return ready
		}
	}
	for ep.served < m.size {
		if *budget == 0 {
			return partial
		}
		n := min(m.size-ep.served, *budget)
		ours.Address = m.remote + ep.served
		*far = window.Operand{Token: m.local, Rights: window.Local | farRight, Address: m.address + ep.served, Peer: &ep.conn.ref, Generation: &m.far}
		_, sinkFault, sourceFault := ep.guard.Copy(&ep.sink, &ep.source, n)
		switch f := sinkFault | sourceFault; f {
		case window.NoFault:
		case window.FaultDisconnected:
			return waits
		default:
			bad := &ep.sink
			if sinkFault == window.NoFault {
				bad = &ep.source
			}
			ep.blameAccess(m, bad, n, f)
			return ready
		}
		ep.served += n
		*budget -= n
	}
	return ready
}

// serveWrite runs a Write whose data came within its slot.
func (ep *Endpoint) serveWrite(m *message) outcome {
	ep.sink = window.Operand{Token: m.token, Rights: window.Remote | window.Write, Address: m.address, Endpoint: ep.number}
	ep.source = window.Operand{Mem: m.payload[:m.length]}
	n := uint64(m.length)
	if _, f, _ := ep.guard.Copy(&ep.sink, &ep.source, n); f != window.NoFault {
		ep.blameAccess(m, &ep.sink, n, f)
	}
	return ready
}

// blameAccess fails a one-sided request of the peer. Here it makes no
// completion, only the end of the connection.
func (ep *Endpoint) blameAccess(m *message, refused *window.Operand, n uint64, f window.Fault) {
	ep.blame(nd.AccessViolation, ep.fail("serve", nd.ConnectionAborted,
		fmt.Sprintf("the peer (%s) was refused a %s of %s: %v", ep.conn.peerName, m.verb(), ep.granting(refused, n), f), ""))
}
