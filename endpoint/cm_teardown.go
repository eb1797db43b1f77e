package endpoint

import (
	"context"
	"errors"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// terminate ends the connection because of an error of this side, which has
// been completed already. Everything else that is outstanding is canceled.
// The caller holds ep.mu, as for all functions here.
func (ep *Endpoint) terminate(cause error) {
	switch ep.state() {
	case failed, closed:
		return
	}
	ep.because(cause)
	ep.setState(failed)
	if c := ep.conn; c != nil && c.joined {
		ep.leaveReason()
		if c.side == passive || !c.move(connWithdrawn, connAccepted) {
			c.move(connAborted, connEstablished, connAccepted)
		}
	}
	ep.windDown()
}

// because notes why the endpoint left the connected state. The first reason
// stays.
func (ep *Endpoint) because(err error) {
	if ep.cause == nil {
		ep.cause = err
	}
}

// aborted ends the connection because the other side did, or is dead.
func (ep *Endpoint) aborted() {
	c := ep.conn
	ep.setState(failed)
	if c.gone() || c.fault().number == 0 { // else a request of ours was to blame
		ep.provider.member.Blame(c.peer.ID())
	}
	ep.endedByPeer()
	ep.windDown()
}

// takeBlame gives the request that failed its status, after those before it
// have been completed. It failed at the peer, or here, but waited for those
// before it.
func (ep *Endpoint) takeBlame() {
	c := ep.conn
	for ep.done != ep.tail {
		r := &ep.requests[ep.done&uint64(len(ep.requests)-1)]
		switch {
		case r.finished:
		case ep.done == ep.next && (!r.awaited || r.end == 0):
			return
		case ep.done != ep.next && int64(c.out.Consumed()-r.end) >= 0:
			r.finish(nd.Success)
		case c.fault().blames(r):
			r.finish(c.fault().status)
		default:
			return
		}
		ep.complete(r)
		ep.done++
		ep.next = max(ep.next, ep.done)
		if r.status != nd.Success {
			return
		}
	}
}

// deliverRest takes from the ring what its sender has completed already, which
// is nothing if the receives are a shared queue's.
func (ep *Endpoint) deliverRest() {
	if ep.shared != nil {
		return
	}
	c := ep.conn
	m := &ep.message
	for !c.refused && ep.delivered != ep.posted && c.in.Peek(&ep.arrived) && m.decode(&ep.arrived) {
		r := &ep.receives[ep.delivered&uint64(len(ep.receives)-1)]
		switch {
		case m.kind == sendPlaced:
			ep.deliver(r, nd.Success, min(m.address, r.capacity), 0)
		case m.kind == sendFailed:
			ep.deliver(r, m.failure(), 0, 0)
		case m.kind == sendInline && m.flags&flagAwaited == 0 && uint64(m.length) <= r.capacity:
			ep.source = window.Ref{Mem: m.payload[:]}
			if !ep.fill(r, 0, uint64(m.length)) {
				return
			}
			ep.deliver(r, nd.Success, uint64(m.length), 0)
		default:
			return
		}
		c.in.Advance()
	}
}

// windDown takes the windows away and cancels what is outstanding, at once if
// the peer is not in the middle of a copy, else when it has ended. The state
// has been changed, for both sides to see, so no other copy can begin.
func (ep *Endpoint) windDown() {
	if ep.shared != nil {
		ep.shared.abandon(ep)
	}
	ep.unbind()
	if ep.settle() {
		return
	}
	ep.drains.Add(1)
	ep.provider.postpone(func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if !ep.settle() {
			return false
		}
		ep.drains.Add(-1)
		ep.provider.sleep.wake()
		return true
	})
}

// settle delivers what the peer has completed, and cancels the rest: a result
// gives its buffers back to the program, so the peer must have left them alone.
// false means that it has not yet.
func (ep *Endpoint) settle() bool {
	if ep.settled { // by a graceful end that now ends by force
		ep.letGo()
		return true
	}
	if !ep.sweep() || !ep.flushRequests() {
		return false
	}
	ep.settled = true
	ep.letGo()
	return true
}

// sweep is the last look at the peer's half, and what follows from it at once.
// From then on the half may be gone.
func (ep *Endpoint) sweep() bool {
	if ep.swept {
		return true
	}
	if c := ep.conn; c != nil && c.joined && ep.wasUp {
		if !c.gone() && c.far.hazard.Load() != 0 { // ORDER hazard, hazard-clear: after the change of state; pairs with Guard.publish, then the look at the link, and with Guard.clear
			return false
		}
		asym.HeavyForAll() // ORDER conn-state: after the change of state; a Send that counted as delivered is in the ring by now
		ep.deliverRest()
		if ep.state() == failed {
			ep.takeBlame()
		}
	}
	ep.swept = true
	ep.cancelReceives()
	if ep.revoking != nil {
		ep.releaseWhenDrained(ep.revoking, ep.revokedToken)
		ep.revoking = nil
	}
	return true
}

// bereaved acts upon the peer's death before its memory becomes somebody
// else's.
func (ep *Endpoint) bereaved() {
	switch ep.state() {
	case connecting, answered:
		if c := ep.conn; c != nil && c.joined {
			ep.aborted()
		}
	case failed, closing, closed:
		ep.settle()
	}
	ep.step()
}

// letGo ends our use of the peer's memory, when nothing is left to be taken
// from its ring and no graceful end is being waited for.
func (ep *Endpoint) letGo() {
	if c := ep.conn; c != nil && c.joined && ep.settled && ep.state() != closing {
		c.detach()
	}
}

// flushRequests cancels the initiator queue. An Invalidate that has revoked its
// token keeps its promise first: it succeeds when the token is drained, and what
// follows it waits for that. false means that it does.
func (ep *Endpoint) flushRequests() bool {
	for ep.done != ep.tail {
		r := &ep.requests[ep.done&uint64(len(ep.requests)-1)]
		switch {
		case !r.draining:
			r.cancel()
		case !r.loan.Drained(r.drain):
			return false
		default:
			ep.invalidated(r)
		}
		ep.done++
		ep.complete(r)
	}
	ep.next, ep.ready, ep.stuck = ep.tail, ep.tail, false
	return true
}

func (ep *Endpoint) cancelReceives() {
	for ep.delivered != ep.posted {
		ep.deliver(&ep.receives[ep.delivered&uint64(len(ep.receives)-1)], nd.Canceled, 0, 0)
	}
}

// unbind takes back all that was bound or registered on this endpoint: nobody
// could post their invalidation any more.
func (ep *Endpoint) unbind() {
	ep.bound.takeAll(func(l window.Loan) {
		if token, ok := l.Expire(ep.number); ok {
			ep.releaseWhenDrained(l, token)
		}
	})
}

func (ep *Endpoint) releaseWhenDrained(l window.Loan, token nd.Token) {
	ep.drains.Add(1)
	ep.provider.later(func() bool {
		if !l.Drained(token) {
			return false
		}
		l.Release()
		ep.drains.Add(-1)
		ep.provider.sleep.wake()
		return true
	})
}

// peerLeft notes the peer's graceful disconnect.
func (ep *Endpoint) peerLeft() bool {
	switch ep.state() {
	case connected:
		ep.because(ep.fail("serve", nd.ConnectionDisconnected, "the peer ("+ep.conn.name+") has disconnected", "call Connector.Disconnect too"))
		ep.provider.member.Blame(ep.conn.peer.ID())
		ep.setState(peerGone)
		if ep.shared != nil {
			ep.shared.abandon(ep)
		}
		return true
	case closing:
		ep.part()
		return true
	}
	return false
}

// part ends the connection in good order.
func (ep *Endpoint) part() {
	ep.parted = true
	ep.setState(closed)
	ep.letGo()
}

// Flush is FlushContext without a limit.
func (ep *Endpoint) Flush() error { return ep.FlushContext(context.Background()) }

// FlushContext cancels everything outstanding; the endpoint has failed then. It
// waits for a copy of the peer that is under way. If ctx ends first, the endpoint
// has failed all the same, and the results follow when the copy has ended.
func (ep *Endpoint) FlushContext(ctx context.Context) error {
	const op = "flush"
	ep.mu.Lock()
	if ep.state() != closing { // else it is being flushed already, in good order
		ep.terminate(ep.fail(op, nd.Canceled, "the endpoint was flushed", ""))
	}
	ep.mu.Unlock()
	p := ep.provider
	err := p.wait(ctx, testimony.Call{Op: op, Object: ep.String()}, p.doChores, func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		return ep.settled
	})
	return drainError(ctx, err, op, ep.String())
}

// drainError is what a call returns whose wait for a drain ended with err. A
// provider that is closed meanwhile ends the wait, and with it the drain.
func drainError(ctx context.Context, err error, op, object string) error {
	if err == nil || errors.Is(err, errClosed) {
		return nil
	}
	return canceled(ctx, err, op, object)
}

// Close releases the endpoint, and the port of the connector that connected it.
// A connected one is disconnected by force. In a goroutine that panics Close returns
// [nd.Pending] and takes effect a second later, so that the peer does not fail before the
// panic has been printed; if the process ends before that, the peer sees its death.
func (ep *Endpoint) Close() error {
	if err := ep.provider.postponed(ep.String(), ep.Close); err != nil {
		return err
	}
	if !ep.provider.sleep.begin() {
		return nil // the provider has closed it
	}
	defer ep.provider.sleep.end()
	ep.close()
	return nil
}

func (ep *Endpoint) close() {
	ep.mu.Lock()
	if ep.closedQ {
		ep.mu.Unlock()
		return
	}
	ep.closedQ = true
	ep.terminate(ep.fail("close", nd.Canceled, "the endpoint was closed", ""))
	ep.setState(closed)
	connector := ep.connector
	ep.mu.Unlock()
	if connector != nil {
		connector.endpointClosed()
	}
	ep.receiveCQ.detach(ep)
	ep.initiatorCQ.detach(ep)
	ep.provider.removeEndpoint(ep)
	ep.provider.later(ep.free)
}

// free returns the endpoint's memory once the peer has let go of it.
func (ep *Endpoint) free() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.halfOffset == 0 {
		return true
	}
	ep.guard.Disown() // the engine does not serve a closed endpoint
	if c := ep.conn; c != nil && !c.finished.Load() || ep.done != ep.tail {
		return false
	}
	heap := ep.provider.member.Heap()
	if s := &ep.stage; s.region != nil {
		local, remote, err := s.region.Revoke()
		if err == nil {
			s.local, s.remote = local, remote
		}
		if !ep.adapter.space.Drained(s.local) || !ep.adapter.space.Drained(s.remote) {
			return false
		}
		s.region.Release()
		s.region.Free()
		_ = heap.Free(s.offset)
		s.region = nil
	}
	ep.adapter.space.Unwatch(ep.hazard)
	_ = heap.Free(ep.halfOffset)
	ep.halfOffset = 0
	return true
}
