package endpoint

import (
	"context"
	"net/netip"
	"time"

	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// faultInCall asks the fault plan about a call that has not begun, and acts. In errors, op names the
// call and object the object. It returns the error of the call, or nil.
func (p *Provider) faultInCall(ctx context.Context, op, object string, e faultplan.Event) error {
	if p.faults == nil {
		return nil
	}
	e.Phase = faultplan.Post
	f, ok := p.faults.Next(e)
	if !ok {
		return nil
	}
	fail := func(s nd.Status, err error) error {
		return &nd.OpError{Op: op, Object: object, Status: s, Detail: f.String(), Err: err, Next: atFaultRule}
	}
	switch faultplan.Action(f.Action) {
	case faultplan.Fail:
		return fail(nd.Status(f.Status), nil)
	case faultplan.Refuse:
		return fail(nd.ConnectionRefused, nil)
	case faultplan.Exhaust:
		return fail(nd.NoMemory, &shm.NoMemoryError{Requested: e.Size, Limit: f.String(), Hint: "remove the rule"})
	case faultplan.Delay:
		select {
		case <-time.After(time.Duration(f.Delay)):
		case <-ctx.Done():
			return nd.CanceledError(ctx, op, object)
		}
	default:
		signalSelf(f)
	}
	return nil
}

// faultInCall is that of the provider, for the program's objects only.
func (a *adapter) faultInCall(ctx context.Context, op, object string, e faultplan.Event) error {
	if a.isHidden {
		return nil
	}
	return a.provider.faultInCall(ctx, op, object, e)
}

// faultInCreation is faultInCall for a call of the adapter that creates an object of size bytes, or the endpoint with a number.
func (a *adapter) faultInCreation(ctx context.Context, op string, o faultplan.Operation, size, endpoint uint64) error {
	return a.faultInCall(ctx, op, "adapter", faultplan.Event{Operation: o, Peer: shm.NoRank, Size: size, Endpoint: endpoint})
}

// faultInConnection is faultInCall for a call of a connector. ep is the endpoint, or nil.
func (c *connector) faultInConnection(ctx context.Context, op string, o faultplan.Operation, peer int, ep *queuePair) error {
	e := faultplan.Event{Operation: o, Peer: peer}
	if ep != nil {
		e.Endpoint = ep.number
	}
	return c.adapter.faultInCall(ctx, op, "connector", e)
}

// faultInConnect is faultInConnection for Connect. After an error that unbinds the connector, it does so.
func (c *connector) faultInConnect(ctx context.Context, op string, endpoint nd.Endpoint, addr netip.AddrPort) error {
	p := c.adapter.provider
	if p.faults == nil {
		return nil
	}
	peer := shm.NoRank
	if live, isKnown, err := p.peerAt(addr.Addr()); isKnown && err == nil {
		peer = p.arena.RankOf(live.ID())
	}
	ep, _ := endpoint.(*queuePair)
	err := c.faultInConnection(ctx, op, faultplan.Connect, peer, ep)
	switch nd.StatusOf(err) {
	case nd.ConnectionRefused, nd.NetworkUnreachable, nd.HostUnreachable, nd.IOTimeout:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.phase == phaseNew {
			c.releaseAddress()
		}
	}
	return err
}

// faultInPhase is faultInConnection for a call about the connection of c, which must be in a phase. ep is nil if c
// has its endpoint already. If the status is one after which the connector cannot be used again, end ends the connection.
func (c *connector) faultInPhase(ctx context.Context, op string, o faultplan.Operation, want phase, ep *queuePair, end func()) error {
	if c.adapter.provider.faults == nil {
		return nil
	}
	c.mu.Lock()
	peer, fits := shm.NoRank, c.phase == want && !c.closed
	if ep == nil {
		ep = c.ep
	}
	if fits {
		peer = c.adapter.provider.arena.RankOf(c.conn.peer.ID())
	}
	c.mu.Unlock()
	if !fits {
		return nil // the call fails by itself
	}
	err := c.faultInConnection(ctx, op, o, peer, ep)
	switch nd.StatusOf(err) {
	case nd.ConnectionAborted, nd.ConnectionRefused, nd.IOTimeout:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.phase == want && !c.closed {
			end()
		}
	}
	return err
}

// faultRefuses asks the plan about a connection request that has arrived, and reports whether it is refused.
func (p *Provider) faultRefuses(c *connection) bool {
	if p.faults == nil {
		return false
	}
	f, ok := p.faults.Next(faultplan.Event{Operation: faultplan.ConnectionRequest, Phase: faultplan.Post, Peer: p.arena.RankOf(c.peer.ID())})
	if ok {
		signalSelf(f)
	}
	return ok && f.Action == uint32(faultplan.Refuse)
}

// abortForFault aborts the connection because a fault rule ends the graceful disconnect.
func (ep *queuePair) abortForFault(op string) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.terminate(ep.opError(op, nd.ConnectionAborted, "a fault rule has ended the disconnect", atFaultRule))
}
