package ndtest

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
)

// startConnect starts a Connect with a new connector.
func (c *conn) startConnect(ctx context.Context, to netip.AddrPort) <-chan error {
	c.connector = c.newBoundConnector(0)
	connector, params := c.connector, c.opts.connectParams()
	return c.async(func() error { return connector.Connect(ctx, c.ep, to, params) })
}

// getRequest takes the next connection request of l into a new connector.
func (s *side) getRequest(l nd.Listener) nd.Connector {
	c := s.newConnector()
	s.must(l.GetConnectionRequest(s.ctx, c))
	return c
}

// wantReadLimits checks that the read limits of a connector are at least 1 and at most those given, or
// the adapter's if these are lower.
func (s *side) wantReadLimits(c nd.Connector, mostIn, mostOut int) {
	in, out, err := c.ReadLimits()
	s.must(err)
	mostIn, mostOut = min(mostIn, int(s.info.MaxInboundReadLimit)), min(mostOut, int(s.info.MaxOutboundReadLimit))
	if in > mostIn || out > mostOut || in < 1 || out < 1 {
		s.errorf("ReadLimits: %d in and %d out, want 1 to %d and 1 to %d", in, out, mostIn, mostOut)
	}
}

var connectorScenarios = []scenario{
	{id: "C220", title: "the active side can read the private data of a Reject", active: func(s *side) {
		c := s.prepare(connOptions{})
		s.want(nd.ConnectionRefused, s.await(c.startConnect(s.ctx, hear[netip.AddrPort](s))))
		got := c.privateData()
		want := make([]byte, s.info.MaxCalleeData)
		fill(want, 5)
		if string(got) != string(want) {
			s.errorf("GetPrivateData: %d bytes, or other ones, want the %d bytes of the Reject", len(got), len(want))
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		data := make([]byte, s.info.MaxCalleeData)
		fill(data, 5)
		s.must(s.getRequest(l).Reject(data))
	}},

	{id: "C221", title: "read limits are the minimum of both sides and the adapters", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		for _, want := range [][4]int{{100, 50, 4, 8}, {1 << 30, 1 << 30, 1 << 30, 1 << 30}} {
			c := s.prepare(connOptions{InboundReads: want[0], OutboundReads: want[1]})
			_, _, err := s.newConnector().ReadLimits()
			s.want(nd.ConnectionInvalid, err)
			c.connect(to)
			s.wantReadLimits(c.connector, want[2], want[3])
			c.completeConnect()
			c.wantAlive()
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		for _, want := range [][4]int{{8, 4, 50, 100}, {1 << 30, 1 << 30, 1 << 30, 1 << 30}} {
			c := s.prepare(connOptions{InboundReads: want[0], OutboundReads: want[1]})
			c.getRequest(l)
			s.wantReadLimits(c.connector, want[2], want[3])
			s.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
			c.wantAlive()
		}
	}},

	{id: "C222", title: "CompleteConnect without Connect is refused", active: func(s *side) {
		s.want(nd.ConnectionInvalid, s.newConnector().CompleteConnect(s.ctx))
		s.want(nd.ConnectionInvalid, s.newBoundConnector(0).CompleteConnect(s.ctx))
	}},

	{id: "C223", title: "Disconnect and NotifyDisconnect without a connection are refused", active: func(s *side) {
		for _, c := range []nd.Connector{s.newConnector(), s.newBoundConnector(0)} {
			s.want(nd.ConnectionInvalid, c.Disconnect(s.ctx))
			s.want(nd.ConnectionInvalid, c.NotifyDisconnect(s.ctx))
		}
	}},

	{id: "C224", title: "neither endpoint nor connector can be connected again", active: func(s *side) {
		c, unused := s.pair(connOptions{}), s.prepare(connOptions{})
		used := c.connector
		c.disconnect()
		to := hear[netip.AddrPort](s)
		for _, try := range []struct {
			connector nd.Connector
			ep        nd.Endpoint
		}{{s.newBoundConnector(0), c.ep}, {used, unused.ep}, {used, c.ep}} {
			err := try.connector.Connect(s.ctx, try.ep, to, c.opts.connectParams())
			s.wantOneOf(err, nd.ConnectionActive, nd.ConnectionInvalid)
		}
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		l, addr := s.listen(0)
		c.disconnect()
		s.tell(addr)
		s.barrierWithoutRequest(l)
	}},

	{id: "C225", title: "Receives stay outstanding after the peer's Disconnect, until this side disconnects", active: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(1)
		s.barrier()
		c.disconnect()
		c.wantReceivesFlushed(0)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(2)
		s.barrier()
		c.wantDisconnected()
		s.wantEmpty(c.cq)
		c.disconnect()
		c.wantReceivesFlushed(0, 1)
	}},

	{id: "C226", title: "a Disconnect that the peer does not answer fails with IOTimeout, and both sides are flushed", timed: true, active: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(1)
		s.barrier()
		begin := time.Now()
		s.want(nd.IOTimeout, c.connector.Disconnect(s.ctx))
		if d := time.Since(begin); d < s.DisconnectTimeout*9/10 {
			s.errorf("Disconnect returned after %v, want at least 9/10 of DisconnectTimeout (%v)", d, s.DisconnectTimeout)
		}
		c.wantReceivesFlushed(0)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(2)
		s.barrier()
		c.wantReceivesFlushed(0, 1)
		c.wantDisconnected()
		c.wantErrorState()
		s.want(nd.ConnectionAborted, c.connector.Disconnect(s.ctx))
	}},

	{id: "C227", title: "a peer that is killed during Writes and Reads breaks the connection", needsProcess: true, active: func(s *side) {
		const size = 1 << 20
		c := s.pair(connOptions{RegionSize: size})
		c.receiveAny(2)
		s.tell("go")
		post := func(x uint64) {
			if x%2 == 0 {
				c.postWrite(x, size)
			} else {
				c.postRead(x, size/2)
			}
		}
		const ahead = 6
		for x := range uint64(ahead) {
			post(x)
		}
		s.peerExits = true
		for x, left := uint64(0), ahead; left > 0; x++ {
			r := c.nextResult(true)
			if r.Status == nd.Success {
				post(x + ahead)
				continue
			}
			c.checkResult(r, nd.Canceled, x)
			left--
		}
		c.wantReceivesFlushed(0, 1)
		c.wantDisconnected()
		c.wantErrorState()
		s.want(nd.ConnectionAborted, c.connector.Disconnect(s.ctx))
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: 1 << 20})
		_ = hear[string](s)
		part := c.memory.mem[:1<<19]
		for range 4 { // long enough that requests of the peer are in progress
			c.postRead(1, len(part))
			c.wantResult(nd.Success, 1)
		}
		s.killProcess()
	}},

	{id: "C228", title: "a Connect that is canceled withdraws its request", active: func(s *side) {
		c := s.prepare(connOptions{})
		to := hear[netip.AddrPort](s)
		for range 2 {
			ctx, cancel := s.withCancel()
			connecting := c.startConnect(ctx, to)
			s.wantPending(connecting)
			s.barrier()
			cancel()
			s.want(nd.Canceled, s.await(connecting))
			s.barrier()
		}
		c.connect(to) // the canceled Connects have not changed the endpoint
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		c, unused := s.prepare(connOptions{}), s.prepare(connOptions{})
		l, addr := s.listen(0)
		s.tell(addr)
		taken := s.getRequest(l)
		s.barrier()
		s.barrier() // the first request was withdrawn after its delivery
		s.want(nd.ConnectionAborted, taken.Accept(s.ctx, unused.ep, c.opts.connectParams()))
		s.barrier()
		s.barrier() // the second request was withdrawn in the listener: it is not delivered, or aborted
		c.acceptLasting(l)
		c.wantAlive()
	}},
}

// acceptLasting accepts the first request that has not been withdrawn. Accept of a withdrawn request, if
// the listener delivers it, must fail with ConnectionAborted.
func (c *conn) acceptLasting(l nd.Listener) {
	for {
		c.connector = c.newConnector()
		c.must(l.GetConnectionRequest(c.ctx, c.connector))
		err := c.connector.Accept(c.ctx, c.ep, c.opts.connectParams())
		if err == nil {
			c.peerData = c.privateData()
			return
		}
		c.want(nd.ConnectionAborted, err)
	}
}

// barrierWithoutRequest is a barrier that also checks that no request has reached l.
func (s *side) barrierWithoutRequest(l nd.Listener) {
	s.barrier()
	err := l.GetConnectionRequest(s.withTimeout(5*time.Millisecond), s.newConnector())
	if !errors.Is(err, nd.Canceled) {
		s.errorf("GetConnectionRequest: %v, want Canceled, because no request was sent", err)
	}
}
