package endpoint

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
)

// take puts an incoming request into a fresh connector.
func (c *Connector) take(conn *connection, local netip.AddrPort) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != fresh || c.closed {
		conn.refuse()
		return c.fail("get connection request", nd.InvalidParameter1, "the connector was used meanwhile", "pass a fresh connector")
	}
	c.unbind()
	c.conn, c.phase, c.local = conn, requested, local
	c.remote = netip.AddrPortFrom(Address(conn.peer.ID()), uint16(conn.record.port[active]))
	c.private = conn.dataOf(active)
	c.in = int(min(conn.record.readOut[active], maxReads))
	c.out = int(min(conn.record.readIn[active], maxReads))
	return nil
}

// Accept answers a request with yes, and waits for the active side's
// CompleteConnect.
func (c *Connector) Accept(ctx context.Context, endpoint nd.Endpoint, params nd.ConnectParams) error {
	const op = "accept"
	ep, err := c.checkParams(op, endpoint, params)
	if err != nil {
		return err
	}
	p := c.adapter.provider
	if !p.sleep.begin() { // Provider.Close waits for the end
		return canceled(ctx, errClosed, op, "connector")
	}
	defer p.sleep.end()
	conn, err := c.accept(ep, params)
	if err != nil {
		return err
	}
	werr := p.wait(ctx, testimony.Call{Op: op, Object: "connector", Peer: conn.peer.ID()}, func() { ep.drive() }, func() bool { return conn.state() != connAccepted || conn.gone() })
	if werr != nil {
		conn.move(connAborted, connAccepted)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if c.closed {
		c.phase = dead
		ep.terminate(ep.fail(op, nd.ConnectionAborted, "the connector was closed", ""))
		return c.fail(op, nd.Canceled, "the connector was closed", "")
	}
	s := conn.state()
	if ep.state() == connecting && s == connEstablished {
		ep.step()
	}
	// Only the active side's end of an established connection is an abort here.
	if ep.wasUp || ep.state() == connecting && s == connAborted && werr == nil {
		if ep.state() == connecting {
			ep.setState(connected)
			ep.step()
		}
		c.phase = up
		return nil
	}
	c.phase = dead
	if s == connWithdrawn {
		c.private = conn.dataOf(active)
	}
	ep.terminate(ep.fail(op, nd.ConnectionAborted, "the active side has given up", ""))
	switch {
	case s == connWithdrawn:
		return c.fail(op, nd.ConnectionRefused, "the active side rejected or closed the connection", "")
	case werr != nil:
		return canceled(ctx, werr, op, "connector")
	case conn.gone(): // and did not complete, as far as can be told: its record may be somebody else's by now
		return c.fail(op, nd.ConnectionRefused, conn.peer.String()+" has died or left", "")
	}
	return c.fail(op, nd.ConnectionAborted, "the endpoint was flushed or closed meanwhile", "")
}

// accept checks the state, joins and answers.
func (c *Connector) accept(ep *Endpoint, params nd.ConnectParams) (*connection, error) {
	const op = "accept"
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conn
	if err := c.usable(op); err != nil {
		return nil, err
	}
	switch {
	case c.phase == requested:
	case c.phase == accepting || c.phase == up || c.phase == dialing || c.phase == awaitingUser:
		return nil, c.fail(op, nd.ConnectionActive, "the connector is connecting or connected", "")
	default:
		return nil, c.fail(op, nd.ConnectionInvalid, "the connector holds no connection request", "call Listener.GetConnectionRequest first")
	}
	if conn.gone() || conn.state() != connRequested {
		c.phase = dead
		conn.detach()
		return nil, c.fail(op, nd.ConnectionAborted, "the active side has given up", "")
	}
	if !ep.begin(conn, c) {
		return nil, c.fail(op, nd.ConnectionActive, "the endpoint is "+ep.state().String(), "accept with an idle endpoint")
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c.ep = ep
	err := conn.join(ep)
	if err == nil {
		conn.write(func() { conn.offer(ep, params) })
		// What Accept grants, cut to what the active side asked for.
		c.in = int(min(limit(params.InboundReadLimit), uint32(c.in)))
		c.out = int(min(limit(params.OutboundReadLimit), uint32(c.out)))
		ep.readLimit = c.out
		if conn.move(connAccepted, connRequested) {
			c.phase = accepting
			return conn, nil
		}
	}
	c.phase = dead
	ep.terminate(ep.fail(op, nd.ConnectionAborted, "the active side has given up", ""))
	conn.detach()
	return nil, &nd.OpError{Op: op, Object: "connector", Status: nd.ConnectionAborted, Detail: "the active side has given up", Err: err}
}

// Reject answers with no, instead of Accept or of CompleteConnect.
func (c *Connector) Reject(private []byte) error {
	const op = "reject"
	if len(private) > maxPrivateData {
		return c.fail(op, nd.InvalidBufferSize, fmt.Sprintf("%d bytes of private data, at most %d", len(private), maxPrivateData), "")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(op); err != nil {
		return err
	}
	conn := c.conn
	switch c.phase {
	case requested:
		conn.write(func() { conn.record.dataLen[passive] = uint32(copy(conn.record.data[passive][:], private)) })
		c.phase = dead
		ok := conn.move(connRefused, connRequested)
		conn.detach()
		if !ok || conn.gone() {
			return c.fail(op, nd.ConnectionAborted, "the active side has given up", "")
		}
		return nil
	case awaitingUser:
		if !c.withdraw(private) || conn.gone() {
			return c.fail(op, nd.ConnectionAborted, "the passive side has given up", "")
		}
		return nil
	}
	return c.fail(op, nd.ConnectionInvalid, "there is nothing to reject", "")
}
