package ndtest

import (
	"context"
	"encoding/binary"
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// crowd prepares n small endpoints on the completion queue and the region of the first.
func (s *side) crowd(n int) []*conn {
	small := shape{CQ: 16, Region: 4096, Limits: nd.EndpointConfig{ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}}
	conns := []*conn{s.prepare(small)}
	small.With = conns[0]
	for len(conns) < n {
		conns = append(conns, s.prepare(small))
	}
	return conns
}

var listenerScenarios = []scenario{
	{id: "C230", title: "a backlog of 1 keeps one request and refuses two", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		type end struct {
			c   *conn
			err error
		}
		ends := make(chan end, 3)
		for _, c := range s.crowd(3) {
			c.connector = c.connectorBound(0)
			go func() { ends <- end{c, c.connector.Connect(s.ctx, c.ep, to, c.shape.params())} }()
		}
		for range 2 {
			s.want(nd.ConnectionRefused, (<-ends).err) // the watchdog ends all three
		}
		last := s.begun(func() error {
			e := <-ends
			if e.err != nil {
				return e.err
			}
			return e.c.connector.CompleteConnect(s.ctx)
		})
		s.pending(last)
		s.meet()
		s.must(s.ended(last))
	}, passive: func(s *side) {
		l, addr := s.listen(1)
		s.tell(addr)
		s.meet()
		s.prepare(shape{}).accept(l)
	}},

	{id: "C231", title: "without a backlog limit 100 early requests are all delivered", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		var connecting []<-chan error
		for i, c := range s.crowd(early) {
			c.shape.Data = binary.BigEndian.AppendUint32(nil, uint32(i))
			connecting = append(connecting, c.dialing(s.ctx, to))
		}
		s.pending(connecting[early-1])
		s.meet()
		for _, c := range connecting {
			s.want(nd.ConnectionRefused, s.ended(c))
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		s.meet()
		seen := make(map[uint32]bool)
		for range early {
			c := &conn{side: s}
			c.request(l)
			if len(c.data) != 4 {
				s.fatalf("%d bytes of private data", len(c.data))
			}
			seen[binary.BigEndian.Uint32(c.data)] = true
			s.must(c.connector.Reject(nil))
		}
		if len(seen) != early {
			s.errorf("%d different requests of %d", len(seen), early)
		}
	}},

	{id: "C232", title: "Bind to port 0 takes a port of the range, known from Listen on", active: func(s *side) {
		l, err := s.ad.CreateListener(s.ctx)
		s.must(err)
		s.atEnd(func() { l.Close() })
		_, err = l.LocalAddress()
		s.want(nd.InvalidDeviceState, err)
		s.must(l.Bind(netip.AddrPortFrom(s.addr, 0)))
		_, err = l.LocalAddress()
		s.want(nd.InvalidDeviceState, err)
		s.must(l.Listen(0))
		addr, err := l.LocalAddress()
		s.must(err)
		if addr.Addr() != s.addr || addr.Port() < nd.EphemeralPortFirst { // the last port is 65535
			s.errorf("listening at %v", addr)
		}
	}},

	{id: "C233", title: "a listener at the unspecified address takes requests to each address", active: func(s *side) {
		for range hear[int](s) {
			c := s.prepare(shape{})
			c.connect(hear[netip.AddrPort](s))
			c.complete()
			c.alive()
		}
	}, passive: func(s *side) {
		list, err := s.ad.QueryAddressList()
		s.must(err)
		l, err := s.ad.CreateListener(s.ctx)
		s.must(err)
		s.atEnd(func() { l.Close() })
		any := netip.IPv4Unspecified()
		if s.addr.Is6() {
			any = netip.IPv6Unspecified()
		}
		s.must(l.Bind(netip.AddrPortFrom(any, 0)))
		s.must(l.Listen(0))
		bound, err := l.LocalAddress()
		s.must(err)
		s.tell(len(list))
		for _, a := range list {
			c, at := s.prepare(shape{}), netip.AddrPortFrom(a, bound.Port())
			s.tell(at)
			c.accept(l)
			if local, err := c.connector.LocalAddress(); err != nil || local != at {
				s.errorf("the connection is at %v, %v; want %v", local, err, at)
			}
			c.alive()
		}
	}},

	{id: "C234", title: "Close of a listener ends its waiters and refuses its queue; connections live on", active: func(s *side) {
		for range 2 {
			c := s.prepare(shape{})
			to := hear[netip.AddrPort](s)
			c.connect(to)
			c.complete()
			queued := []<-chan error{}
			if hear[string](s) == "queue" {
				for _, x := range s.crowd(2) {
					queued = append(queued, x.dialing(s.ctx, to))
				}
				for _, q := range queued {
					s.pending(q)
				}
			}
			s.meet()
			for _, q := range queued {
				s.want(nd.ConnectionRefused, s.ended(q))
			}
			s.meet() // closed
			s.want(nd.ConnectionRefused, s.ended(s.crowd(1)[0].dialing(s.ctx, to)))
			c.alive()
		}
	}, passive: func(s *side) {
		for _, what := range []string{"wait", "queue"} {
			c := s.prepare(shape{})
			l, addr := s.listen(0)
			s.tell(addr)
			c.accept(l)
			var waiters []<-chan error
			if what == "wait" {
				for range 2 {
					w := s.begun(getting(s.ctx, l, s.fresh()))
					s.pending(w)
					waiters = append(waiters, w)
				}
			}
			s.tell(what)
			s.meet()
			s.must(l.Close())
			for _, w := range waiters {
				s.want(nd.Canceled, s.ended(w))
			}
			s.meet()
			c.alive()
		}
	}},
}

// early is how many requests come before the first GetConnectionRequest in C231.
const early = 100

func getting(ctx context.Context, l nd.Listener, c nd.Connector) func() error {
	return func() error { return l.GetConnectionRequest(ctx, c) }
}
