package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
)

// NotifyDisconnect returns nil when the connection has ended, for whatever
// reason.
func (c *Connector) NotifyDisconnect(ctx context.Context) error {
	const op = "notify disconnect"
	c.mu.Lock()
	ep, conn, ph, err := c.ep, c.conn, c.phase, c.usable(op)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if ph != up {
		return c.fail(op, nd.ConnectionInvalid, "never connected", "")
	}
	err = c.adapter.provider.wait(ctx, testimony.Call{Op: op, Object: "connector", Peer: conn.peer.ID()}, func() { ep.drive() }, func() bool {
		s := ep.state()
		return s == peerGone || s == failed || s == closed
	})
	if err != nil {
		return canceled(ctx, err, op, "connector")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail(op, nd.Canceled, "the connector was closed", "")
	}
	return nil
}

// Disconnect ends the connection in good order, and waits for the other side
// to do the same.
func (c *Connector) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	c.mu.Lock()
	ep, conn := c.ep, c.conn
	if err := c.usable(op); err != nil {
		c.mu.Unlock()
		return err
	}
	if c.phase != up || c.hung {
		c.mu.Unlock()
		return c.fail(op, nd.ConnectionInvalid, "not connected", "")
	}
	c.hung = true
	c.mu.Unlock()
	p := c.adapter.provider
	if !ep.hangUp() {
		return c.fail(op, nd.ConnectionAborted, "the connection had failed already", "Endpoint.Err tells why")
	}
	// Until the drains are over, a transfer of the peer may still touch our memory.
	err := p.wait(ctx, testimony.Call{Op: op, Object: "connector", Peer: conn.peer.ID()}, func() { ep.drive(); p.doChores() }, func() bool {
		return ep.state() != closing && ep.drains.Load() == 0
	})
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case err != nil:
		return canceled(ctx, err, op, "connector")
	case ep.parted: // Close may have been called since
		return nil
	case ep.late:
		return c.fail(op, nd.IOTimeout, fmt.Sprintf("the other side did not disconnect within %v", p.options.DisconnectTimeout), "both sides must call Disconnect")
	}
	return c.fail(op, nd.ConnectionAborted, "the other side ended the connection by force", "")
}

// hangUp starts a graceful end; false means that the connection has failed.
func (ep *Endpoint) hangUp() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.step()
	c := ep.conn
	switch ep.state() {
	case connected, peerGone:
	default:
		return false
	}
	ep.because(ep.fail("disconnect", nd.ConnectionDisconnected, "the connection was ended in good order", ""))
	byPeer := ep.state() == peerGone
	ep.setState(closing)
	ep.deadline = time.Now().Add(ep.provider.options.DisconnectTimeout)
	c.write(func() { c.record.left[c.side].Swap(1) }) // ORDER left: pairs with the load in Endpoint.step; ORDER hazard: then the load in settle
	c.peer.Ring()
	ep.windDown()
	if byPeer && ep.state() == closing {
		ep.part()
	}
	return ep.state() != failed
}

// endpointClosed gives up the port of a connection whose endpoint is closed.
func (c *Connector) endpointClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == up || c.phase == dead {
		c.unbind()
	}
}

// Close releases the connector. What it was doing is given up, and a
// connection that is up ends by force. In a goroutine that panics it is postponed, see
// [Endpoint.Close].
func (c *Connector) Close() error {
	p := c.adapter.provider
	if err := p.postponed("connector", c.Close); err != nil {
		return err
	}
	if !p.sleep.begin() {
		return nil // the member's departure returns all that it owned
	}
	defer p.sleep.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	switch c.phase {
	case dialing:
		c.conn.move(connWithdrawn, connRequested, connAccepted) // Connect returns and cleans up
		p.sleep.wake()
		return nil
	case awaitingUser:
		c.withdraw(nil)
	case requested:
		c.conn.refuse()
	case accepting:
		c.conn.move(connAborted, connAccepted)
		p.sleep.wake()
	case up:
		c.ep.mu.Lock()
		c.ep.terminate(c.ep.fail("close", nd.ConnectionAborted, "the connector was closed", ""))
		c.ep.mu.Unlock()
	}
	c.unbind()
	if c.phase != accepting {
		c.phase = dead
	}
	return nil
}
