package tiny

import (
	"context"
	"time"

	"github.com/softnd/softnd/nd"
)

func (c *connector) NotifyDisconnect(ctx context.Context) error {
	const op = "notify disconnect"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase < joined || c.phase == dead:
		return refuse(op, nd.ConnectionInvalid, "not connected")
	}
	if !c.adapter.wait(ctx, func() bool { return c.peerEnded || c.closed }) {
		return nd.CanceledError(ctx, op, "connector")
	}
	if !c.peerEnded {
		return refuse(op, nd.Canceled, "the connector was closed")
	}
	return nil
}

func (c *connector) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase == aborted && c.ep.state != disconnected:
		c.ep.state = disconnected
		return refuse(op, nd.ConnectionAborted, "the connection was aborted")
	case c.phase != joined:
		return refuse(op, nd.ConnectionInvalid, "not connected")
	}
	c.leave()
	if !c.adapter.wait(ctx, func() bool { return c.phase != leaving || c.closed }) {
		return nd.CanceledError(ctx, op, "connector")
	}
	switch {
	case c.phase == ended:
		return nil
	case c.late:
		return refuse(op, nd.IOTimeout, "the peer did not disconnect")
	case c.closed:
		return refuse(op, nd.Canceled, "the connector was closed")
	}
	return refuse(op, nd.ConnectionAborted, "the peer has left")
}

// leave is this side's part of a disconnection.
func (c *connector) leave() {
	c.phase = leaving
	c.ep.end(disconnected, nd.ConnectionDisconnected)
	p := c.peer
	p.peerEnded = true
	if p.phase == leaving {
		c.phase, p.phase = ended, ended
		return
	}
	p.ep.state = peerGone
	p.ep.setEnded(nd.ConnectionDisconnected)
	time.AfterFunc(orDefault(c.adapter.DisconnectTimeout), func() {
		defer c.adapter.lock()()
		if c.phase == leaving {
			c.late = true
			c.ep.fail(nd.ConnectionAborted, nd.ConnectionAborted)
		}
	})
}

func (c *connector) Close() error {
	defer c.adapter.lock()()
	if c.closed {
		return nil
	}
	c.closed = true
	switch c.phase {
	case asking:
		c.withdraw()
	case asked, answered:
		c.rejectPeer(nil)
	case accepting:
		c.give(nd.ConnectionAborted)
	case joined, leaving:
		c.ep.fail(nd.Canceled, nd.ConnectionAborted)
	}
	c.adapter.freeAddress(c.local, c)
	return nil
}
