package ndtest

import (
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// connectOnly is the active side up to the end of Connect.
func connectOnly(s *side) *conn {
	c := s.prepare(connOptions{})
	c.connect(hear[netip.AddrPort](s))
	return c
}

// acceptRefused is the passive side if the active side gives up after its Connect.
func acceptRefused(s *side) {
	c := s.prepare(connOptions{})
	l, addr := s.listen(0)
	s.tell(addr)
	c.getRequest(l)
	s.want(nd.ConnectionRefused, c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
}

// oversizedData returns private data that is one byte longer than limit.
func oversizedData(limit uint32) []byte {
	data := make([]byte, limit+1)
	fill(data, 8)
	return data
}

// connectOversized checks that Connect refuses private data that is one byte too long.
func (c *conn) connectOversized(to netip.AddrPort) {
	c.connector = c.newBoundConnector(0)
	err := c.connector.Connect(c.ctx, c.ep, to, nd.ConnectParams{PrivateData: oversizedData(c.info.MaxCallerData)})
	c.want(nd.InvalidBufferSize, err)
}

// acceptOversized takes a request and checks that Accept refuses private data that is one byte too long.
func acceptOversized(s *side) *conn {
	c := s.prepare(connOptions{})
	l, addr := s.listen(0)
	s.tell(addr)
	c.getRequest(l)
	err := c.connector.Accept(s.ctx, c.ep, nd.ConnectParams{PrivateData: oversizedData(s.info.MaxCalleeData)})
	s.want(nd.InvalidBufferSize, err)
	return c
}

// startConnect starts a Connect, which returns when the peer accepts or rejects.
func startConnect(s *side) (c *conn, done <-chan error) {
	c = s.prepare(connOptions{})
	c.connector = c.newBoundConnector(0)
	to := hear[netip.AddrPort](s)
	return c, s.async(func() error { return c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()) })
}

var connectErrorScenarios = []scenario{
	{id: "C068", title: "Connect to a closed listener is refused", active: func(s *side) {
		c := s.prepare(connOptions{})
		err := c.newBoundConnector(0).Connect(s.ctx, c.ep, hear[netip.AddrPort](s), c.opts.connectParams())
		s.want(nd.ConnectionRefused, err)
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.must(l.Close())
		s.tell(addr)
	}},
	{id: "C070", title: "the active side may reject after its Connect", active: func(s *side) {
		s.must(connectOnly(s).connector.Reject(nil))
	}, passive: acceptRefused},
	{id: "C071", title: "the active side may close its connector after its Connect", active: func(s *side) {
		s.must(connectOnly(s).connector.Close())
	}, passive: acceptRefused},
	{id: "C072", title: "Bind after Connect is refused", active: func(s *side) {
		c := connectOnly(s)
		s.want(nd.AddressAlreadyAssociated, c.connector.Bind(netip.AddrPortFrom(s.addr, 0)))
		s.must(c.connector.Reject(nil))
	}, passive: acceptRefused},
	{id: "C073", title: "Connect after Connect is refused without effect", active: func(s *side) {
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
	{id: "C074", title: "the active side may exit after its Connect", exits: true, ownProvider: true, remote: active, active: func(s *side) {
		connectOnly(s)
		s.exit()
	}, passive: func(s *side) {
		s.expectPeerExit()
		acceptRefused(s)
	}},
	{id: "C075", title: "Bind after Listen is refused", active: func(s *side) {
		l, addr := s.listen(0)
		s.want(nd.AddressAlreadyAssociated, l.Bind(addr))
		s.want(nd.AddressAlreadyAssociated, l.Bind(netip.AddrPortFrom(s.addr, 0)))
	}},
	{id: "C076", title: "Listen after Listen is refused", active: func(s *side) {
		l, addr := s.listen(0)
		s.want(nd.InvalidDeviceState, l.Listen(0))
		if again, err := l.LocalAddress(); err != nil || again != addr {
			s.errorf("LocalAddress after the second Listen: %v, %v, want it unchanged", again, err)
		}
	}},
	{id: "C077", title: "a listener of another adapter handle cannot bind the same address", active: func(s *side) {
		_, addr := s.listen(0)
		l, err := s.openAdapter().CreateListener(s.ctx)
		s.must(err)
		s.cleanup(func() { l.Close() })
		s.want(nd.SharingViolation, l.Bind(addr))
		s.must(l.Bind(netip.AddrPortFrom(s.addr, 0)))
	}},
	{id: "C078", title: "Connect to the unspecified address is refused", active: func(s *side) {
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
	{id: "C085", title: "Connect with too much private data is refused and sends no request", active: func(s *side) {
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
	{id: "C086", title: "after that refusal the same connector connects with data of the maximum size", active: func(s *side) {
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
	{id: "C087", title: "Accept with too much private data is refused, and the request stays pending", active: func(s *side) {
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
	{id: "C088", title: "after that refusal the same connector accepts with data of the maximum size", active: func(s *side) {
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

// wantPrivateData checks that the peer's private data is oversizedData without its last byte.
func (c *conn) wantPrivateData(limit uint32) {
	if len(c.peerData) != int(limit) {
		c.fatalf("GetPrivateData: %d bytes, want %d", len(c.peerData), limit)
	}
	c.wantPattern(c.peerData, 8)
}
