package endpoint

import (
	"time"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// execute carries on with a request whose turn it is.
func (ep *Endpoint) execute(r *request, budget *uint64) outcome {
	if r.flags.Has(nd.ReadFence) && ep.conn.hasReadsInFlight(1) {
		return waits
	}
	if r.draining {
		return ep.executeInvalidate(r)
	}
	switch r.kind {
	case nd.RequestBind, nd.RequestFastRegister:
		return ep.executeBind(r)
	case nd.RequestInvalidate:
		return ep.executeInvalidate(r)
	case nd.RequestSend:
		return ep.executeSend(r, budget)
	}
	if r.kind == nd.RequestRead && ep.readLimit == 0 {
		return ep.reject(r, nd.InvalidDeviceRequest, "the connection was made with an outbound read limit of 0")
	}
	if r.total == 0 {
		r.finish(nd.Success) // an empty Read or Write asks only whether the connection lives
		return ready
	}
	if r.flags.Has(nd.ReadLocalInvalidate) && r.loan == nil && !ep.findSinkRegion(r) {
		return ready
	}
	if !r.byRing && r.moved == 0 {
		r.byRing = ep.provider.options.Executor == Target || ep.conn.hasUnsettled()
	}
	if r.byRing {
		return ep.handOver(r, budget)
	}
	return ep.transfer(r, budget)
}

func (ep *Endpoint) executeBind(r *request) outcome {
	b := r.binding
	r.binding = nil
	if !b.Apply() {
		return ep.reject(r, nd.InvalidDeviceRequest, "the %s already, or closed; invalidate it first", describe(r.loan))
	}
	ep.bound.add(r.loan)
	r.finish(nd.Success)
	return ready
}

func (ep *Endpoint) executeInvalidate(r *request) outcome {
	if !r.draining {
		if _, region := r.loan.(*window.Region); region && ep.conn.hasUnacknowledged() {
			return waits // the peer has yet to run requests that may name the region's local token
		}
		token, ok := r.loan.Invalidate(ep.number)
		if !ok {
			return ep.reject(r, nd.InvalidDeviceRequest, "it is not so that the %s on this endpoint, with no window using it", describe(r.loan))
		}
		ep.bound.remove(r.loan)
		r.draining, r.drain = true, token
	}
	if !r.loan.Drained(r.drain) {
		return waits
	}
	ep.invalidated(r)
	return ready
}

func (ep *Endpoint) invalidated(r *request) {
	r.loan.Release()
	r.draining = false
	r.finish(nd.Success)
}

// own names a part of our memory in ep.sink or ep.source.
func own(ref *window.Operand, e entry, rights window.Rights) {
	*ref = window.Operand{Token: e.token, Rights: window.Local | rights, Address: e.address}
}

// transfer runs a Read or a Write here: it copies between our memory and the
// peer's, which must lie in the arena.
func (ep *Endpoint) transfer(r *request, budget *uint64) outcome {
	write := r.kind == nd.RequestWrite
	ours, far, right := &ep.source, &ep.sink, window.Write
	if !write {
		ours, far, right = &ep.sink, &ep.source, window.Read
	}
	*far = window.Operand{Token: r.token, Rights: window.Remote | right, Peer: &ep.conn.ref, Generation: &r.far}
	if r.moved == 0 && (len(r.entries) > 1 || r.total > *budget) {
		// The range is checked as a whole before a byte of it moves.
		far.Address = r.remote
		switch f := ep.guard.Check(far, r.total); f {
		case window.NoFault, window.FaultUnreachable:
		case window.FaultDisconnected:
			return waits
		default:
			return ep.refused(r, f)
		}
	}
	for r.moved < r.total {
		if *budget == 0 {
			return partial
		}
		e := cut(r.entries, r.moved)
		n := min(uint64(e.length), *budget)
		if write {
			r.name(ours, e, window.Read)
		} else {
			r.name(ours, e, window.Write)
		}
		far.Address = r.remote + r.moved
		_, sinkFault, sourceFault := ep.guard.Copy(&ep.sink, &ep.source, n)
		farFault, ownFault := sinkFault, sourceFault
		if !write {
			farFault, ownFault = sourceFault, sinkFault
		}
		switch {
		case farFault == window.FaultDisconnected:
			return waits // the next look at the connection sees it too
		case farFault == window.FaultUnreachable && r.moved == 0:
			r.byRing = true
			return ep.handOver(r, budget)
		case farFault != window.NoFault:
			return ep.refused(r, farFault)
		case ownFault != window.NoFault:
			return ep.ownFault(r, e, ownFault)
		}
		r.moved += n
		*budget -= n
	}
	r.finish(nd.Success)
	return ready
}

func (ep *Endpoint) refused(r *request, f window.Fault) outcome {
	return ep.reject(r, nd.AccessViolation, "%s: %v", ep.asked(r), f)
}

func (ep *Endpoint) ownFault(r *request, e entry, f window.Fault) outcome {
	return ep.reject(r, nd.AccessViolation, "scatter/gather entry of %s: %v", ep.ownEntry(e), f)
}

// push publishes a message that belongs to r; false means that the ring is
// full, and that the peer will ring when it is not.
func (ep *Endpoint) push(r *request, slot *shm.Slot) bool {
	c := ep.conn
	c.credit.endRow(c.out.Pushed())
	index, ok := c.out.Push(slot)
	if !ok {
		if ep.stall(); c.out.FreeSlots() == 0 {
			return false
		}
		index, _ = c.out.Push(slot)
	}
	c.credit.add(c.out.Pushed())
	ep.unstall()
	if r.end == 0 {
		r.first = index
	}
	r.end = index + 1
	if r.awaited {
		c.credit.awaited = r.end
	}
	return true
}

// stall asks the peer to ring when it has made room or posted a receive, if
// somebody of this process is about to sleep: else it will be seen. The caller
// looks once more afterwards.
func (ep *Endpoint) stall() {
	if !ep.stalled && ep.provider.hasArmedDoorbell() {
		ep.stalled = true
		ep.half.stalled.Swap(1) // ORDER stalled: pairs with the loads in Endpoint.show and Endpoint.release
		asym.HeavyGlobal()      // for peers whose stores are no barriers; see shm.Producer.Relax
	}
}

func (ep *Endpoint) unstall() {
	if ep.stalled {
		ep.stalled = false
		ep.half.stalled.Store(0)
	}
}

// executeSend hands a message to the peer's oldest receive.
func (ep *Endpoint) executeSend(r *request, budget *uint64) outcome {
	c := ep.conn
	if !r.started && c.peerHasSRQ {
		// Whether there is a receive, and when, only the peer knows. It lets the
		// message wait in the ring, without limit.
		r.started, r.byRing, r.awaited = true, true, true
	}
	if !r.started {
		if !c.hasReceive() {
			if ep.stall(); !c.hasReceive() {
				return ep.awaitReceive(r)
			}
		}
		ep.unstall()
		r.started = true
		// It must not overtake what the peer has yet to place: an earlier message or Write may
		// be for the same bytes, or be refused.
		r.byRing = r.invalidate || ep.provider.options.Executor == Target || c.hasUnsettled()
		if r.total > inlinePayload && !r.byRing {
			ep.farEntries, ep.farCapacity = c.nextReceive(&ep.receivedEntries)
			if r.total > ep.farCapacity {
				r.started = false // the ring may have no room to say so yet
				if e, f := ep.checkOwn(r); f != window.NoFault {
					return ep.ownFault(r, e, f) // our own mistake comes first
				}
				return ep.receiveFailed(r, nd.BufferOverflow, tooLong, r.total, ep.farCapacity)
			}
			r.byRing = ep.partlyPrivate(ep.farEntries)
		}
	}
	switch {
	case r.total <= inlinePayload:
		return ep.sendSmall(r)
	case r.byRing:
		return ep.handOver(r, budget)
	}
	return ep.place(r, budget)
}

// checkOwn looks for an entry of r that may not be read.
func (ep *Endpoint) checkOwn(r *request) (entry, window.Fault) {
	for _, e := range r.entries {
		r.name(&ep.source, e, window.Read)
		if f := ep.guard.Check(&ep.source, uint64(e.length)); f != window.NoFault {
			return e, f
		}
	}
	return entry{}, window.NoFault
}

// partlyPrivate tells whether only the peer can fill some entry of its receive.
// The first entry alone is left to the copy itself.
func (ep *Endpoint) partlyPrivate(entries []entry) bool {
	for i := 1; i < len(entries); i++ {
		e := entries[i]
		ep.sink = window.Operand{Token: e.token, Rights: window.Local | window.Write, Address: e.address, Peer: &ep.conn.ref}
		if ep.guard.Check(&ep.sink, uint64(e.length)) == window.FaultUnreachable {
			return true
		}
	}
	return false
}

// awaitReceive gives the peer time to post a receive.
func (ep *Endpoint) awaitReceive(r *request) outcome {
	limit := ep.provider.options.ReceiveTimeout
	switch limit {
	case NoLimit:
		return waits
	case AtOnce:
		return ep.reject(r, nd.IOTimeout, "the peer (%s) has no receive posted", ep.conn.peerName)
	}
	now := time.Now()
	if r.deadline.IsZero() {
		r.deadline = now.Add(limit)
	}
	if now.Before(r.deadline) {
		return waits
	}
	return ep.reject(r, nd.IOTimeout, "the peer (%s) has posted no receive for %v", ep.conn.peerName, limit)
}

// sendSmall puts a whole message into one slot.
func (ep *Endpoint) sendSmall(r *request) outcome {
	c := ep.conn
	if c.out.FreeSlots() == 0 {
		if ep.stall(); c.out.FreeSlots() == 0 {
			return waits
		}
	}
	payload, ok := ep.gather(r)
	if !ok {
		return ready
	}
	flags := flagFirst | flagLast | r.marks()
	// Without a receive that takes any small message for sure, only the peer
	// can say whether this one was delivered.
	if r.invalidate || r.awaited || !c.credit.fits(c.out.Pushed(), r.total) {
		r.awaited = true
		flags |= flagAwaited
	}
	ep.slot[0] = head(sendInline, flags, int(r.total), r.token)
	putPayload(&ep.slot, 1, payload)
	ep.push(r, &ep.slot)
	c.credit.inSlot = r.end
	c.credit.takeReceive()
	c.peer.Ring()
	if !r.awaited {
		ep.published(r)
	}
	return ready
}

// gather collects a small message; false means that r has been rejected.
func (ep *Endpoint) gather(r *request) (payload []byte, ok bool) {
	if r.flags.Has(nd.Inline) {
		return r.captured, true
	}
	payload = ep.scratch[:r.total]
	to := payload
	for _, e := range r.entries {
		own(&ep.source, e, window.Read)
		ep.sink = window.Operand{Mem: to[:e.length]}
		if _, _, f := ep.guard.Copy(&ep.sink, &ep.source, uint64(e.length)); f != window.NoFault {
			ep.ownFault(r, e, f)
			return nil, false
		}
		to = to[e.length:]
	}
	return payload, true
}

// place copies a message straight into the peer's posted receive, and then
// tells the peer.
func (ep *Endpoint) place(r *request, budget *uint64) outcome {
	c := ep.conn
	for r.moved < r.total {
		if *budget == 0 {
			return partial
		}
		from, to := cut(r.entries, r.moved), cut(ep.farEntries, r.moved)
		n := min(uint64(from.length), uint64(to.length), *budget)
		if n == 0 {
			return ep.receiveFailed(r, nd.AccessViolation, "the entries of the posted receive do not add up to its %d bytes", ep.farCapacity)
		}
		r.name(&ep.source, from, window.Read)
		ep.sink = window.Operand{Token: to.token, Rights: window.Local | window.Write, Address: to.address, Peer: &c.ref, Generation: &r.far}
		_, farFault, ownFault := ep.guard.Copy(&ep.sink, &ep.source, n)
		switch {
		case farFault == window.FaultDisconnected:
			return waits
		case farFault == window.FaultUnreachable && r.moved == 0:
			r.byRing = true
			return ep.handOver(r, budget)
		case farFault != window.NoFault:
			return ep.receiveFailed(r, nd.AccessViolation, "the posted receive's entry of %s: %v", ep.granting(&ep.sink, uint64(to.length)), farFault)
		case ownFault != window.NoFault:
			return ep.ownFault(r, from, ownFault)
		}
		r.moved += n
		*budget -= n
	}
	ep.slot = shm.Slot{head(sendPlaced, flagFirst|flagLast|r.marks(), 0, 0), r.total}
	if !ep.push(r, &ep.slot) {
		return waits
	}
	c.credit.takeReceive()
	c.peer.Ring()
	ep.published(r)
	return ready
}

// published completes a Send that lies in the ring, if the peer is sure to
// take it from there: whoever ends a connection changes its state, and then
// looks at the ring for the last time. If it has been changed, only the peer
// knows.
func (ep *Endpoint) published(r *request) {
	if ep.conn.ref.Connected() { // ORDER conn-state: after the push; pairs with the store before the last read of the ring in releasePeerState
		r.finish(nd.Success)
		return
	}
	r.awaited = true
	ep.conn.credit.awaited = r.end
}

// receiveFailed tells the peer that its receive has failed, and fails the Send.
func (ep *Endpoint) receiveFailed(r *request, s nd.Status, format string, args ...any) outcome {
	ep.slot = shm.Slot{head(sendFailed, flagFirst|flagLast, 0, 0), uint64(s), r.total}
	if !ep.push(r, &ep.slot) {
		return waits
	}
	ep.conn.credit.takeReceive()
	ep.half.receiveStatus.Store(uint32(s)) // ORDER reason: before the swap in move; pairs with the load in endedByPeer
	return ep.reject(r, nd.RemoteError, format, args...)
}
