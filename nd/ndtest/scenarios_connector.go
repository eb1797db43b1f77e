package ndtest

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
)

// dialing begins a Connect with a fresh connector.
func (c *conn) dialing(ctx context.Context, to netip.AddrPort) <-chan error {
	c.connector = c.connectorBound(0)
	connector, params := c.connector, c.shape.params()
	return c.begun(func() error { return connector.Connect(ctx, c.ep, to, params) })
}

// asked takes the next request of l into a fresh connector.
func (s *side) asked(l nd.Listener) nd.Connector {
	c := s.fresh()
	s.must(l.GetConnectionRequest(s.ctx, c))
	return c
}

// within checks the read limits of a connector.
func (s *side) within(c nd.Connector, mostIn, mostOut int) {
	in, out, err := c.ReadLimits()
	s.must(err)
	mostIn, mostOut = min(mostIn, int(s.info.MaxInboundReadLimit)), min(mostOut, int(s.info.MaxOutboundReadLimit))
	if in > mostIn || out > mostOut || in < 1 || out < 1 {
		s.errorf("read limits %d in and %d out, want 1 to %d and 1 to %d", in, out, mostIn, mostOut)
	}
}

var connectorScenarios = []scenario{
	{id: "C220", title: "the data of a Reject can be read at the active side", active: func(s *side) {
		c := s.prepare(shape{})
		s.want(nd.ConnectionRefused, s.ended(c.dialing(s.ctx, hear[netip.AddrPort](s))))
		got := c.privateData()
		want := make([]byte, s.info.MaxCalleeData)
		fill(want, 5)
		if string(got) != string(want) {
			s.errorf("%d bytes of private data, want the %d that were sent", len(got), len(want))
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		data := make([]byte, s.info.MaxCalleeData)
		fill(data, 5)
		s.must(s.asked(l).Reject(data))
	}},

	{id: "C221", title: "read limits are the smallest of both sides and the adapters", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		for _, want := range [][4]int{{100, 50, 4, 8}, {1 << 30, 1 << 30, 1 << 30, 1 << 30}} {
			c := s.prepare(shape{In: want[0], Out: want[1]})
			_, _, err := s.fresh().ReadLimits()
			s.want(nd.ConnectionInvalid, err)
			c.connect(to)
			s.within(c.connector, want[2], want[3])
			c.complete()
			c.alive()
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		for _, want := range [][4]int{{8, 4, 50, 100}, {1 << 30, 1 << 30, 1 << 30, 1 << 30}} {
			c := s.prepare(shape{In: want[0], Out: want[1]})
			c.request(l)
			s.within(c.connector, want[2], want[3])
			s.must(c.connector.Accept(s.ctx, c.ep, c.shape.params()))
			c.alive()
		}
	}},

	{id: "C222", title: "CompleteConnect without Connect", active: func(s *side) {
		s.want(nd.ConnectionInvalid, s.fresh().CompleteConnect(s.ctx))
		s.want(nd.ConnectionInvalid, s.connectorBound(0).CompleteConnect(s.ctx))
	}},

	{id: "C223", title: "Disconnect and NotifyDisconnect without a connection", active: func(s *side) {
		for _, c := range []nd.Connector{s.fresh(), s.connectorBound(0)} {
			s.want(nd.ConnectionInvalid, c.Disconnect(s.ctx))
			s.want(nd.ConnectionInvalid, c.NotifyDisconnect(s.ctx))
		}
	}},

	{id: "C224", title: "neither endpoint nor connector can be connected again", active: func(s *side) {
		c, unused := s.pair(shape{}), s.prepare(shape{})
		used := c.connector
		c.disconnect()
		to := hear[netip.AddrPort](s)
		for _, try := range []struct {
			connector nd.Connector
			ep        nd.Endpoint
		}{{s.connectorBound(0), c.ep}, {used, unused.ep}, {used, c.ep}} {
			err := try.connector.Connect(s.ctx, try.ep, to, c.shape.params())
			s.wantOneOf(err, nd.ConnectionActive, nd.ConnectionInvalid)
		}
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		l, addr := s.listen(0)
		c.disconnect()
		s.tell(addr)
		s.meetAfter(l)
	}},

	{id: "C225", title: "the peer's Disconnect leaves Receives outstanding until the own", active: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(1)
		s.meet()
		c.disconnect()
		c.receivesFlushed(0)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(2)
		s.meet()
		c.peerEnded()
		s.empty(c.cq)
		c.disconnect()
		c.receivesFlushed(0, 1)
	}},

	{id: "C226", title: "a Disconnect that the peer does not answer ends in IOTimeout, and both are flushed", active: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(1)
		s.meet()
		begin := time.Now()
		s.want(nd.IOTimeout, c.connector.Disconnect(s.ctx))
		if d := time.Since(begin); d < s.DisconnectTimeout*9/10 {
			s.errorf("gave up after %v, before %v", d, s.DisconnectTimeout)
		}
		c.receivesFlushed(0)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(2)
		s.meet()
		c.receivesFlushed(0, 1)
		c.peerEnded()
		c.dead()
		s.want(nd.ConnectionAborted, c.connector.Disconnect(s.ctx))
	}},

	{id: "C227", title: "the peer's process is killed while it is written to and read from", process: true, active: func(s *side) {
		const size = 1 << 20
		c := s.pair(shape{Region: size})
		c.receiveAny(2)
		s.tell("go")
		post := func(x uint64) {
			if x%2 == 0 {
				c.write(x, size)
			} else {
				c.read(x, size/2)
			}
		}
		const ahead = 6
		for x := range uint64(ahead) {
			post(x)
		}
		s.lone = true
		for x, left := uint64(0), ahead; left > 0; x++ {
			r := c.next(true)
			if r.Status == nd.Success {
				post(x + ahead)
				continue
			}
			c.check(r, nd.Canceled, x)
			left--
		}
		c.receivesFlushed(0, 1)
		c.peerEnded()
		c.dead()
		s.want(nd.ConnectionAborted, c.connector.Disconnect(s.ctx))
	}, passive: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		_ = hear[string](s)
		half := c.memory.mem[:1<<19]
		for range 4 { // until requests of the peer are under way
			c.read(1, len(half))
			c.done(nd.Success, 1)
		}
		s.die()
	}},

	{id: "C228", title: "a Connect that is canceled withdraws its request", active: func(s *side) {
		c := s.prepare(shape{})
		to := hear[netip.AddrPort](s)
		for range 2 {
			ctx, cancel := s.cancelable()
			connecting := c.dialing(ctx, to)
			s.pending(connecting)
			s.meet()
			cancel()
			s.want(nd.Canceled, s.ended(connecting))
			s.meet()
		}
		c.connect(to) // the endpoint is unchanged
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		c, unused := s.prepare(shape{}), s.prepare(shape{})
		l, addr := s.listen(0)
		s.tell(addr)
		taken := s.asked(l)
		s.meet()
		s.meet() // withdrawn while the program has it
		s.want(nd.ConnectionAborted, taken.Accept(s.ctx, unused.ep, c.shape.params()))
		s.meet()
		s.meet() // withdrawn while the listener has it: never seen, or dead
		c.acceptLasting(l)
		c.alive()
	}},
}

// acceptLasting accepts the first request that has not been withdrawn. Those before it are dead, if
// they are delivered at all.
func (c *conn) acceptLasting(l nd.Listener) {
	for {
		c.connector = c.fresh()
		c.must(l.GetConnectionRequest(c.ctx, c.connector))
		err := c.connector.Accept(c.ctx, c.ep, c.shape.params())
		if err == nil {
			c.data = c.privateData()
			return
		}
		c.want(nd.ConnectionAborted, err)
	}
}

// meetAfter meets the other half, and checks that no request has reached l until then.
func (s *side) meetAfter(l nd.Listener) {
	s.meet()
	err := l.GetConnectionRequest(s.brief(5*time.Millisecond), s.fresh())
	if !errors.Is(err, nd.Canceled) {
		s.errorf("a request has arrived, or %v", err)
	}
}
