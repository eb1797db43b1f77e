package ndtest

import (
	"context"
	"net/netip"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Connection requests in both directions, rejection, withdrawal.
var crossingScenarios = []scenario{
	{id: "C038", title: "40 bytes of private data arrive unchanged", active: func(s *side) {
		data := make([]byte, 40)
		fill(data, 38)
		c := s.prepare(connOptions{PrivateData: data})
		c.connect(hear[netip.AddrPort](s))
		c.completeConnect()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.connector = s.newConnector()
		s.must(l.GetConnectionRequest(s.ctx, c.connector))
		buf := make([]byte, 40)
		n, err := c.connector.GetPrivateData(buf)
		s.must(err)
		if n != len(buf) {
			s.errorf("GetPrivateData: %d bytes, want 40", n)
		}
		s.wantPattern(buf, 38)
		s.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
	}},
	{id: "C039", title: "PeerAddress of a connection request is the address of its sender", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		c := s.prepare(connOptions{})
		c.connector = s.newBoundConnector(0)
		local, err := c.connector.LocalAddress()
		s.must(err)
		s.tell(local)
		s.must(c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()))
		if peer, err := c.connector.PeerAddress(); err != nil || peer != to {
			s.errorf("Connect to %v: PeerAddress %v, %v, want that address", to, peer, err)
		}
		c.completeConnect()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		sender := hear[netip.AddrPort](s)
		c := s.prepare(connOptions{})
		c.getRequest(l)
		if peer, err := c.connector.PeerAddress(); err != nil || peer != sender {
			s.errorf("PeerAddress before Accept: %v, %v, want %v", peer, err, sender)
		}
		s.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
	}},
	{id: "C040", title: "of two connection requests in opposite directions, one is rejected and one accepted", active: func(s *side) {
		c := s.cross()
		c.must(c.taken.Reject(nil)) // like the higher of two ranks
		c.must(c.await(c.dialed))
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.cross()
		accepted := s.async(func() error { return c.taken.Accept(s.ctx, c.spare.ep, c.opts.connectParams()) })
		s.want(nd.ConnectionRefused, s.await(c.dialed))
		if n, err := c.connector.GetPrivateData(nil); err != nil || n != 0 {
			s.errorf("GetPrivateData after Reject(nil): %d bytes, %v, want 0", n, err)
		}
		s.must(s.await(accepted))
		c.spare.wantAlive()
	}},
	{id: "C041", title: "after a rejection a new connector takes the next request", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connector = s.newBoundConnector(0)
		to := hear[netip.AddrPort](s)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()))
		s.must(c.connector.Close())
		c.connect(to)
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.getRequest(l)
		s.must(c.connector.Reject(nil))
		s.must(c.connector.Close())
		c.accept(l)
		c.wantAlive()
	}},
	{id: "C042", title: "Flush completes the Receives of an endpoint whose Connect was refused", active: func(s *side) {
		c := s.prepare(connOptions{})
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		s.must(c.ep.Receive(2, c.sge(64, 64)))
		c.connector = s.newBoundConnector(0)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, hear[netip.AddrPort](s), c.opts.connectParams()))
		s.wantEmpty(c.cq) // a refused Connect does not change the endpoint
		s.must(c.ep.Flush(c.ctx))
		var results [3]nd.Result
		if n := c.cq.Poll(results[:]); n != 2 {
			s.fatalf("Poll after Flush: %d results, want 2", n)
		}
		c.checkResult(results[0], nd.Canceled, 1)
		c.checkResult(results[1], nd.Canceled, 2)
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.getRequest(l)
		s.must(c.connector.Reject(nil))
	}},
	{id: "C043", title: "messages of 4 bytes and of 0 bytes cross before Disconnect", active: closeHandshake, passive: closeHandshake},
	{id: "C044", title: "the passive side may send before its Accept has returned", active: func(s *side) {
		c := s.prepare(connOptions{})
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		c.connect(hear[netip.AddrPort](s))
		c.completeConnect()
		s.must(c.ep.Send(2, c.sge(64, 4), 0))
		c.wantResult(nd.Success, 2)
		if r := c.wantReceive(nd.Success, 1); r.BytesTransferred != 8 {
			s.errorf("result of the Receive: %d bytes, want 8", r.BytesTransferred)
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		c.getRequest(l)
		accepted := s.async(func() error { return c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()) })
		c.wantReceive(nd.Success, 1)
		s.must(c.ep.Send(2, c.sge(64, 8), 0))
		c.wantResult(nd.Success, 2)
		s.must(s.await(accepted))
	}},
	{id: "C045", title: "Accept returns although no call polls for the first message", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connect(hear[netip.AddrPort](s))
		c.completeConnect()
		s.must(c.ep.Send(2, c.sge(64, 4), 0))
		c.wantResult(nd.Success, 2)
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		c.accept(l)
		c.wantReceive(nd.Success, 1)
	}},
	{id: "C046", title: "Close of a connector ends its Connect and aborts the peer's Accept", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		for round := range 2 { // the listener delivers request 0; request 1 may be withdrawn before or after Connect sends it
			c := s.prepare(connOptions{PrivateData: []byte("withdrawn")})
			c.connector = s.newBoundConnector(0)
			dialed := s.async(func() error { return c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()) })
			s.barrier()
			s.wantPending(dialed)
			s.must(c.connector.Close())
			if err := s.await(dialed); round == 0 || err == nil {
				s.want(nd.Canceled, err)
			}
			s.barrier()
		}
		c := s.prepare(connOptions{PrivateData: []byte("lasting")})
		c.connect(to)
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.connector = s.newConnector()
		s.must(l.GetConnectionRequest(s.ctx, c.connector))
		s.barrier()
		s.barrier() // the peer has closed its connector
		s.want(nd.ConnectionAborted, c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		s.barrier()
		s.barrier() // the second request was withdrawn before GetConnectionRequest
		c = s.prepare(connOptions{})
		c.acceptLasting(l)
		if string(c.peerData) != "lasting" {
			s.errorf("accepted the request with data %q, want \"lasting\"", c.peerData)
		}
		c.wantAlive()
	}},
	{id: "C047", title: "a request whose sender canceled its Connect is aborted", active: func(s *side) {
		c := s.prepare(connOptions{PrivateData: []byte("gone")})
		c.connector = s.newBoundConnector(0)
		to := hear[netip.AddrPort](s)
		ctx, cancel := s.withCancel()
		dialed := s.async(func() error { return c.connector.Connect(ctx, c.ep, to, c.opts.connectParams()) })
		s.barrier() // the peer has the request
		cancel()
		s.want(nd.Canceled, s.await(dialed))
		s.barrier()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.connector = s.newConnector()
		s.must(l.GetConnectionRequest(s.ctx, c.connector))
		s.barrier()
		s.barrier() // the sender has canceled
		_, err := c.connector.GetPrivateData(make([]byte, 64))
		s.want(nd.ConnectionAborted, err)
		s.want(nd.ConnectionAborted, c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
	}},
	{id: "C048", title: "two connectors cannot bind one port", active: func(s *side) {
		free, err := s.newBoundConnector(0).LocalAddress()
		s.must(err)
		s.releaseAll()
		s.ad = s.openAdapter()
		one := s.newBoundConnector(free.Port())
		two := s.newConnector()
		s.want(nd.SharingViolation, two.Bind(free))
		s.ad = s.openAdapter()
		s.want(nd.SharingViolation, s.newConnector().Bind(free)) // through another adapter handle
		s.must(one.Close())
		s.must(two.Bind(free)) // the refused Binds had no effect
		if got, err := two.LocalAddress(); err != nil || got != free {
			s.errorf("LocalAddress: %v, %v, want %v", got, err, free)
		}
	}},
	{id: "C049", title: "a closed listener with a canceled call leaves nothing behind", active: func(s *side) {
		c := s.prepare(connOptions{})
		to := hear[netip.AddrPort](s)
		c.connect(to)
		c.completeConnect()
		c.disconnect()
		s.releaseAll()
		s.barrier()
		s.barrier() // the listener is closed
		s.ad = s.openAdapter()
		c = s.prepare(connOptions{})
		c.connector = s.newBoundConnector(0)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()))
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.accept(l)
		var o ndcompat.Overlapped
		var set ndcompat.OverlappedSet
		next := s.newConnector()
		s.must(set.Start(s.ctx, &o, func(ctx context.Context) error { return l.GetConnectionRequest(ctx, next) }))
		c.disconnect()
		s.barrier()
		s.want(nd.Pending, o.Result(false))
		set.Cancel()
		s.want(nd.Canceled, o.Result(false))
		s.releaseAll()
		s.barrier()
		s.ad = s.openAdapter()
		again, err := s.ad.CreateListener(s.ctx) // the address is free again
		s.must(err)
		s.must(again.Bind(addr))
		s.must(again.Close())
	}},
}

// crossed is one side of two connection requests in opposite directions.
type crossed struct {
	*conn
	dialed <-chan error // receives the error of this side's Connect
	spare  *conn        // accepts the peer's request
	taken  nd.Connector // holds the peer's request
}

// cross starts a Connect to the other side and takes the other side's request. Both sides call it.
func (s *side) cross() *crossed {
	l, addr := s.listen(0)
	s.tell(addr)
	to := hear[netip.AddrPort](s)
	x := &crossed{conn: s.prepare(connOptions{}), spare: s.prepare(connOptions{})}
	x.connector = s.newBoundConnector(0)
	x.dialed = s.async(func() error { return x.connector.Connect(s.ctx, x.ep, to, x.opts.connectParams()) })
	x.taken = s.newConnector()
	s.must(l.GetConnectionRequest(s.ctx, x.taken))
	return x
}

// closeHandshake is each side of the way in which ndmpic ends a connection. Each side sends close and
// replies to the other's close with close_ack.
func closeHandshake(s *side) {
	limits := nd.EndpointConfig{ReceiveDepth: 2, InitiatorDepth: 2, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}
	c := s.pair(connOptions{CQDepth: 4, Endpoint: limits, BeforeConnect: func(c *conn) {
		c.must(c.ep.Receive(1, c.sge(0, 64)))
		c.must(c.ep.Receive(2, c.sge(64, 64)))
	}})
	fill(c.memory.mem[128:132], uint64(c.role))
	s.must(c.ep.Send(3, c.sge(128, 4), 0))
	if r := c.wantReceive(nd.Success, 1); r.BytesTransferred != 4 {
		s.errorf("result of the Receive for close: %d bytes, want 4", r.BytesTransferred)
	}
	s.wantPattern(c.memory.mem[:4], uint64(1-c.role))
	s.must(c.ep.Send(4, nd.SGL{}, 0))
	if r := c.wantReceive(nd.Success, 2); r.BytesTransferred != 0 {
		s.errorf("result of the Receive for close_ack: %d bytes, want 0", r.BytesTransferred)
	}
	s.wantZero(c.memory.mem[64:128])
	c.wantResult(nd.Success, 3)
	c.wantResult(nd.Success, 4)
	c.disconnect()
	s.wantEmpty(c.cq)
}
