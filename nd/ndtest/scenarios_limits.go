package ndtest

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// unreceivedSize is the size of the message without a Receive; 4 MiB in the table.
const unreceivedSize = 1 << 20

// maxLimits returns the configuration of an endpoint with all limits at the adapter's maximum.
func maxLimits(i nd.AdapterInfo) nd.EndpointConfig {
	return nd.EndpointConfig{
		ReceiveDepth: int(i.MaxReceiveQueueDepth), InitiatorDepth: int(i.MaxInitiatorQueueDepth),
		MaxReceiveSGE: int(i.MaxReceiveSGE), MaxInitiatorSGE: int(i.MaxInitiatorSGE),
		InlineSize: int(i.MaxInlineDataSize),
	}
}

// bindWithoutRights binds a window without rights and tells the other side its descriptor.
func bindWithoutRights(s *side) (*conn, nd.MemoryWindow) {
	c := s.pair(connOptions{})
	w := s.newWindow()
	c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:4096], 0))
	if r := c.wantResult(nd.Success, 1); r.RequestType != nd.RequestBind {
		c.errorf("result of a %v, want a Bind", r.RequestType)
	}
	s.tell(w.Descriptor())
	return c, w
}

// wantBufferRefused checks that Register of buf fails with status want, and that the region can then be
// registered with another buffer.
func (s *side) wantBufferRefused(buf []byte, want nd.Status) {
	mr := s.emptyRegion()
	s.want(want, mr.Register(s.ctx, buf, nd.AllowLocalWrite))
	if mr.LocalToken() != 0 || mr.Bytes() != nil || mr.Address() != 0 {
		s.errorf("the region has a token, bytes or an address after a refused Register, want none")
	}
	good := s.region(10, 0)
	s.must(mr.Register(s.ctx, good.mem, nd.AllowLocalWrite))
	s.must(mr.Deregister(s.ctx))
}

var limitScenarios = []scenario{
	{id: "C069", title: "queues may be deeper than their completion queue", active: func(s *side) {
		c := s.prepare(connOptions{CQDepth: 2, Endpoint: nd.EndpointConfig{ReceiveDepth: 64, InitiatorDepth: 64, MaxReceiveSGE: 2, MaxInitiatorSGE: 2}})
		for i := range uint64(64) {
			c.must(c.ep.Receive(i, nd.SGL{}))
		}
	}},
	{id: "C089", title: "a receive queue deeper than the maximum is refused", active: func(s *side) {
		limits := nd.EndpointConfig{ReceiveCQ: s.newQueue(16), ReceiveDepth: int(s.info.MaxReceiveQueueDepth) + 1, InitiatorDepth: 1}
		limits.InitiatorCQ = limits.ReceiveCQ
		_, err := s.ad.CreateEndpoint(s.ctx, limits)
		s.want(nd.InvalidParameter, err)
	}},
	{id: "C090", title: "a window without rights can be bound, and allows no access", active: func(s *side) {
		c, _ := bindWithoutRights(s)
		c.wantDisconnected()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := c.hearDescriptor()
		c.must(c.ep.Read(1, c.sge(0, 8), d.Address, d.Token, 0))
		c.wantResult(nd.AccessViolation, 1)
	}},
	{id: "C091", title: "Deregister fails without effect while a window is bound", active: func(s *side) {
		c, w := bindWithoutRights(s)
		s.want(nd.DeviceBusy, c.memory.mr.Deregister(s.ctx))
		if !nd.DeviceBusy.Failed() {
			s.errorf("Status.Failed of DeviceBusy is false, want true")
		}
		s.barrier()
		s.barrier()
		c.invalidate(w)
		s.must(c.memory.mr.Deregister(s.ctx))
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.hearDescriptor()
		s.barrier()
		c.read(0, 4096, c.peerRegion.Address, c.peerRegion.Token) // with the region's own token
		s.barrier()
		c.wantAlive()
	}},
	{id: "C092", title: "Disconnect unbinds windows: the region can be deregistered and closed before its window", active: func(s *side) {
		c, w := bindWithoutRights(s)
		s.want(nd.DeviceBusy, c.memory.mr.Deregister(s.ctx))
		s.barrier()
		c.disconnect()
		s.must(c.memory.mr.Deregister(s.ctx))
		s.must(c.memory.mr.Close(c.ctx))
		s.must(w.Close(c.ctx))
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.hearDescriptor()
		s.barrier()
		c.disconnect()
	}},
	{id: "C093", title: "Register of a nil buffer is refused", active: func(s *side) {
		s.wantBufferRefused(nil, nd.InvalidParameter)
	}},
	{id: "C094", title: "Register of an empty buffer is refused", active: func(s *side) {
		s.wantBufferRefused(make([]byte, 10)[:0], nd.InvalidBufferSize)
	}},
	{id: "C097", title: "an endpoint can have all limits at their maximum", active: func(s *side) {
		s.prepare(connOptions{CQDepth: int(s.info.MaxCompletionQueueDepth), Endpoint: maxLimits(s.info)})
	}},
	{id: "C098", title: "a peer that disconnects and exits flushes a posted Receive", exits: true, ownProvider: true, remote: active, active: func(s *side) {
		c := s.pair(connOptions{})
		err := c.connector.Disconnect(s.withTimeout(20 * time.Millisecond)) // starts the disconnection
		s.wantOneOf(err, nd.Canceled, nd.IOTimeout)
		s.exit()
	}, passive: func(s *side) {
		s.expectPeerExit()
		c := s.pair(connOptions{BeforeConnect: func(c *conn) { c.must(c.ep.Receive(1, c.sge(0, 64))) }})
		c.wantReceive(nd.Canceled, 1)
		c.wantDisconnected()
	}},
	{id: "C099", title: "Flush of an unconnected endpoint: one Notify, two results", active: func(s *side) {
		c := s.prepare(connOptions{CQDepth: 2})
		c.must(c.ep.Receive(1, nd.SGL{}))
		c.must(c.ep.Receive(2, nd.SGL{}))
		c.must(c.ep.Flush(c.ctx))
		s.must(c.cq.Notify(s.ctx, nd.NotifyAny))
		results := make([]nd.Result, 3)
		if n := c.cq.Poll(results[:2]); n != 2 {
			s.fatalf("Poll after one Notify: %d results, want 2", n)
		}
		for i, r := range results[:2] {
			c.checkResult(r, nd.Canceled, uint64(i+1))
			if !c.ownsResult(r, false) {
				s.errorf("result %+v, want one of a Receive of this endpoint", r)
			}
		}
		c.wantEmpty(c.cq)
	}},
	{id: "C100", title: "a Send without a Receive completes with IOTimeout (1 MiB)", timed: true, active: func(s *side) {
		c := s.pair(connOptions{RegionSize: unreceivedSize})
		begin := time.Now()
		c.must(c.ep.Send(1, c.sge(0, unreceivedSize), 0))
		c.wantResult(nd.IOTimeout, 1) // the peer posts no Receive
		if d := time.Since(begin); d < s.ReceiveTimeout*9/10 {
			s.errorf("the Send completed after %v, want at least 9/10 of ReceiveTimeout (%v)", d, s.ReceiveTimeout)
		}
		c.wantErrorState()
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.wantDisconnected()
		c.wantErrorState()
		s.barrier()
	}},
	{id: "C101", title: "the side without a Receive gets no result (1 MiB)", timed: true, active: func(s *side) {
		c := s.pair(connOptions{RegionSize: unreceivedSize})
		c.must(c.ep.Send(1, c.sge(0, unreceivedSize), 0))
		c.wantResult(nd.IOTimeout, 1)
		c.wantEmpty(c.cq)
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier() // the Send has ended
		c.wantDisconnected()
		c.wantEmpty(c.cq)
	}},
}
