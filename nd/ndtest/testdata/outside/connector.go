package tiny

import (
	"bytes"
	"context"
	"net/netip"

	"github.com/softnd/softnd/nd"
)

type phase int

const (
	fresh     phase = iota
	waiting         // for a request, in GetConnectionRequest
	bound           // active side
	asking          // in Connect
	answered        // Connect has returned
	asked           // passive side: holds a request
	accepting       // in Accept
	joined          // connected
	leaving         // Disconnect was called
	ended           // by Disconnect of both sides
	aborted         // by force
	dead            // can never be connected
)

// connector establishes and ends one connection.
type connector struct {
	nd.UnsupportedConnector
	adapter       *adapter
	phase         phase
	closed        bool
	failure       nd.Status // the reason if Connect or Accept failed
	local, remote netip.AddrPort
	in, out       int // read limits
	data          []byte
	known         bool // the private data and limits of the peer are known
	gone          bool // the peer gave up before Accept
	peerEnded     bool // the peer has disconnected, or the connection was aborted
	late          bool // the peer did not disconnect in time
	ep            *endpoint
	peer          *connector
	listener      *listener // the listener that holds the request
}

func (c *connector) Bind(addr netip.AddrPort) error {
	const op = "bind"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase != fresh:
		return refuse(op, nd.AddressAlreadyAssociated, c.local.String())
	case addr.Addr().Unmap() != c.adapter.addr:
		return refuse(op, nd.InvalidAddress, addr.String())
	}
	local, status := c.adapter.take(netip.AddrPortFrom(c.adapter.addr, addr.Port()), c)
	if status == nd.Success {
		c.local, c.phase = local, bound
	}
	return refuse(op, status, addr.String())
}

// checkArguments checks the arguments of Connect and Accept.
func (c *connector) checkArguments(op string, given nd.Endpoint, p nd.ConnectParams) (*endpoint, error) {
	ep, ok := given.(*endpoint)
	switch {
	case !ok || ep.adapter != c.adapter:
		return nil, refuse(op, nd.InvalidParameter, "the endpoint is of another adapter")
	case len(p.PrivateData) > maxData:
		return nil, refuse(op, nd.InvalidBufferSize, "private data")
	case ep.state != idle || ep.released:
		return nil, refuse(op, nd.ConnectionActive, "the endpoint is in use, or was")
	}
	return ep, nil
}

func (c *connector) Connect(ctx context.Context, given nd.Endpoint, addr netip.AddrPort, p nd.ConnectParams) error {
	const op = "connect"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase == fresh:
		return refuse(op, nd.InvalidDeviceState, "not bound")
	case c.phase != bound:
		return refuse(op, nd.ConnectionActive, "the connector is in use, or was")
	case addr.Addr().IsUnspecified():
		return refuse(op, nd.BadNetworkName, addr.String())
	}
	ep, err := c.checkArguments(op, given, p)
	if err != nil {
		return err
	}
	c.ep, ep.state = ep, connecting
	c.remote = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	c.in, c.out, c.data = limit(p.InboundReadLimit), limit(p.OutboundReadLimit), bytes.Clone(p.PrivateData)
	c.phase, c.known = asking, false
	if l, ok := c.adapter.ports[c.remote].(*listener); !ok || !l.offer(c) {
		c.refused(nil)
	}
	if !c.adapter.wait(ctx, func() bool { return c.phase != asking || c.closed }) {
		c.withdraw()
		c.phase = bound
		return nd.CanceledError(ctx, op, "connector")
	}
	switch {
	case c.closed:
		return refuse(op, nd.Canceled, "the connector was closed")
	case c.phase == fresh:
		return refuse(op, nd.ConnectionRefused, addr.String())
	}
	return nil
}

func limit(n int) int { return min(max(n, 0), maxReads) }

// refused ends a Connect. The connector may be bound again.
func (c *connector) refused(data []byte) {
	c.releaseEndpoint()
	c.adapter.freeAddress(c.local, c)
	c.phase, c.data, c.known, c.local = fresh, bytes.Clone(data), true, netip.AddrPort{}
}

// releaseEndpoint makes the endpoint of a failed connection usable again.
func (c *connector) releaseEndpoint() {
	if c.ep != nil && c.ep.state == connecting {
		c.ep.state = idle
	}
	c.ep = nil
}

// withdraw withdraws this side's request.
func (c *connector) withdraw() {
	c.releaseEndpoint()
	if c.listener != nil {
		c.listener.drop(c)
	}
	if c.peer != nil {
		c.peer.gone = true
		c.peer, c.peer.peer = nil, nil
	}
}

func (c *connector) Accept(ctx context.Context, given nd.Endpoint, p nd.ConnectParams) error {
	const op = "accept"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase != asked:
		return refuse(op, nd.ConnectionInvalid, "there is no request")
	case c.gone:
		return refuse(op, nd.ConnectionAborted, "the peer has left")
	}
	ep, err := c.checkArguments(op, given, p)
	if err != nil {
		return err
	}
	c.ep, ep.state = ep, connecting
	c.in, c.out = min(c.in, limit(p.InboundReadLimit)), min(c.out, limit(p.OutboundReadLimit))
	a := c.peer
	a.in, a.out = min(a.in, c.out), min(a.out, c.in)
	a.data, a.known = bytes.Clone(p.PrivateData), true
	a.phase, c.phase = answered, accepting
	if !c.adapter.wait(ctx, func() bool { return c.phase != accepting || c.closed }) {
		c.give(nd.Canceled)
		return nd.CanceledError(ctx, op, "connector")
	}
	if c.closed {
		return refuse(op, nd.Canceled, "the connector was closed")
	}
	return refuse(op, c.failure, "the peer gave up")
}

// give ends the establishment at both sides.
func (c *connector) give(theirs nd.Status) {
	if p := c.peer; p != nil {
		p.releaseEndpoint()
		p.failure, p.phase = theirs, dead
	}
	c.releaseEndpoint()
	c.phase = dead
}

func (c *connector) CompleteConnect(ctx context.Context) error {
	const op = "complete connect"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase == dead && c.failure != nd.Success:
		return refuse(op, nd.ConnectionAborted, "the passive side is gone")
	case c.phase != answered:
		return refuse(op, nd.ConnectionInvalid, "no connection was accepted")
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "connector")
	}
	p := c.peer
	if c.ep.state != connecting || p.ep.state != connecting {
		c.give(nd.ConnectionRefused)
		return refuse(op, nd.ConnectionAborted, "an endpoint has failed")
	}
	for _, side := range []*connector{c, p} {
		side.phase = joined
		side.ep.state, side.ep.connector, side.ep.peer, side.ep.reads = connected, side, side.peer.ep, side.out
	}
	return nil
}

func (c *connector) Reject(private []byte) error {
	const op = "reject"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.phase == dead && c.failure != nd.Success || c.gone:
		return refuse(op, nd.ConnectionAborted, "the peer has left")
	case c.phase != asked && c.phase != answered:
		return refuse(op, nd.ConnectionInvalid, "there is nothing to reject")
	case len(private) > maxData:
		return refuse(op, nd.InvalidBufferSize, "private data")
	}
	c.rejectPeer(private)
	return nil
}

// rejectPeer rejects the peer.
func (c *connector) rejectPeer(private []byte) {
	if c.phase == asked && c.peer != nil {
		c.peer.refused(private)
		c.phase = dead
		c.peer, c.peer.peer = nil, nil
		return
	}
	c.give(nd.ConnectionRefused)
}

func (c *connector) ReadLimits() (inbound, outbound int, err error) {
	defer c.adapter.lock()()
	if !c.known || c.phase == fresh || c.closed {
		return 0, 0, refuse("read limits", nd.ConnectionInvalid, "no peer has told any")
	}
	return c.in, c.out, nil
}

func (c *connector) GetPrivateData(buf []byte) (int, error) {
	const op = "get private data"
	defer c.adapter.lock()()
	switch {
	case c.closed:
		return 0, refuse(op, nd.InvalidHandle, "the connector is closed")
	case c.gone:
		return 0, refuse(op, nd.ConnectionAborted, "the peer has left")
	case !c.known:
		return 0, refuse(op, nd.ConnectionInvalid, "no peer has sent any")
	case copy(buf, c.data) < len(c.data):
		return len(c.data), refuse(op, nd.BufferOverflow, "the buffer is too short")
	}
	return len(c.data), nil
}

func (c *connector) LocalAddress() (netip.AddrPort, error) {
	defer c.adapter.lock()()
	if !c.local.IsValid() || c.phase == dead || c.closed {
		return netip.AddrPort{}, refuse("local address", nd.ConnectionInvalid, "not bound")
	}
	return c.local, nil
}

func (c *connector) PeerAddress() (netip.AddrPort, error) {
	defer c.adapter.lock()()
	if !c.known || c.phase == fresh || c.phase == dead || c.closed {
		return netip.AddrPort{}, refuse("peer address", nd.ConnectionInvalid, "not connected")
	}
	return c.remote, nil
}
