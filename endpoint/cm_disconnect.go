package endpoint

// TWIN c/src/endpoint/cm_teardown.c, c/src/endpoint/cm_connector.c.

import (
	"context"
	"fmt"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
)

// NotifyDisconnect blocks until the connection has ended, for any reason. It returns nil then.
func (c *connector) NotifyDisconnect(ctx context.Context) error {
	const op = "notify disconnect"
	c.mu.Lock()
	ep, conn, ph, err := c.ep, c.conn, c.phase, c.checkOpen(op)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if ph != cm.PhaseConnected {
		return c.opError(op, nd.ConnectionInvalid, "the connector was never connected", "")
	}
	err = c.adapter.provider.wait(ctx, statuspage.Call{Op: op, Object: "connector", Peer: conn.record.Peer.ID()}, func() { ep.progress() }, func() bool {
		s := ep.state()
		return s == cm.QPPeerDisconnected || s == cm.QPFailed || s == cm.QPClosed
	})
	if err != nil {
		return Canceled(ctx, err, op, "connector")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError(op, nd.Canceled, "the connector was closed", "")
	}
	return nil
}

// Disconnect ends the connection gracefully. It blocks until the other side has also called
// Disconnect, and fails with nd.IOTimeout after options.disconnectTimeout.
func (c *connector) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	if err := c.beforeCall(ctx, op, cm.PhaseConnected, nil, func() { c.ep.abortDisconnect(op) }); err != nil {
		return err
	}
	c.mu.Lock()
	ep, conn := c.ep, c.conn
	if err := c.checkOpen(op); err != nil {
		c.mu.Unlock()
		return err
	}
	if c.phase != cm.PhaseConnected || c.disconnectCalled {
		c.mu.Unlock()
		return c.opError(op, nd.ConnectionInvalid, "not connected", "")
	}
	c.disconnectCalled = true
	c.mu.Unlock()
	p := c.adapter.provider
	if !ep.beginDisconnect() {
		return &nd.OpError{Op: op, Object: "connector", Status: nd.ConnectionAborted, Detail: "the connection has already failed", Err: ep.Err(), Next: conn.nextStep()}
	}
	// Until the drains end, a transfer of the peer may still access this process's memory.
	err := p.wait(ctx, statuspage.Call{Op: op, Object: "connector", Peer: conn.record.Peer.ID()}, func() { ep.progress(); p.deferred.Run() }, func() bool {
		return ep.state() != cm.QPDisconnecting && ep.pendingDrains.Load() == 0
	})
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case err != nil:
		return Canceled(ctx, err, op, "connector")
	case ep.life.bothDisconnected: // even if Close was called since
		return nil
	case closed:
		return c.opError(op, nd.Canceled, "the connector was closed", "")
	case ep.life.disconnectTimedOut:
		return c.opError(op, nd.IOTimeout, fmt.Sprintf("the peer (%s) did not disconnect within %v", conn.peerName, p.options.disconnectTimeout), "both sides must call Disconnect")
	case conn.record.IsPeerGone():
		return c.opError(op, nd.ConnectionAborted, conn.lost("the peer ("+conn.peerName+")"), "")
	}
	return c.opError(op, nd.ConnectionAborted, "the peer ("+conn.peerName+") aborted the connection", "")
}

// beginDisconnect starts a graceful disconnect. It returns false if the connection has failed.
func (ep *queuePair) beginDisconnect() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.progressLocked()
	c := ep.conn
	switch ep.state() {
	case cm.QPConnected, cm.QPPeerDisconnected:
	default:
		return false
	}
	ep.setCause(ep.opError("disconnect", nd.ConnectionDisconnected, "the connection was disconnected gracefully", ""))
	peerWasFirst := ep.state() == cm.QPPeerDisconnected
	ep.on(cm.Disconnects)
	if !peerWasFirst {
		ep.logDisconnected(bySelf)
	}
	ep.life.disconnectDeadline = time.Now().Add(ep.provider.options.disconnectTimeout)
	c.record.Write(func() { c.record.Shared.Disconnected[c.record.Side].Swap(1) }) // ORDER disconnected: pairs with the load in queuePair.progressLocked; ORDER hazard: then the load in leavePeerState
	failpoint.Reach(failpoint.Disconnected)
	c.record.Peer.Wake()
	ep.tearDown()
	if peerWasFirst && ep.state() == cm.QPDisconnecting {
		ep.completeDisconnect()
	}
	return ep.state() != cm.QPFailed
}
