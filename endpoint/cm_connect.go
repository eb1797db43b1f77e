package endpoint

// TWIN c/src/endpoint/cm_connector.c.

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Connect requests a connection from the listener at addr and blocks until the listener's side
// has answered.
func (c *connector) Connect(ctx context.Context, endpoint nd.Endpoint, addr netip.AddrPort, params nd.ConnectParams) error {
	return c.connect(ctx, endpoint, nil, addr, params)
}

func (c *connector) connect(ctx context.Context, endpoint nd.Endpoint, from *sharedAddress, addr netip.AddrPort, params nd.ConnectParams) error {
	const op = "connect"
	p := c.adapter.provider
	if err := c.beforeConnect(ctx, op, endpoint, addr); err != nil {
		return err
	}
	if !p.waiters.BeginCall() { // Provider.Close blocks until the call ends
		return Canceled(ctx, errClosed, op, "connector")
	}
	defer p.waiters.EndCall()
	conn, err := c.startConnect(ctx, endpoint, from, addr, params)
	if err != nil {
		return err
	}
	werr := p.wait(ctx, statuspage.Call{Op: op, Object: fmt.Sprintf("%s, port %d", conn.nameOfProcess(), addr.Port()), Peer: conn.record.Peer.ID()}, nil, func() bool { return conn.state() != cm.ConnRequested || conn.record.IsPeerGone() })
	if werr != nil {
		conn.record.Move(cm.Withdraws)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := conn.state(); {
	case s == cm.ConnAccepted && !conn.record.IsPeerGone():
		return c.handleAccepted(conn)
	case s == cm.ConnRefused:
		c.privateData = conn.record.Data(cm.Passive)
		c.undoConnect(conn)
		c.releaseAddress()
		return c.opError(op, nd.ConnectionRefused, "no listener at "+addr.String()+", its backlog is full, or it rejected the request", "retry, or read the reason with GetPrivateData")
	case s == cm.ConnWithdrawn:
		c.undoConnect(conn)
		if werr != nil {
			return Canceled(ctx, werr, op, "connector")
		}
		return c.opError(op, nd.Canceled, "the connector was closed", "create another")
	}
	c.undoConnect(conn)
	c.releaseAddress()
	next := "connect again when the peer runs"
	if conn.nextStep() == startAgain {
		next = startAgain
	}
	return c.opError(op, nd.HostUnreachable, conn.whyEnded(), next)
}

// startConnect checks the arguments and sends the connection request.
func (c *connector) startConnect(ctx context.Context, endpoint nd.Endpoint, from *sharedAddress, addr netip.AddrPort, params nd.ConnectParams) (*connection, error) {
	const op = "connect"
	ep, err := c.checkParams(op, endpoint, params)
	if err != nil {
		return nil, err
	}
	if addr.Addr().IsUnspecified() || !addr.IsValid() {
		return nil, c.opError(op, nd.BadNetworkName, "address "+addr.String()+" is unspecified or invalid", "connect to a listener's address")
	}
	if ctx.Err() != nil {
		return nil, nd.CanceledError(ctx, op, "connector")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen(op); err != nil {
		return nil, err
	}
	if c.phase != cm.PhaseNew {
		return nil, c.opError(op, nd.ConnectionActive, "the connector is connecting or connected, or was", "create another connector")
	}
	peer, err := c.findPeer(op, addr)
	if err != nil {
		c.releaseAddress() // as after every failure that allows another attempt
		return nil, err
	}
	release, err := c.bindForConnect(op, from, addr)
	if err != nil {
		return nil, err
	}
	conn, err := c.newRecord(op, peer)
	if err == nil && !ep.beginConnecting(conn, c) {
		_ = conn.provider.member.Free(conn.record.Offset)
		err = c.opError(op, nd.ConnectionActive, "the endpoint is "+ep.state().String(), "connect an idle endpoint")
	}
	if err != nil {
		release()
		return nil, err
	}
	if c.adapter.provider.isOfOtherHost(addr.Addr()) {
		conn.remote = addr.Addr()
	}
	conn.sendRequest(c.local, addr, ep, params)
	c.conn, c.ep, c.remote, c.privateData = conn, ep, addr, nil
	c.on(cm.Requests)
	return conn, nil
}

// findPeer returns the process that receives requests for an address.
func (c *connector) findPeer(op string, addr netip.AddrPort) (*shm.Peer, error) {
	peer, isKnown, err := c.adapter.provider.peerAt(addr.Addr())
	if !isKnown {
		return nil, c.opError(op, nd.NetworkUnreachable, addr.String()+" is not an address of this job", "connect to an address that a peer got from QueryAddressList")
	}
	if err != nil {
		return nil, &nd.OpError{Op: op, Object: "connector", Status: nd.HostUnreachable, Err: err, Next: "retry when the peer has started"}
	}
	return peer, nil
}

// bindForConnect gives the connector a local address: from unless it is nil, the address that it
// is bound to, or any. release undoes that.
func (c *connector) bindForConnect(op string, from *sharedAddress, addr netip.AddrPort) (release func(), err error) {
	switch {
	case from != nil:
		if err := from.addRemote(addr); err != nil {
			return nil, err
		}
		c.releaseAddress()
		c.local, c.shared, c.remote = from.addr, from, addr
	case c.ownsPort || c.isForeign:
		return func() {}, nil
	default:
		if c.local, err = c.adapter.bindLocal(op, "connector", netip.AddrPortFrom(c.adapter.provider.address(), 0)); err != nil {
			return nil, err
		}
		c.ownsPort = true
	}
	return c.releaseAddress, nil
}

// newRecord allocates the record of a new connection.
func (c *connector) newRecord(op string, peer *shm.Peer) (*connection, error) {
	p := c.adapter.provider
	off, err := p.member.AllocColored(wire.ConnectionRecordSize)
	if err != nil {
		return nil, c.adapter.allocError(op, err)
	}
	failpoint.Reach(failpoint.RecordAllocated)
	rec, err := shm.At[wire.ConnectionRecord](p.arena, off)
	if err != nil {
		return nil, c.adapter.allocError(op, err)
	}
	return &connection{provider: p, record: cm.Record{Peer: peer, Shared: rec, Offset: off, Side: cm.Active}}, nil
}

// sendRequest sends the connection request to the peer.
func (c *connection) sendRequest(local, remote netip.AddrPort, ep *queuePair, params nd.ConnectParams) {
	p, rec := c.provider, c.record.Shared
	rec.Member[cm.Active], rec.Member[cm.Passive] = uint64(p.member.ID()), uint64(c.record.Peer.ID())
	rec.Address[cm.Active], rec.Address[cm.Passive] = addressWord(local.Addr()), addressWord(remote.Addr())
	rec.Port[cm.Active], rec.Port[cm.Passive] = uint32(local.Port()), uint32(remote.Port())
	c.fillRecord(ep, params)
	rec.State.Store(uint32(cm.ConnRequested))
	failpoint.Reach(failpoint.RecordFilled)
	p.track(c)
	p.mu.Lock() // releaseDead takes it before the record of a dead peer gets another owner
	defer p.mu.Unlock()
	_ = c.record.Peer.SendMail(c.record.Offset, &rec.Link) // if the peer is gone by now, the wait notices
}

// fillRecord fills in this side's part of the record. The peer does not read it yet, or the caller is within Record.Write.
func (c *connection) fillRecord(ep *queuePair, params nd.ConnectParams) {
	r, i := c.record.Shared, c.record.Side
	r.Adapter[i], r.QP[i] = ep.adapter.domain.Adapter, uint64(ep.localQPOffset)
	r.ReadIn[i], r.ReadOut[i] = uint32(c.clampReads(params.InboundReadLimit)), uint32(c.clampReads(params.OutboundReadLimit))
	r.DataLen[i] = uint32(copy(r.Data[i][:], params.PrivateData))
}

func (c *connection) clampReads(n int) int { return min(max(n, 0), c.provider.limits.reads) }

// beginConnecting ties an idle endpoint to a connection. It returns false if the endpoint is not
// idle.
func (ep *queuePair) beginConnecting(c *connection, by *connector) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state() != cm.QPIdle {
		return false
	}
	ep.conn, ep.life.connector = c, by
	c.endpoint.Store(ep)
	ep.on(cm.Requests)
	return true
}

// undoConnect resets the connector and the endpoint after a failed Connect, so that the caller
// can try again. After some failures the caller also releases the connector's address.
func (c *connector) undoConnect(conn *connection) {
	ep := c.ep
	ep.mu.Lock()
	if ep.conn == conn && (ep.state() == cm.QPConnecting || ep.state() == cm.QPAccepted) {
		ep.conn, ep.life.connector = nil, nil
		ep.on(cm.Undoes)
	}
	ep.mu.Unlock()
	conn.detach()
	c.conn, c.ep = nil, nil
	c.on(cm.Undoes)
	if c.closed {
		c.on(cm.Ends)
	}
	if c.closed || c.shared != nil { // a shared address is for one attempt only
		c.releaseAddress()
	}
}

// handleAccepted takes note that the passive side has accepted.
func (c *connector) handleAccepted(conn *connection) error {
	ep := c.ep
	ep.mu.Lock()
	if ep.state() != cm.QPConnecting {
		ep.mu.Unlock()
		conn.record.Move(cm.Withdraws)
		c.undoConnect(conn)
		return c.opError("connect", nd.Canceled, "the endpoint was flushed or closed during the call", "connect another endpoint")
	}
	err := conn.attach(ep)
	if err == nil {
		ep.on(cm.Accepts)
	}
	ep.mu.Unlock()
	if err != nil {
		conn.record.Move(cm.Withdraws)
		c.undoConnect(conn)
		c.on(cm.Ends)
		return &nd.OpError{Op: "connect", Object: "connector", Status: nd.ConnectionAborted, Err: err, Next: connectAgain}
	}
	c.privateData = conn.record.Data(cm.Passive)
	c.inboundReads = int(min(conn.record.Shared.ReadIn[cm.Active], conn.record.Shared.ReadOut[cm.Passive], uint32(conn.provider.limits.reads)))
	c.outboundReads = int(min(conn.record.Shared.ReadOut[cm.Active], conn.record.Shared.ReadIn[cm.Passive], uint32(conn.provider.limits.reads)))
	c.on(cm.Accepts)
	return nil
}

// CompleteConnect is the active side's last step. When it returns nil, both endpoints are
// connected.
func (c *connector) CompleteConnect(ctx context.Context) error {
	const op = "complete connect"
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, "connector")
	}
	if err := c.beforeCall(ctx, op, cm.PhaseAccepted, nil, func() { c.withdraw(nil) }); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen(op); err != nil {
		return err
	}
	if c.phase != cm.PhaseAccepted {
		return c.opError(op, nd.ConnectionInvalid, "no Connect has been accepted", "call Connect first")
	}
	ep := c.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state() != cm.QPAccepted || c.conn.record.IsPeerGone() || !c.conn.record.Move(cm.Completes) {
		c.on(cm.Ends)
		if ep.state() != cm.QPAccepted && !c.conn.record.IsPeerGone() { // of the peer's acts, only its death ends this state
			return &nd.OpError{Op: op, Object: "connector", Status: nd.ConnectionAborted, Detail: "this side's endpoint has ended the connection", Err: ep.life.cause, Next: connectAgain}
		}
		why := c.conn.whyEnded()
		ep.terminate(ep.opError(op, nd.ConnectionAborted, why, c.conn.nextStep()))
		return c.opError(op, nd.ConnectionAborted, why, c.conn.nextStep())
	}
	ep.req.readLimit = c.outboundReads
	c.on(cm.Completes)
	ep.on(cm.Completes)
	return nil
}

// withdraw ends an accepted Connect that is not going to be completed. It returns false if the
// passive side has ended it before.
func (c *connector) withdraw(private []byte) (ok bool) {
	c.on(cm.Ends)
	conn := c.conn
	conn.record.PutData(private)
	ok = conn.record.Move(cm.Withdraws)
	c.ep.mu.Lock()
	c.ep.terminate(c.ep.opError("reject", nd.Canceled, "the connection was rejected", connectAgain))
	c.ep.mu.Unlock()
	return ok
}

// ConnectFrom is Connect from a shared address.
func (c *connector) ConnectFrom(ctx context.Context, endpoint nd.Endpoint, from nd.SharedAddress, addr netip.AddrPort, params nd.ConnectParams) error {
	shared, ok := from.(*sharedAddress)
	if !ok || shared == nil || shared.adapter != c.adapter {
		return c.opError("connect", nd.InvalidAddress, "the shared address is not of this adapter", "create it with the connector's adapter")
	}
	return c.connect(ctx, endpoint, shared, addr, params)
}
