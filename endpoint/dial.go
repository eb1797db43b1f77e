package endpoint

import (
	"context"
	"net/netip"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Connect asks the listener at addr for a connection and waits for its answer.
func (c *Connector) Connect(ctx context.Context, endpoint nd.Endpoint, addr netip.AddrPort, params nd.ConnectParams) error {
	const op = "connect"
	conn, err := c.dial(ctx, endpoint, addr, params)
	if err != nil {
		return err
	}
	p := c.adapter.provider
	werr := p.wait(ctx, nil, func() bool { return conn.state() != connRequested || conn.gone() })
	if werr != nil {
		conn.move(connWithdrawn, connRequested, connAccepted)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := conn.state(); {
	case s == connAccepted && !conn.gone():
		return c.answered(conn)
	case s == connRefused:
		c.private = conn.dataOf(passive)
		c.retreat(conn)
		return c.fail(op, nd.ConnectionRefused, "nobody listens at "+addr.String()+", its backlog is full, or the request was rejected", "retry, or look at GetPrivateData")
	case s == connWithdrawn:
		c.retreat(conn)
		if werr != nil {
			return canceled(ctx, werr, op, "connector")
		}
		return c.fail(op, nd.Canceled, "the connector was closed", "")
	}
	c.retreat(conn)
	return c.fail(op, nd.HostUnreachable, conn.peer.String()+" has died or left", "")
}

// dial checks the arguments and sends the request.
func (c *Connector) dial(ctx context.Context, endpoint nd.Endpoint, addr netip.AddrPort, params nd.ConnectParams) (*connection, error) {
	const op = "connect"
	ep, err := c.checkParams(op, endpoint, params)
	if err != nil {
		return nil, err
	}
	if addr.Addr().IsUnspecified() || !addr.IsValid() {
		return nil, c.fail(op, nd.BadNetworkName, "address "+addr.String(), "connect to a listener's address")
	}
	slot, ok := slotOf(addr.Addr())
	if !ok {
		return nil, c.fail(op, nd.NetworkUnreachable, addr.String()+" is no address of this arena", "connect to an address that a peer got from QueryAddressList")
	}
	p := c.adapter.provider
	peer, err := p.arena.PeerInSlot(slot)
	if err != nil {
		return nil, &nd.OpError{Op: op, Object: "connector", Status: nd.HostUnreachable, Detail: "no process has the address " + addr.Addr().String(), Err: err, Next: "retry when the peer has started"}
	}
	if ctx.Err() != nil {
		return nil, nd.CanceledError(ctx, op, "connector")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(op); err != nil {
		return nil, err
	}
	if c.phase != fresh {
		return nil, c.fail(op, nd.ConnectionActive, "the connector is connecting or connected, or was", "create another connector")
	}
	if !c.ownPort {
		if c.local, err = c.adapter.bindLocal(op, "connector", netip.AddrPortFrom(Address(p.member.ID()), 0)); err != nil {
			return nil, err
		}
		c.ownPort = true
	}
	off, err := p.member.Heap().Alloc(recordSize)
	if err != nil {
		return nil, c.adapter.shortage(op, err)
	}
	rec, err := shm.At[record](p.arena, off)
	if err != nil {
		return nil, c.adapter.shortage(op, err)
	}
	conn := &connection{provider: p, record: rec, offset: off, side: active, peer: peer}
	if !ep.begin(conn, c) {
		_ = p.member.Heap().Free(off)
		return nil, c.fail(op, nd.ConnectionActive, "the endpoint is "+ep.state().String(), "connect an idle endpoint")
	}
	rec.member[active], rec.member[passive] = uint64(p.member.ID()), uint64(peer.ID())
	rec.port[active], rec.port[passive] = uint32(c.local.Port()), uint32(addr.Port())
	conn.offer(ep, params)
	rec.state.Store(uint32(connRequested))
	c.conn, c.ep, c.phase, c.remote, c.private = conn, ep, dialing, addr, nil
	p.track(conn)
	_ = peer.Send(off, &rec.link) // a peer that is gone by now shows in the wait
	return conn, nil
}

// offer fills in this side's part of the record.
func (c *connection) offer(ep *Endpoint, params nd.ConnectParams) {
	r, i := c.record, c.side
	r.owner[i], r.half[i] = uint64(ep.adapter.space.Owner()), uint64(ep.halfOffset)
	r.readIn[i], r.readOut[i] = limit(params.InboundReadLimit), limit(params.OutboundReadLimit)
	r.dataLen[i] = uint32(copy(r.data[i][:], params.PrivateData))
}

func limit(n int) uint32 { return uint32(min(max(n, 0), maxReads)) }

// dataOf copies the private data of one side.
func (c *connection) dataOf(side int) []byte {
	n := min(c.record.dataLen[side], maxPrivateData)
	data := c.record.data[side]
	return data[:n:n]
}

// begin ties an idle endpoint to a connection that is being made.
func (ep *Endpoint) begin(c *connection, by *Connector) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state() != idle {
		return false
	}
	ep.conn, ep.connector = c, by
	c.endpoint.Store(ep)
	ep.setState(connecting)
	return true
}

// retreat makes connector and endpoint as they were before a Connect that
// failed, so that it can be tried again.
func (c *Connector) retreat(conn *connection) {
	ep := c.ep
	ep.mu.Lock()
	if ep.conn == conn && (ep.state() == connecting || ep.state() == answered) {
		ep.conn, ep.connector = nil, nil
		ep.setState(idle)
	}
	ep.mu.Unlock()
	conn.detach()
	c.conn, c.ep, c.phase = nil, nil, fresh
	if c.closed {
		c.phase = dead
		c.unbind()
	}
}

// answered takes the acceptance of the passive side.
func (c *Connector) answered(conn *connection) error {
	ep := c.ep
	ep.mu.Lock()
	if ep.state() != connecting {
		ep.mu.Unlock()
		conn.move(connWithdrawn, connAccepted)
		c.retreat(conn)
		return c.fail("connect", nd.Canceled, "the endpoint was flushed or closed meanwhile", "connect another endpoint")
	}
	err := conn.join(ep)
	if err == nil {
		ep.setState(answered)
	}
	ep.mu.Unlock()
	if err != nil {
		conn.move(connAborted, connAccepted)
		c.retreat(conn)
		c.phase = dead
		return &nd.OpError{Op: "connect", Object: "connector", Status: nd.ConnectionAborted, Err: err}
	}
	c.private = conn.dataOf(passive)
	c.in = int(min(conn.record.readIn[active], conn.record.readOut[passive], maxReads))
	c.out = int(min(conn.record.readOut[active], conn.record.readIn[passive], maxReads))
	c.phase = awaitingUser
	return nil
}

// CompleteConnect is the active side's last step; both endpoints are
// connected when it returns.
func (c *Connector) CompleteConnect(ctx context.Context) error {
	const op = "complete connect"
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, "connector")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(op); err != nil {
		return err
	}
	if c.phase != awaitingUser {
		return c.fail(op, nd.ConnectionInvalid, "no accepted Connect waits for it", "call Connect first")
	}
	ep := c.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state() != answered || c.conn.gone() || !c.conn.move(connEstablished, connAccepted) {
		c.phase = dead
		ep.terminate(ep.fail(op, nd.ConnectionAborted, "the passive side is gone", ""))
		return c.fail(op, nd.ConnectionAborted, "the passive side has given up", "connect again with a new connector and endpoint")
	}
	ep.readLimit = c.out
	c.phase = up
	ep.setState(connected)
	return nil
}

// withdraw ends an accepted Connect that will not be completed.
func (c *Connector) withdraw(private []byte) (ok bool) {
	c.phase = dead
	conn := c.conn
	if private != nil {
		conn.write(func() { conn.record.dataLen[active] = uint32(copy(conn.record.data[active][:], private)) })
	}
	ok = conn.move(connWithdrawn, connAccepted)
	c.ep.mu.Lock()
	c.ep.terminate(c.ep.fail("reject", nd.Canceled, "the connection was rejected", ""))
	c.ep.mu.Unlock()
	return ok
}
