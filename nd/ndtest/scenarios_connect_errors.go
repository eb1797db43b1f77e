package ndtest

import (
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// connectOnly is the active half up to the end of Connect, which is where these rows begin.
func connectOnly(s *side) *conn {
	c := s.prepare(connOptions{})
	c.connect(hear[netip.AddrPort](s))
	return c
}

// acceptRefused is the passive half of an active side that gives up after its Connect.
func acceptRefused(s *side) {
	c := s.prepare(connOptions{})
	l, addr := s.listen(0)
	s.tell(addr)
	c.getRequest(l)
	s.want(nd.ConnectionRefused, c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
}

// oversizedData is the private data that does not fit, with its last byte, and that fits, without it.
func oversizedData(limit uint32) []byte {
	data := make([]byte, limit+1)
	fill(data, 8)
	return data
}

// connectOversized tries to connect with a byte of private data too many.
func (c *conn) connectOversized(to netip.AddrPort) {
	c.connector = c.newBoundConnector(0)
	err := c.connector.Connect(c.ctx, c.ep, to, nd.ConnectParams{PrivateData: oversizedData(c.info.MaxCallerData)})
	c.want(nd.InvalidBufferSize, err)
}

// acceptOversized takes a request and tries to accept with a byte of private data too many.
func acceptOversized(s *side) *conn {
	c := s.prepare(connOptions{})
	l, addr := s.listen(0)
	s.tell(addr)
	c.getRequest(l)
	err := c.connector.Accept(s.ctx, c.ep, nd.ConnectParams{PrivateData: oversizedData(s.info.MaxCalleeData)})
	s.want(nd.InvalidBufferSize, err)
	return c
}

// startConnect starts a Connect that ends when the peer accepts.
func startConnect(s *side) (c *conn, done <-chan error) {
	c = s.prepare(connOptions{})
	c.connector = c.newBoundConnector(0)
	to := hear[netip.AddrPort](s)
	return c, s.async(func() error { return c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()) })
}

var connectErrorScenarios = []scenario{
	{id: "C068", title: "Connect to a listener that was closed", active: func(s *side) {
		c := s.prepare(connOptions{})
		err := c.newBoundConnector(0).Connect(s.ctx, c.ep, hear[netip.AddrPort](s), c.opts.connectParams())
		s.want(nd.ConnectionRefused, err)
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.must(l.Close())
		s.tell(addr)
	}},
	{id: "C070", title: "the active side rejects after its Connect", active: func(s *side) {
		s.must(connectOnly(s).connector.Reject(nil))
	}, passive: acceptRefused},
	{id: "C071", title: "the active side closes its connector after its Connect", active: func(s *side) {
		s.must(connectOnly(s).connector.Close())
	}, passive: acceptRefused},
	{id: "C072", title: "Bind after Connect", active: func(s *side) {
		c := connectOnly(s)
		s.want(nd.AddressAlreadyAssociated, c.connector.Bind(netip.AddrPortFrom(s.addr, 0)))
		s.must(c.connector.Reject(nil))
	}, passive: acceptRefused},
	{id: "C073", title: "Connect after Connect, which changes nothing", active: func(s *side) {
		c := s.prepare(connOptions{})
		addr := hear[netip.AddrPort](s)
		c.connect(addr)
		s.want(nd.ConnectionActive, c.connector.Connect(s.ctx, c.ep, addr, c.opts.connectParams()))
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.prepare(connOptions{})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.wantAlive()
	}},
	{id: "C074", title: "the active side exits after its Connect", exits: true, ownProvider: true, remote: active, active: func(s *side) {
		connectOnly(s)
		s.exit()
	}, passive: func(s *side) {
		s.expectPeerExit()
		acceptRefused(s)
	}},
	{id: "C075", title: "Bind of a listener that listens", active: func(s *side) {
		l, addr := s.listen(0)
		s.want(nd.AddressAlreadyAssociated, l.Bind(addr))
		s.want(nd.AddressAlreadyAssociated, l.Bind(netip.AddrPortFrom(s.addr, 0)))
	}},
	{id: "C076", title: "Listen twice", active: func(s *side) {
		l, addr := s.listen(0)
		s.want(nd.InvalidDeviceState, l.Listen(0))
		if again, err := l.LocalAddress(); err != nil || again != addr {
			s.errorf("the listener's address became %v (%v)", again, err)
		}
	}},
	{id: "C077", title: "a second listener, of another adapter handle, at the same address", active: func(s *side) {
		_, addr := s.listen(0)
		l, err := s.openAdapter().CreateListener(s.ctx)
		s.must(err)
		s.cleanup(func() { l.Close() })
		s.want(nd.SharingViolation, l.Bind(addr))
		s.must(l.Bind(netip.AddrPortFrom(s.addr, 0)))
	}},
	{id: "C078", title: "Connect to the unspecified address", active: func(s *side) {
		nowhere := netip.IPv6Unspecified()
		if s.addr.Unmap().Is4() {
			nowhere = netip.IPv4Unspecified()
		}
		_, addr := s.listen(0)
		c := s.prepare(connOptions{})
		connector := c.newBoundConnector(0)
		err := connector.Connect(s.ctx, c.ep, netip.AddrPortFrom(nowhere, addr.Port()), c.opts.connectParams())
		s.want(nd.BadNetworkName, err)
	}},
	{id: "C085", title: "Connect with too much private data sends nothing", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connectOversized(hear[netip.AddrPort](s))
		s.barrier()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		ctx, cancel := s.withCancel()
		c := s.newConnector()
		request := s.async(func() error { return l.GetConnectionRequest(ctx, c) })
		s.tell(addr)
		s.barrier()
		s.wantPending(request)
		cancel()
		s.want(nd.Canceled, s.await(request))
	}},
	{id: "C086", title: "the same connector with just as much as allowed", active: func(s *side) {
		data := oversizedData(s.info.MaxCallerData)
		c := s.prepare(connOptions{PrivateData: data[:len(data)-1]})
		addr := hear[netip.AddrPort](s)
		c.connectOversized(addr)
		s.must(c.connector.Connect(s.ctx, c.ep, addr, c.opts.connectParams()))
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.prepare(connOptions{})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.wantPrivateData(s.info.MaxCallerData)
		c.wantAlive()
	}},
	{id: "C087", title: "Accept with too much private data leaves the request pending", active: func(s *side) {
		_, done := startConnect(s)
		s.barrier()
		s.wantPending(done)
		s.barrier()
		s.want(nd.ConnectionRefused, s.await(done))
	}, passive: func(s *side) {
		c := acceptOversized(s)
		s.barrier()
		s.barrier()
		s.must(c.connector.Reject(nil))
	}},
	{id: "C088", title: "the same connector accepts with just as much as allowed", active: func(s *side) {
		c, done := startConnect(s)
		s.must(s.await(done))
		c.peerData = c.privateData()
		c.wantPrivateData(s.info.MaxCalleeData)
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		c := acceptOversized(s)
		data := oversizedData(s.info.MaxCalleeData)
		c.opts.PrivateData = data[:len(data)-1]
		s.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		c.wantAlive()
	}},
}

// wantPrivateData checks that the peer's private data is tooMuch without its last byte.
func (c *conn) wantPrivateData(limit uint32) {
	if len(c.peerData) != int(limit) {
		c.fatalf("%d bytes of private data, want %d", len(c.peerData), limit)
	}
	c.wantPattern(c.peerData, 8)
}
