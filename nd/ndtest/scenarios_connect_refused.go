package ndtest

import (
	"context"
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Connections that are refused, canceled or aborted.
var connectRefusedScenarios = []scenario{
	{id: "C031", title: "a refused Connect leaves the other objects usable", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connector = s.newBoundConnector(0)
		closed := hear[netip.AddrPort](s)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, closed, c.opts.connectParams()))

		full := hear[netip.AddrPort](s)
		ctx, cancel := s.withCancel()
		ends := make(chan error, 2)
		for range 2 {
			d := s.prepare(connOptions{ShareWith: c})
			d.connector = s.newBoundConnector(0)
			go func() { ends <- d.connector.Connect(ctx, d.ep, full, d.opts.connectParams()) }()
		}
		s.want(nd.ConnectionRefused, s.await(ends)) // the backlog has room for one of the two
		s.wantPending(ends)
		cancel()
		s.want(nd.Canceled, s.await(ends))

		s.pair(connOptions{ShareWith: c}).wantAlive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.must(l.Close())
		s.tell(addr)
		_, addr = s.listen(1)
		s.tell(addr)
		s.pair(connOptions{}).wantAlive()
	}},
	{id: "C032", title: "the same connector and endpoint connect at the second attempt", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connector = s.newBoundConnector(0)
		to := hear[netip.AddrPort](s)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()))
		s.barrier()
		s.barrier() // the peer listens again
		s.must(c.connector.Bind(netip.AddrPortFrom(s.addr, 0)))
		s.must(c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams()))
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		closed, addr := s.listen(0)
		s.must(closed.Close())
		s.tell(addr)
		s.barrier()
		l := s.listenAt(addr)
		s.barrier()
		c := s.prepare(connOptions{})
		c.accept(l)
		c.wantAlive()
	}},
	{id: "C033", title: "canceled calls of a listener end in order, and the listener stays usable", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connect(hear[netip.AddrPort](s))
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		var set ndcompat.OverlappedSet
		events := make(chan *ndcompat.Overlapped, 4)
		connectors := make([]nd.Connector, 3)
		requests := make([]ndcompat.Overlapped, 3)
		for i := range requests {
			connectors[i] = s.newConnector()
			requests[i].OnEnd = func(o *ndcompat.Overlapped) { events <- o }
			s.must(set.Start(s.ctx, &requests[i], func(ctx context.Context) error {
				return l.GetConnectionRequest(ctx, connectors[i])
			}))
		}
		time.Sleep(10 * time.Millisecond)
		for i := range requests {
			s.want(nd.Pending, requests[i].Result(false))
		}
		set.Cancel()
		if len(events) != len(requests) {
			s.fatalf("%d calls have ended when Cancel returned, want %d", len(events), len(requests))
		}
		for i := range requests {
			if o := <-events; o != &requests[i] {
				s.errorf("the canceled calls ended in another order than they started")
			}
			s.want(nd.Canceled, requests[i].Result(false))
		}
		s.tell(addr)
		c := s.prepare(connOptions{})
		c.connector = connectors[1] // usable, because its call was canceled
		s.must(l.GetConnectionRequest(s.ctx, c.connector))
		s.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		c.wantAlive()
	}},
	{id: "C034", title: "Flush after an Accept that failed because the peer withdrew", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		c := s.prepare(connOptions{})
		c.connector = s.newBoundConnector(0)
		ctx, cancel := s.withCancel()
		dialed := s.async(func() error { return c.connector.Connect(ctx, c.ep, to, c.opts.connectParams()) })
		s.barrier() // the peer has the request
		cancel()
		s.want(nd.Canceled, s.await(dialed))
		s.barrier()

		c = s.prepare(connOptions{})
		c.connect(to)
		s.must(c.connector.Close()) // in place of CompleteConnect
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(connOptions{})
		s.must(c.ep.Receive(3, c.sge(0, 64)))
		c.getRequest(l)
		s.barrier()
		s.barrier() // the peer has withdrawn its request
		s.want(nd.ConnectionAborted, c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		c.wantOneFlushed(3)

		c = s.prepare(connOptions{})
		s.must(c.ep.Receive(4, c.sge(0, 64)))
		c.getRequest(l)
		s.want(nd.ConnectionRefused, c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		c.wantOneFlushed(4)
	}},
	{id: "C244", title: "the result of an overlapped call is Pending until the call ends", active: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		c := s.prepare(connOptions{})
		c.connector = s.newConnector()
		var o ndcompat.Overlapped
		s.must(o.Start(s.ctx, func(ctx context.Context) error { return l.GetConnectionRequest(ctx, c.connector) }))
		for range 3 {
			s.want(nd.Pending, o.Result(false))
		}
		s.tell(addr)
		s.must(o.Result(true))
		s.must(o.Result(false)) // every later call returns the same
		s.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		s.tell(c.memory.descriptor())
		c.peerRegion = hear[nd.WindowDescriptor](s)
		c.wantAlive()
	}},
}

// wantOneFlushed calls Flush and checks that the only Receive completes with Canceled.
func (c *conn) wantOneFlushed(reqCtx uint64) {
	c.must(c.ep.Flush(c.ctx))
	c.wantReceivesFlushed(reqCtx)
	c.wantEmpty(c.rcq)
}

// listenAt creates a listener at addr.
func (s *side) listenAt(addr netip.AddrPort) nd.Listener {
	l, err := s.ad.CreateListener(s.ctx)
	s.must(err)
	s.cleanup(func() { l.Close() })
	s.must(l.Bind(addr))
	s.must(l.Listen(0))
	return l
}
