package endpoint

// TWIN c/src/endpoint/cm_teardown.c.

import (
	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// terminate ends the connection because of an error of this side. The result of the failed
// operation has been added already; everything else outstanding is canceled. The caller holds
// ep.mu, as for all functions in this file without a lock of their own.
func (ep *queuePair) terminate(cause error) {
	switch ep.state() {
	case cm.QPFailed, cm.QPClosed:
		return
	}
	was := ep.state()
	ep.setCause(cause)
	reason := ep.life.cause
	if was == cm.QPPeerDisconnected || was == cm.QPDisconnecting {
		reason = cause // the first one is the disconnect
	}
	ep.on(cm.Aborts)
	ep.logOwnEnd(was, reason)
	if c := ep.conn; c != nil && c.attached {
		ep.publishReason(reason)
		if c.record.Side == cm.Passive || !c.record.Move(cm.Withdraws) {
			c.record.Move(cm.Aborts)
		}
	}
	ep.tearDown()
}

// peerAborted ends the connection because the other side has ended it or is dead.
func (ep *queuePair) peerAborted() {
	c, was := ep.conn, ep.state()
	inOrder := c.closedInOrder() && !ep.awaitsPeer()
	ep.on(cm.Aborts)
	if c.record.IsPeerGone() || c.fault().entry == 0 { // otherwise a request of this side was the cause
		ep.provider.member.RecordLostPeer(c.record.Peer.ID())
	}
	ep.setCauseFromPeer()
	if inOrder {
		ep.logPeerClosed(was)
	} else {
		ep.logPeerFailed()
	}
	ep.tearDown()
}

// awaitsPeer reports whether a request is outstanding whose completion the peer has not confirmed.
func (ep *queuePair) awaitsPeer() bool {
	for number := ep.sq.completed; number != ep.sq.posted; number++ {
		r := ep.requestAt(number)
		if r.State != mode.Finished && (number >= ep.req.next || !ep.conn.out.IsReleased(r.EndEntry)) {
			return true
		}
	}
	return false
}

// completeBlamed completes the request that failed at the peer with its status, after those
// before it have been completed. It does nothing after a failure at this side, because no success follows one.
func (ep *queuePair) completeBlamed() {
	if ep.life.requestFailed {
		return
	}
	c := ep.conn
	for ep.sq.completed != ep.sq.posted {
		r := ep.requestAt(ep.sq.completed)
		isExecuted := ep.sq.completed != ep.req.next && r.State != mode.SetAside
		switch {
		case r.State == mode.Finished:
		case !isExecuted && (!r.needsAck || r.EndEntry == 0):
			return
		case isExecuted && c.out.IsReleased(r.EndEntry):
			ep.finishReleased(r)
		case c.fault().blames(r):
			r.Finish(c.fault().status)
			ep.counters.accessRefused++
		default:
			return
		}
		ep.completeRequest(r)
		ep.sq.completed++
		ep.req.next = max(ep.req.next, ep.sq.completed)
		if r.Status != nd.Success {
			return
		}
	}
}

// deliverRemaining delivers messages in the ring that their sender has completed already. There
// are none if the receives are in a shared queue, or a relay takes the messages.
func (ep *queuePair) deliverRemaining() {
	if ep.srq != nil || ep.forwards() {
		return
	}
	c := ep.conn
	entry := &ep.resp.entry
	for !c.inboundFailed && ep.rq.completed != ep.rq.posted {
		slot := c.in.Front()
		if slot == nil || !ep.decodeEntry(slot) {
			return
		}
		r := ep.receiveAt(ep.rq.completed)
		switch {
		case entry.Kind == wire.SendPlaced:
			ep.completeReceive(r, nd.Success, min(entry.RequestLength, r.capacity), 0)
		case entry.Kind == wire.WritePlaced && entry.Flags&wire.FlagAckRequest == 0:
			ep.completeReceive(r, nd.Success, min(entry.RequestLength, maxTransfer), 0)
		case entry.Kind == wire.SendFailed:
			ep.completeReceive(r, entry.ReceiveStatus(), 0, 0)
		case entry.Kind == wire.SendInEntry && entry.Flags&wire.FlagAckRequest == 0 && uint64(entry.PayloadLength) <= r.capacity:
			ep.source = window.Operand{Mem: entry.Payload[:]}
			if !ep.fillReceive(r, 0, uint64(entry.PayloadLength)) {
				return
			}
			ep.completeReceive(r, nd.Success, uint64(entry.PayloadLength), 0)
		default:
			return
		}
		c.in.Advance()
	}
}

// tearDown revokes the windows and cancels what is outstanding. If the peer is in the middle of
// a copy, it does so when the copy has ended. The state has changed before, and both sides see
// that, so no other copy can begin.
func (ep *queuePair) tearDown() {
	if ep.srq != nil {
		ep.srq.removeWaiter(ep)
	}
	ep.settleArrived() // completeBlamed completes those that have arrived
	ep.revokeBound()
	if ep.finishTeardown() {
		return
	}
	ep.pendingDrains.Add(1)
	ep.provider.deferWork(func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if !ep.finishTeardown() {
			return false
		}
		ep.pendingDrains.Add(-1)
		ep.provider.waiters.Wake()
		return true
	})
}

// finishTeardown delivers what the peer has completed and cancels the rest. A result gives its
// buffers back to the program, so the peer must have ended its copies. It returns false if the
// peer has not.
func (ep *queuePair) finishTeardown() bool {
	if ep.life.teardown == flushed { // a graceful disconnect that now ends by force
		ep.detachIfDone()
		return true
	}
	if !ep.leavePeerState() || !ep.flushRequests() {
		return false
	}
	ep.life.teardown = flushed
	ep.detachIfDone()
	return true
}

// leavePeerState reads the peer's shared state for the last time and acts on it. The state's
// memory may be freed afterwards. It returns false if the peer is in the middle of a copy.
func (ep *queuePair) leavePeerState() bool {
	if ep.life.teardown != usesPeerState {
		return true
	}
	// Also before Accept has returned: the active side may be connected already. If it never was, its endpoint may be in use for another
	// connection by now, with the same ring.
	if c := ep.conn; c != nil && c.attached && (c.record.Side == cm.Active || c.wasEstablished()) {
		if !c.record.IsPeerGone() && c.peerQP.Hazard.Load() != 0 { // ORDER hazard, hazard-clear: after the change of state; pairs with Guard.publishHazard and then FarEnd.IsOpen, and with Guard.clearHazard
			return false
		}
		asym.HeavyGlobal() // ORDER conn-state: after the change of state; a Send that counted as delivered is in the ring by now
		ep.deliverRemaining()
		if ep.state() == cm.QPFailed {
			ep.completeBlamed()
		}
	}
	failpoint.Reach(failpoint.LastEntriesRead)
	ep.life.teardown = leftPeerState
	ep.cancelReceives()
	if ep.resp.invalidating != nil {
		ep.endInvalidationWhenDrained(ep.resp.invalidating)
		ep.resp.invalidating = nil
	}
	return true
}

// detachIfDone ends the use of the peer's memory when nothing in its ring is left to deliver and
// no graceful disconnect is in progress.
func (ep *queuePair) detachIfDone() {
	if c := ep.conn; c != nil && c.attached && ep.life.teardown == flushed && ep.state() != cm.QPDisconnecting {
		c.detach()
	}
}

// flushRequests cancels the initiator queue. An Invalidate that has already revoked its token
// must succeed, but only when the token is drained, and later requests wait for that. It returns
// false if that is not the case yet.
func (ep *queuePair) flushRequests() bool {
	for ep.sq.completed != ep.sq.posted {
		r := ep.requestAt(ep.sq.completed)
		switch {
		case r.State != mode.Draining:
			r.cancel()
		case !r.Object.EndInvalidation():
			return false
		default:
			ep.completeInvalidate(r)
		}
		ep.sq.completed++
		ep.completeRequest(r)
	}
	ep.req.next, ep.req.submitted, ep.req.hasFailed = ep.sq.posted, ep.sq.posted, false
	ep.req.aside = ep.req.aside[:0]
	if ep.hook != nil {
		ep.hook.End()
	}
	return true
}

func (ep *queuePair) cancelReceives() {
	for ep.rq.completed != ep.rq.posted {
		ep.completeReceive(ep.receiveAt(ep.rq.completed), nd.Canceled, 0, 0)
	}
}

// revokeBound revokes all windows and regions that were bound or registered on this endpoint,
// because no further request can invalidate them. ORDER end-revoke: the state of the connection, or Disconnected, has
// changed before, so that a peer that meets a revoked token finds the end, too; pairs with window.Operand.refused.
func (ep *queuePair) revokeBound() {
	ep.bound.Clear(func(object *window.Invalidatable) {
		if _, done, ok := object.InvalidateAtEnd(ep.number); ok && !done {
			ep.endInvalidationWhenDrained(object)
		}
	})
}

func (ep *queuePair) endInvalidationWhenDrained(object *window.Invalidatable) {
	ep.pendingDrains.Add(1)
	ep.provider.runOrDefer(func() bool {
		if !object.EndInvalidation() {
			return false
		}
		ep.pendingDrains.Add(-1)
		ep.provider.waiters.Wake()
		return true
	})
}

// handlePeerDisconnect handles the peer's graceful disconnect. It reports whether the state has
// changed.
func (ep *queuePair) handlePeerDisconnect() bool {
	switch ep.state() {
	case cm.QPConnected:
		ep.setCause(ep.opError("serve", nd.ConnectionDisconnected, "the peer ("+ep.conn.peerName+") has disconnected", "call Connector.Disconnect too"))
		ep.provider.member.RecordLostPeer(ep.conn.record.Peer.ID())
		ep.on(cm.PeerDisconnects)
		ep.logDisconnected(byPeer)
		if ep.srq != nil {
			ep.srq.removeWaiter(ep)
		}
		return true
	case cm.QPDisconnecting:
		ep.completeDisconnect()
		return true
	}
	return false
}

// completeDisconnect ends a connection that both sides have disconnected.
func (ep *queuePair) completeDisconnect() {
	ep.life.bothDisconnected = true
	ep.on(cm.BothDisconnect)
	ep.detachIfDone()
}
