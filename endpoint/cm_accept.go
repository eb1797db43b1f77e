package endpoint

// TWIN c/src/endpoint/cm_connector.c.

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// takeRequest puts a connection request into a new connector.
func (c *connector) takeRequest(conn *connection) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != cm.PhaseNew || c.closed {
		conn.refuse()
		return argument("c", c.opError("get connection request", nd.InvalidParameter, "the connector was used by another call", "pass a new connector"))
	}
	c.releaseAddress()
	c.conn = conn
	c.on(cm.Takes)
	c.local, c.remote = conn.requested, conn.source
	c.privateData = conn.record.Data(cm.Active)
	c.inboundReads = int(min(conn.record.Shared.ReadOut[cm.Active], uint32(conn.provider.limits.reads)))
	c.outboundReads = int(min(conn.record.Shared.ReadIn[cm.Active], uint32(conn.provider.limits.reads)))
	return nil
}

// Accept accepts a connection request and blocks until the active side has called
// CompleteConnect.
func (c *connector) Accept(ctx context.Context, endpoint nd.Endpoint, params nd.ConnectParams) error {
	const op = "accept"
	ep, err := c.checkParams(op, endpoint, params)
	if err != nil {
		return err
	}
	if err := c.beforeCall(ctx, op, cm.PhaseRequested, ep, func() { c.conn.refuse(); c.on(cm.Ends) }); err != nil {
		return err
	}
	p := c.adapter.provider
	if !p.waiters.BeginCall() { // Provider.Close blocks until the call ends
		return Canceled(ctx, errClosed, op, "connector")
	}
	defer p.waiters.EndCall()
	conn, err := c.startAccept(ep, params)
	if err != nil {
		return err
	}
	werr := p.wait(ctx, statuspage.Call{Op: op, Object: "connector", Peer: conn.record.Peer.ID()}, func() { ep.progress() }, func() bool { return conn.state() != cm.ConnAccepted || conn.record.IsPeerGone() })
	if werr != nil {
		conn.record.Move(cm.Abandons)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if c.closed {
		c.on(cm.Ends)
		ep.terminate(ep.opError(op, nd.ConnectionAborted, "the connector was closed", connectAgain))
		return c.opError(op, nd.Canceled, "the connector was closed", "create another")
	}
	s := conn.state()
	if ep.state() == cm.QPConnecting && conn.wasEstablished() { // the active side may have ended the connection since
		ep.on(cm.Completes)
		ep.progressLocked()
	}
	if ep.life.wasConnected {
		c.on(cm.Completes)
		return nil
	}
	c.on(cm.Ends)
	c.privateData = []byte{} // that of the request is no answer to the Accept
	if s == cm.ConnWithdrawn {
		c.privateData = conn.record.Data(cm.Active)
	}
	status, why := nd.ConnectionAborted, "the endpoint was flushed or closed during the call"
	switch {
	case s == cm.ConnWithdrawn, werr == nil && conn.record.IsPeerGone(): // a dead peer has not completed, as far as this process can know: the record's memory may be reused by now
		status, why = nd.ConnectionRefused, conn.whyEnded()
	case werr != nil:
		why = "the call was canceled"
	}
	ep.terminate(ep.opError(op, nd.ConnectionAborted, why, conn.nextStep()))
	if werr != nil && s != cm.ConnWithdrawn {
		return Canceled(ctx, werr, op, "connector")
	}
	return c.opError(op, status, why, conn.nextStep())
}

// startAccept checks the state, attaches to the peer and answers the request.
func (c *connector) startAccept(ep *queuePair, params nd.ConnectParams) (*connection, error) {
	const op = "accept"
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conn
	if err := c.checkOpen(op); err != nil {
		return nil, err
	}
	switch {
	case c.phase == cm.PhaseRequested:
	case c.phase == cm.PhaseAccepting || c.phase == cm.PhaseConnected || c.phase == cm.PhaseConnecting || c.phase == cm.PhaseAccepted:
		return nil, c.opError(op, nd.ConnectionActive, "the connector is connecting or connected", "create another connector")
	default:
		return nil, c.opError(op, nd.ConnectionInvalid, "the connector holds no connection request", "call Listener.GetConnectionRequest first")
	}
	if conn.record.IsPeerGone() || conn.state() != cm.ConnRequested {
		c.on(cm.Ends)
		conn.detach()
		return nil, c.opError(op, nd.ConnectionAborted, conn.whyEnded(), conn.nextStep())
	}
	if !ep.beginConnecting(conn, c) {
		return nil, c.opError(op, nd.ConnectionActive, "the endpoint is "+ep.state().String(), "accept with an idle endpoint")
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c.ep = ep
	err := conn.attach(ep)
	if err == nil {
		conn.record.Write(func() {
			conn.fillRecord(ep, params)
			conn.record.Shared.DataLen[cm.Active] = 0 // takeRequest has copied the data; from now on there is only that of a Reject
		})
		// Accept's limits, cut to those that the active side requested.
		c.inboundReads = min(conn.clampReads(params.InboundReadLimit), c.inboundReads)
		c.outboundReads = min(conn.clampReads(params.OutboundReadLimit), c.outboundReads)
		ep.req.readLimit = c.outboundReads
		if conn.record.Move(cm.Accepts) {
			c.on(cm.Accepts)
			return conn, nil
		}
	}
	c.on(cm.Ends)
	why := conn.whyEnded()
	if err != nil && !conn.record.IsPeerGone() {
		why = "the active side's memory is damaged"
	}
	ep.terminate(ep.opError(op, nd.ConnectionAborted, why, conn.nextStep()))
	conn.refuse() // if the active side still waits
	return nil, &nd.OpError{Op: op, Object: "connector", Status: nd.ConnectionAborted, Detail: why, Err: err, Next: conn.nextStep()}
}

// Reject refuses a connection, instead of Accept or CompleteConnect.
func (c *connector) Reject(private []byte) error { return c.reject(cm.Refuses, private) }

// RejectUnreachable implements relayhook.Connector.
func (c *connector) RejectUnreachable() error { return c.reject(cm.Cuts, nil) }

// reject ends a request with an event, whose state tells the active side why, or withdraws this side's own.
func (c *connector) reject(end cm.Event, private []byte) error {
	const op = "reject"
	if most := c.adapter.provider.limits.privateData; len(private) > most {
		return c.opError(op, nd.InvalidBufferSize, fmt.Sprintf("%d bytes of private data, at most %d", len(private), most), "send more over the connection")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen(op); err != nil {
		return err
	}
	conn := c.conn
	switch c.phase {
	case cm.PhaseRequested:
		conn.record.PutData(private)
		c.on(cm.Ends)
		ok := conn.record.Move(end)
		conn.detach()
		if !ok || conn.record.IsPeerGone() {
			return c.opError(op, nd.ConnectionAborted, conn.whyEnded(), conn.nextStep())
		}
		return nil
	case cm.PhaseAccepted:
		if !c.withdraw(private) || conn.record.IsPeerGone() {
			return c.opError(op, nd.ConnectionAborted, conn.whyEnded(), conn.nextStep())
		}
		return nil
	}
	return c.opError(op, nd.ConnectionInvalid, "the connector holds no request and no accepted Connect", "call GetConnectionRequest or Connect first")
}
