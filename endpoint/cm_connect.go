package endpoint

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Connect asks the listener at addr for a connection and waits for its answer.
func (c *Connector) Connect(ctx context.Context, endpoint nd.Endpoint, addr netip.AddrPort, params nd.ConnectParams) error {
	return c.connect(ctx, endpoint, nil, addr, params)
}

func (c *Connector) connect(ctx context.Context, endpoint nd.Endpoint, from *SharedAddress, addr netip.AddrPort, params nd.ConnectParams) error {
	const op = "connect"
	p := c.adapter.provider
	if !p.sleep.begin() { // Provider.Close waits for the end
		return canceled(ctx, errClosed, op, "connector")
	}
	defer p.sleep.end()
	conn, err := c.dial(ctx, endpoint, from, addr, params)
	if err != nil {
		return err
	}
	werr := p.wait(ctx, testimony.Call{Op: op, Object: fmt.Sprintf("%s, port %d", conn.peer.Name(), addr.Port()), Peer: conn.peer.ID()}, nil, func() bool { return conn.state() != connRequested || conn.gone() })
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
		c.unbind()
		return c.fail(op, nd.ConnectionRefused, "nobody listens at "+addr.String()+", its backlog is full, or the request was rejected", "retry, or look at GetPrivateData")
	case s == connWithdrawn:
		c.retreat(conn)
		if werr != nil {
			return canceled(ctx, werr, op, "connector")
		}
		return c.fail(op, nd.Canceled, "the connector was closed", "")
	}
	c.retreat(conn)
	c.unbind()
	return c.fail(op, nd.HostUnreachable, conn.peer.String()+" has died or left", "")
}

// dial checks the arguments and sends the request.
func (c *Connector) dial(ctx context.Context, endpoint nd.Endpoint, from *SharedAddress, addr netip.AddrPort, params nd.ConnectParams) (*connection, error) {
	const op = "connect"
	ep, err := c.checkParams(op, endpoint, params)
	if err != nil {
		return nil, err
	}
	if addr.Addr().IsUnspecified() || !addr.IsValid() {
		return nil, c.fail(op, nd.BadNetworkName, "address "+addr.String(), "connect to a listener's address")
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
	peer, err := c.reach(op, addr)
	if err != nil {
		c.unbind() // as after every failure that may be tried again
		return nil, err
	}
	release, err := c.departFrom(op, from, addr)
	if err != nil {
		return nil, err
	}
	conn, err := c.newRecord(op, peer)
	if err == nil && !ep.begin(conn, c) {
		_ = conn.provider.member.Heap().Free(conn.offset)
		err = c.fail(op, nd.ConnectionActive, "the endpoint is "+ep.state().String(), "connect an idle endpoint")
	}
	if err != nil {
		release()
		return nil, err
	}
	conn.request(c.local.Port(), addr.Port(), ep, params)
	c.conn, c.ep, c.phase, c.remote, c.private = conn, ep, dialing, addr, nil
	return conn, nil
}

// reach finds the process that has an address.
func (c *Connector) reach(op string, addr netip.AddrPort) (*shm.Peer, error) {
	slot, ok := slotOf(addr.Addr())
	if !ok {
		return nil, c.fail(op, nd.NetworkUnreachable, addr.String()+" is no address of this arena", "connect to an address that a peer got from QueryAddressList")
	}
	peer, err := c.adapter.provider.arena.PeerInSlot(slot)
	if err != nil {
		return nil, &nd.OpError{Op: op, Object: "connector", Status: nd.HostUnreachable, Detail: "no process has the address " + addr.Addr().String(), Err: err, Next: "retry when the peer has started"}
	}
	return peer, nil
}

// departFrom makes sure that the connector has a local address: from, if it is
// not nil, or the one that it is bound to, or any. release undoes that.
func (c *Connector) departFrom(op string, from *SharedAddress, addr netip.AddrPort) (release func(), err error) {
	switch {
	case from != nil:
		if err := from.use(addr); err != nil {
			return nil, err
		}
		c.unbind()
		c.local, c.shared, c.remote = from.addr, from, addr
	case c.ownPort:
		return func() {}, nil
	default:
		if c.local, err = c.adapter.bindLocal(op, "connector", netip.AddrPortFrom(Address(c.adapter.provider.member.ID()), 0)); err != nil {
			return nil, err
		}
		c.ownPort = true
	}
	return c.unbind, nil
}

// newRecord makes the record of a connection to be asked for.
func (c *Connector) newRecord(op string, peer *shm.Peer) (*connection, error) {
	p := c.adapter.provider
	off, err := p.member.Heap().AllocSpread(recordSize)
	if err != nil {
		return nil, c.adapter.shortage(op, err)
	}
	rec, err := shm.At[record](p.arena, off)
	if err != nil {
		return nil, c.adapter.shortage(op, err)
	}
	return &connection{provider: p, record: rec, offset: off, side: active, peer: peer}, nil
}

// request sends the request for a connection.
func (c *connection) request(local, remote uint16, ep *Endpoint, params nd.ConnectParams) {
	p, rec := c.provider, c.record
	rec.member[active], rec.member[passive] = uint64(p.member.ID()), uint64(c.peer.ID())
	rec.port[active], rec.port[passive] = uint32(local), uint32(remote)
	c.offer(ep, params)
	rec.state.Store(uint32(connRequested))
	p.track(c)
	_ = c.peer.Send(c.offset, &rec.link) // a peer that is gone by now shows in the wait
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
// failed, so that it can be tried again. After some failures the caller unbinds
// the connector, too.
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
	}
	if c.closed || c.shared != nil { // which is only named for one attempt
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
