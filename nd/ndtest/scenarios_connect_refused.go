package ndtest

import (
	"context"
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Connections that do not come about.
var refusedScenarios = []scenario{
	{id: "C031", title: "a refused Connect leaves the other objects usable", active: func(s *side) {
		c := s.prepare(shape{})
		c.connector = s.connectorBound(0)
		nobody := hear[netip.AddrPort](s)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, nobody, c.shape.params()))

		full := hear[netip.AddrPort](s)
		ctx, cancel := s.cancelable()
		ends := make(chan error, 2)
		for range 2 {
			d := s.prepare(shape{With: c})
			d.connector = s.connectorBound(0)
			go func() { ends <- d.connector.Connect(ctx, d.ep, full, d.shape.params()) }()
		}
		s.want(nd.ConnectionRefused, s.ended(ends)) // one of them finds no place to wait
		s.pending(ends)
		cancel()
		s.want(nd.Canceled, s.ended(ends))

		s.pair(shape{With: c}).alive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.must(l.Close())
		s.tell(addr)
		_, addr = s.listen(1)
		s.tell(addr)
		s.pair(shape{}).alive()
	}},
	{id: "C032", title: "the same connector and endpoint connect at the second attempt", active: func(s *side) {
		c := s.prepare(shape{})
		c.connector = s.connectorBound(0)
		to := hear[netip.AddrPort](s)
		s.want(nd.ConnectionRefused, c.connector.Connect(s.ctx, c.ep, to, c.shape.params()))
		s.meet()
		s.meet() // now there is a listener
		s.must(c.connector.Bind(netip.AddrPortFrom(s.addr, 0)))
		s.must(c.connector.Connect(s.ctx, c.ep, to, c.shape.params()))
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		closed, addr := s.listen(0)
		s.must(closed.Close())
		s.tell(addr)
		s.meet()
		l := s.listenAt(addr)
		s.meet()
		c := s.prepare(shape{})
		c.accept(l)
		c.alive()
	}},
	{id: "C033", title: "canceled calls of a listener end in order, and leave it in use", active: func(s *side) {
		c := s.prepare(shape{})
		c.connect(hear[netip.AddrPort](s))
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		var set ndcompat.OverlappedSet
		events := make(chan *ndcompat.Overlapped, 4)
		connectors := make([]nd.Connector, 3)
		requests := make([]ndcompat.Overlapped, 3)
		for i := range requests {
			connectors[i] = s.fresh()
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
			s.fatalf("%d events of %d requests when Cancel returned", len(events), len(requests))
		}
		for i := range requests {
			if o := <-events; o != &requests[i] {
				s.errorf("the requests did not end in the order in which they were made")
			}
			s.want(nd.Canceled, requests[i].Result(false))
		}
		s.tell(addr)
		c := s.prepare(shape{})
		c.connector = connectors[1] // unused, as the call was canceled
		s.must(l.GetConnectionRequest(s.ctx, c.connector))
		s.must(c.connector.Accept(s.ctx, c.ep, c.shape.params()))
		c.alive()
	}},
	{id: "C034", title: "Flush after an Accept that failed because the peer left", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		c := s.prepare(shape{})
		c.connector = s.connectorBound(0)
		ctx, cancel := s.cancelable()
		dialed := s.begun(func() error { return c.connector.Connect(ctx, c.ep, to, c.shape.params()) })
		s.meet() // the request is there
		cancel()
		s.want(nd.Canceled, s.ended(dialed))
		s.meet()

		c = s.prepare(shape{})
		c.connect(to)
		s.must(c.connector.Close()) // in place of CompleteConnect
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		c := s.prepare(shape{})
		s.must(c.ep.Receive(3, c.sge(0, 64)))
		c.request(l)
		s.meet()
		s.meet() // the peer has left
		s.want(nd.ConnectionAborted, c.connector.Accept(s.ctx, c.ep, c.shape.params()))
		c.flushedOnce(3)

		c = s.prepare(shape{})
		s.must(c.ep.Receive(4, c.sge(0, 64)))
		c.request(l)
		s.want(nd.ConnectionRefused, c.connector.Accept(s.ctx, c.ep, c.shape.params()))
		c.flushedOnce(4)
	}},
	{id: "C244", title: "the result of a call that has not ended is Pending, and then its own", active: func(s *side) {
		s.pair(shape{}).alive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		c := s.prepare(shape{})
		c.connector = s.fresh()
		var o ndcompat.Overlapped
		s.must(o.Start(s.ctx, func(ctx context.Context) error { return l.GetConnectionRequest(ctx, c.connector) }))
		for range 3 {
			s.want(nd.Pending, o.Result(false))
		}
		s.tell(addr)
		s.must(o.Result(true))
		s.must(o.Result(false)) // as often as anybody asks
		s.must(c.connector.Accept(s.ctx, c.ep, c.shape.params()))
		s.tell(c.memory.far())
		c.far = hear[nd.WindowDescriptor](s)
		c.alive()
	}},
}

// flushedOnce flushes the endpoint, if that has not happened yet, and checks that its one receive
// completes with Canceled.
func (c *conn) flushedOnce(reqCtx uint64) {
	c.must(c.ep.Flush())
	c.receivesFlushed(reqCtx)
	c.empty(c.rcq)
}

// listenAt creates a listener at an address.
func (s *side) listenAt(addr netip.AddrPort) nd.Listener {
	l, err := s.ad.CreateListener(s.ctx)
	s.must(err)
	s.atEnd(func() { l.Close() })
	s.must(l.Bind(addr))
	s.must(l.Listen(0))
	return l
}
