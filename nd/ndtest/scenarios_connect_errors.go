package ndtest

import (
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// connected is the active half up to the end of Connect, which is where these rows begin.
func connected(s *side) *conn {
	c := s.prepare(shape{})
	c.connect(hear[netip.AddrPort](s))
	return c
}

// acceptTurnedDown is the passive half of an active side that gives up after its Connect.
func acceptTurnedDown(s *side) {
	c := s.prepare(shape{})
	l, addr := s.listen(0)
	s.tell(addr)
	c.request(l)
	s.want(nd.ConnectionRefused, c.connector.Accept(s.ctx, c.ep, c.shape.params()))
}

// tooMuch is the private data that does not fit, with its last byte, and that fits, without it.
func tooMuch(limit uint32) []byte {
	data := make([]byte, limit+1)
	fill(data, 8)
	return data
}

// connectWithTooMuch tries to connect with a byte of private data too many.
func (c *conn) connectWithTooMuch(to netip.AddrPort) {
	c.connector = c.connectorBound(0)
	err := c.connector.Connect(c.ctx, c.ep, to, nd.ConnectParams{PrivateData: tooMuch(c.info.MaxCallerData)})
	c.want(nd.InvalidBufferSize, err)
}

// acceptWithTooMuch takes a request and tries to accept with a byte of private data too many.
func acceptWithTooMuch(s *side) *conn {
	c := s.prepare(shape{})
	l, addr := s.listen(0)
	s.tell(addr)
	c.request(l)
	err := c.connector.Accept(s.ctx, c.ep, nd.ConnectParams{PrivateData: tooMuch(s.info.MaxCalleeData)})
	s.want(nd.InvalidBufferSize, err)
	return c
}

// connectMeanwhile starts a Connect that ends when the peer accepts.
func connectMeanwhile(s *side) (c *conn, done <-chan error) {
	c = s.prepare(shape{})
	c.connector = c.connectorBound(0)
	to := hear[netip.AddrPort](s)
	return c, s.begun(func() error { return c.connector.Connect(s.ctx, c.ep, to, c.shape.params()) })
}

var refusalScenarios = []scenario{
	{id: "C068", title: "Connect to a listener that was closed", active: func(s *side) {
		c := s.prepare(shape{})
		err := c.connectorBound(0).Connect(s.ctx, c.ep, hear[netip.AddrPort](s), c.shape.params())
		s.want(nd.ConnectionRefused, err)
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.must(l.Close())
		s.tell(addr)
	}},
	{id: "C070", title: "the active side rejects after its Connect", active: func(s *side) {
		s.must(connected(s).connector.Reject(nil))
	}, passive: acceptTurnedDown},
	{id: "C071", title: "the active side closes its connector after its Connect", active: func(s *side) {
		s.must(connected(s).connector.Close())
	}, passive: acceptTurnedDown},
	{id: "C072", title: "Bind after Connect", active: func(s *side) {
		c := connected(s)
		s.want(nd.AddressAlreadyAssociated, c.connector.Bind(netip.AddrPortFrom(s.addr, 0)))
		s.must(c.connector.Reject(nil))
	}, passive: acceptTurnedDown},
	{id: "C073", title: "Connect after Connect, which changes nothing", active: func(s *side) {
		c := s.prepare(shape{})
		addr := hear[netip.AddrPort](s)
		c.connect(addr)
		s.want(nd.ConnectionActive, c.connector.Connect(s.ctx, c.ep, addr, c.shape.params()))
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		c := s.prepare(shape{})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.alive()
	}},
	{id: "C074", title: "the active side exits after its Connect", exits: true, own: true, away: active, active: func(s *side) {
		connected(s)
		s.exit()
	}, passive: func(s *side) {
		s.survive()
		acceptTurnedDown(s)
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
		l, err := s.open().CreateListener(s.ctx)
		s.must(err)
		s.atEnd(func() { l.Close() })
		s.want(nd.SharingViolation, l.Bind(addr))
		s.must(l.Bind(netip.AddrPortFrom(s.addr, 0)))
	}},
	{id: "C078", title: "Connect to the unspecified address", active: func(s *side) {
		nowhere := netip.IPv6Unspecified()
		if s.addr.Unmap().Is4() {
			nowhere = netip.IPv4Unspecified()
		}
		_, addr := s.listen(0)
		c := s.prepare(shape{})
		connector := c.connectorBound(0)
		err := connector.Connect(s.ctx, c.ep, netip.AddrPortFrom(nowhere, addr.Port()), c.shape.params())
		s.want(nd.BadNetworkName, err)
	}},
	{id: "C085", title: "Connect with too much private data sends nothing", active: func(s *side) {
		c := s.prepare(shape{})
		c.connectWithTooMuch(hear[netip.AddrPort](s))
		s.meet()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		ctx, cancel := s.cancelable()
		c := s.fresh()
		request := s.begun(func() error { return l.GetConnectionRequest(ctx, c) })
		s.tell(addr)
		s.meet()
		s.pending(request)
		cancel()
		s.want(nd.Canceled, s.ended(request))
	}},
	{id: "C086", title: "the same connector with just as much as allowed", active: func(s *side) {
		data := tooMuch(s.info.MaxCallerData)
		c := s.prepare(shape{Data: data[:len(data)-1]})
		addr := hear[netip.AddrPort](s)
		c.connectWithTooMuch(addr)
		s.must(c.connector.Connect(s.ctx, c.ep, addr, c.shape.params()))
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		c := s.prepare(shape{})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.gotAll(s.info.MaxCallerData)
		c.alive()
	}},
	{id: "C087", title: "Accept with too much private data leaves the request pending", active: func(s *side) {
		_, done := connectMeanwhile(s)
		s.meet()
		s.pending(done)
		s.meet()
		s.want(nd.ConnectionRefused, s.ended(done))
	}, passive: func(s *side) {
		c := acceptWithTooMuch(s)
		s.meet()
		s.meet()
		s.must(c.connector.Reject(nil))
	}},
	{id: "C088", title: "the same connector accepts with just as much as allowed", active: func(s *side) {
		c, done := connectMeanwhile(s)
		s.must(s.ended(done))
		c.data = c.privateData()
		c.gotAll(s.info.MaxCalleeData)
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		c := acceptWithTooMuch(s)
		data := tooMuch(s.info.MaxCalleeData)
		c.shape.Data = data[:len(data)-1]
		s.must(c.connector.Accept(s.ctx, c.ep, c.shape.params()))
		c.alive()
	}},
}

// gotAll checks that the peer's private data is tooMuch without its last byte.
func (c *conn) gotAll(limit uint32) {
	if len(c.data) != int(limit) {
		c.fatalf("%d bytes of private data, want %d", len(c.data), limit)
	}
	c.holds(c.data, 8)
}
