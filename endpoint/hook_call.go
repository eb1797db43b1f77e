package endpoint

// TWIN c/src/endpoint/hook_call.c.

import (
	"context"
	"net/netip"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// ask asks the hook for calls about a call that has not begun. It returns the error of the call, or nil.
func (p *Provider) ask(ctx context.Context, c mode.Call) error {
	if p.calls == nil {
		return nil
	}
	return p.calls.Before(ctx, c)
}

// ask is that of the provider, for the program's objects only.
func (a *adapter) ask(ctx context.Context, c mode.Call) error {
	if a.isHidden {
		return nil
	}
	return a.provider.ask(ctx, c)
}

// beforeCall asks about a call of the adapter that creates an object of size bytes, or the endpoint with a number.
func (a *adapter) beforeCall(ctx context.Context, op string, size, endpoint uint64) error {
	return a.ask(ctx, mode.Call{Op: op, Object: "adapter", Peer: shm.NoRank, Size: size, Endpoint: endpoint})
}

// ask asks about a call of the connector. ep is the endpoint, or nil.
func (c *connector) ask(ctx context.Context, op string, peer int, ep *queuePair) error {
	call := mode.Call{Op: op, Object: "connector", Peer: peer}
	if ep != nil {
		call.Endpoint = ep.number
	}
	return c.adapter.ask(ctx, call)
}

// beforeConnect asks about Connect. After an error that unbinds the connector, it does so.
func (c *connector) beforeConnect(ctx context.Context, op string, endpoint nd.Endpoint, addr netip.AddrPort) error {
	p := c.adapter.provider
	if p.calls == nil {
		return nil
	}
	peer := shm.NoRank
	if live, isKnown, err := p.peerAt(addr.Addr()); isKnown && err == nil {
		peer = p.arena.RankOf(live.ID())
	}
	ep, _ := endpoint.(*queuePair)
	err := c.ask(ctx, op, peer, ep)
	switch nd.StatusOf(err) {
	case nd.ConnectionRefused, nd.NetworkUnreachable, nd.HostUnreachable, nd.IOTimeout:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.phase == cm.PhaseNew {
			c.releaseAddress()
		}
	}
	return err
}

// beforeCall asks about a call for the connection of c, which must be in a phase. ep is nil if c
// has its endpoint already. If the status is one after which the connector cannot be used again, end ends the connection.
func (c *connector) beforeCall(ctx context.Context, op string, want cm.Phase, ep *queuePair, end func()) error {
	if c.adapter.provider.calls == nil {
		return nil
	}
	c.mu.Lock()
	peer, fits := shm.NoRank, c.phase == want && !c.closed
	if ep == nil {
		ep = c.ep
	}
	if fits {
		peer = c.adapter.provider.arena.RankOf(c.conn.record.Peer.ID())
	}
	c.mu.Unlock()
	if !fits {
		return nil // the call fails by itself
	}
	err := c.ask(ctx, op, peer, ep)
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

// abortDisconnect aborts the connection because the hook has ended the graceful disconnect.
func (ep *queuePair) abortDisconnect(op string) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.terminate(ep.opError(op, nd.ConnectionAborted, "a fault rule has ended the disconnect", "the fault plan asks for it: change the rule if you do not want it"))
}
