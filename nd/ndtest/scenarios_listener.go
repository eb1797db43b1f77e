package ndtest

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// prepareMany prepares n small endpoints that share the completion queue and the region of the first.
func (s *side) prepareMany(n int) []*conn {
	small := connOptions{CQDepth: 16, RegionSize: 4096, Endpoint: nd.EndpointConfig{ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}}
	conns := []*conn{s.prepare(small)}
	small.ShareWith = conns[0]
	for len(conns) < n {
		conns = append(conns, s.prepare(small))
	}
	return conns
}

var listenerScenarios = []scenario{
	{id: "C230", title: "of three requests, a backlog of 1 keeps one and refuses two", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		type end struct {
			c   *conn
			err error
		}
		ends := make(chan end, 3)
		for _, c := range s.prepareMany(3) {
			c.connector = c.newBoundConnector(0)
			go func() { ends <- end{c, c.connector.Connect(s.ctx, c.ep, to, c.opts.connectParams())} }()
		}
		for range 2 {
			s.want(nd.ConnectionRefused, (<-ends).err) // at the watchdog's limit all three end
		}
		last := s.async(func() error {
			e := <-ends
			if e.err != nil {
				return e.err
			}
			return e.c.connector.CompleteConnect(s.ctx)
		})
		s.wantPending(last)
		s.barrier()
		s.must(s.await(last))
	}, passive: func(s *side) {
		l, addr := s.listen(1)
		s.tell(addr)
		s.barrier()
		s.prepare(connOptions{}).accept(l)
	}},

	{id: "C231", title: "a listener without a backlog limit delivers 100 requests that arrived early", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		var connecting []<-chan error
		for i, c := range s.prepareMany(earlyRequests) {
			c.opts.PrivateData = binary.BigEndian.AppendUint32(nil, uint32(i))
			connecting = append(connecting, c.startConnect(s.ctx, to))
		}
		s.wantPending(connecting[earlyRequests-1])
		s.barrier()
		for _, c := range connecting {
			s.want(nd.ConnectionRefused, s.await(c))
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		s.barrier()
		seen := make(map[uint32]bool)
		for range earlyRequests {
			c := &conn{side: s}
			c.getRequest(l)
			if len(c.peerData) != 4 {
				s.fatalf("GetPrivateData: %d bytes, want 4", len(c.peerData))
			}
			seen[binary.BigEndian.Uint32(c.peerData)] = true
			s.must(c.connector.Reject(nil))
		}
		if len(seen) != earlyRequests {
			s.errorf("%d different requests were delivered, want %d", len(seen), earlyRequests)
		}
	}},

	{id: "C232", title: "Bind to port 0 assigns an ephemeral port, which LocalAddress returns after Listen", active: func(s *side) {
		l, err := s.ad.CreateListener(s.ctx)
		s.must(err)
		s.cleanup(func() { l.Close() })
		_, err = l.LocalAddress()
		s.want(nd.InvalidDeviceState, err)
		s.must(l.Bind(netip.AddrPortFrom(s.addr, 0)))
		_, err = l.LocalAddress()
		s.want(nd.InvalidDeviceState, err)
		s.must(l.Listen(0))
		addr, err := l.LocalAddress()
		s.must(err)
		if addr.Addr() != s.addr || addr.Port() < nd.EphemeralPortFirst { // the last port is 65535
			s.errorf("LocalAddress: %v, want the adapter's address with an ephemeral port", addr)
		}
	}},

	{id: "C233", title: "a listener at the unspecified address accepts requests to each address", active: func(s *side) {
		for range hear[int](s) {
			c := s.prepare(connOptions{})
			c.connect(hear[netip.AddrPort](s))
			c.completeConnect()
			c.wantAlive()
		}
	}, passive: func(s *side) {
		list, err := s.ad.QueryAddressList()
		s.must(err)
		l, err := s.ad.CreateListener(s.ctx)
		s.must(err)
		s.cleanup(func() { l.Close() })
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
			c, at := s.prepare(connOptions{}), netip.AddrPortFrom(a, bound.Port())
			s.tell(at)
			c.accept(l)
			if local, err := c.connector.LocalAddress(); err != nil || local != at {
				s.errorf("LocalAddress of the connection: %v, %v, want %v", local, err, at)
			}
			c.wantAlive()
		}
	}},

	{id: "C234", title: "Close of a listener cancels its calls and refuses queued requests; connections stay", active: func(s *side) {
		for what := hear[string](s); what != "end"; what = hear[string](s) {
			c := s.prepare(connOptions{})
			to := hear[netip.AddrPort](s)
			c.connect(to)
			c.completeConnect()
			queued := []<-chan error{}
			if what == "queue" {
				for _, x := range s.prepareMany(2) {
					queued = append(queued, x.startConnect(s.ctx, to))
				}
				for _, q := range queued {
					s.wantPending(q)
				}
			}
			s.barrier()
			for _, q := range queued {
				s.want(nd.ConnectionRefused, s.await(q))
			}
			s.barrier() // the listener is closed
			s.want(nd.ConnectionRefused, s.await(s.prepareMany(1)[0].startConnect(s.ctx, to)))
			c.wantAlive()
		}
	}, passive: func(s *side) {
		retries := 0
		for what := "wait"; what != "end"; {
			s.tell(what)
			c := s.prepare(connOptions{})
			l, addr := s.listen(0)
			s.tell(addr)
			c.accept(l)
			var waiters []<-chan error
			if what == "wait" {
				for range 2 {
					w := s.async(getRequestFunc(s.ctx, l, s.newConnector()))
					s.wantPending(w)
					waiters = append(waiters, w)
				}
			}
			s.barrier()
			s.must(l.Close())
			var late error // of a call that began after the Close
			for _, w := range waiters {
				if err := s.await(w); retries < maxLateRetries && errors.Is(err, nd.InvalidDeviceState) {
					late = err
				} else {
					s.want(nd.Canceled, err)
				}
			}
			s.barrier()
			c.wantAlive()
			switch {
			case late != nil:
				retries++
				s.logf("a call began after the Close, so it is made again: %v", late)
			case what == "wait":
				what = "queue"
			default:
				what = "end"
			}
		}
		s.tell("end")
	}},
}

// maxLateRetries is the maximum number of times that C234 repeats its pending calls because one began after the Close. On a busy
// machine a goroutine may start its call later than wantPending waits.
const maxLateRetries = 20

// earlyRequests is the number of requests before the first GetConnectionRequest in C231.
const earlyRequests = 100

// getRequestFunc returns a GetConnectionRequest for async.
func getRequestFunc(ctx context.Context, l nd.Listener, c nd.Connector) func() error {
	return func() error { return l.GetConnectionRequest(ctx, c) }
}
