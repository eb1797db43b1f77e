package ndtest

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// unreceived is how large the message is that finds no Receive; 4 MiB in the table.
const unreceived = 1 << 20

// deepest returns the limits of an endpoint that is as large as can be.
func deepest(i nd.AdapterInfo) nd.EndpointConfig {
	return nd.EndpointConfig{
		ReceiveDepth: int(i.MaxReceiveQueueDepth), InitiatorDepth: int(i.MaxInitiatorQueueDepth),
		MaxReceiveSGE: int(i.MaxReceiveSGE), MaxInitiatorSGE: int(i.MaxInitiatorSGE),
		InlineSize: int(i.MaxInlineDataSize),
	}
}

// lendNothing binds a window without rights and tells the other half about it.
func lendNothing(s *side) (*conn, nd.MemoryWindow) {
	c := s.pair(shape{})
	w := s.window()
	c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:4096], 0))
	if r := c.done(nd.Success, 1); r.RequestType != nd.RequestBind {
		c.errorf("the result is of a %v", r.RequestType)
	}
	s.tell(w.Descriptor())
	return c, w
}

// refusesBuffer checks how Register refuses a buffer, and that the region can be used afterwards.
func (s *side) refusesBuffer(buf []byte, want nd.Status) {
	mr := s.emptyRegion()
	s.want(want, mr.Register(s.ctx, buf, nd.AllowLocalWrite))
	if mr.LocalToken() != 0 || mr.Bytes() != nil || mr.Address() != 0 {
		s.errorf("the region looks registered")
	}
	good := s.region(10, 0)
	s.must(mr.Register(s.ctx, good.mem, nd.AllowLocalWrite))
	s.must(mr.Deregister(s.ctx))
}

var memoryScenarios = []scenario{
	{id: "C069", title: "queues that are deeper than their completion queue", active: func(s *side) {
		c := s.prepare(shape{CQ: 2, Limits: nd.EndpointConfig{ReceiveDepth: 64, InitiatorDepth: 64, MaxReceiveSGE: 2, MaxInitiatorSGE: 2}})
		for i := range uint64(64) {
			c.must(c.ep.Receive(i, nil))
		}
	}},
	{id: "C089", title: "a receive queue deeper than the maximum", active: func(s *side) {
		limits := nd.EndpointConfig{Receive: s.queue(16), ReceiveDepth: int(s.info.MaxReceiveQueueDepth) + 1, InitiatorDepth: 1}
		limits.Initiator = limits.Receive
		_, err := s.ad.CreateEndpoint(s.ctx, limits)
		s.want(nd.InvalidParameter5, err)
	}},
	{id: "C090", title: "a window without rights can be bound, and grants nothing", active: func(s *side) {
		c, _ := lendNothing(s)
		c.peerEnded()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		d := c.borrow()
		c.must(c.ep.Read(1, c.sge(0, 8), d.Address, d.Token, 0))
		c.done(nd.AccessViolation, 1)
	}},
	{id: "C091", title: "Deregister while a window is bound, without effect", active: func(s *side) {
		c, w := lendNothing(s)
		s.want(nd.DeviceBusy, c.memory.mr.Deregister(s.ctx))
		if !nd.DeviceBusy.Failed() {
			s.errorf("DeviceBusy does not count as a failure")
		}
		s.meet()
		s.meet()
		c.invalidate(w)
		s.must(c.memory.mr.Deregister(s.ctx))
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.borrow()
		s.meet()
		c.fetch(0, 4096, c.far.Address, c.far.Token) // by the region's own token
		s.meet()
		c.alive()
	}},
	{id: "C092", title: "Disconnect unbinds: Deregister, then the region goes before its window", active: func(s *side) {
		c, w := lendNothing(s)
		s.want(nd.DeviceBusy, c.memory.mr.Deregister(s.ctx))
		s.meet()
		c.disconnect()
		s.must(c.memory.mr.Deregister(s.ctx))
		s.must(c.memory.mr.Close())
		s.must(w.Close())
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.borrow()
		s.meet()
		c.disconnect()
	}},
	{id: "C093", title: "Register without a buffer", active: func(s *side) {
		s.refusesBuffer(nil, nd.InvalidParameter)
	}},
	{id: "C094", title: "Register of an empty buffer", active: func(s *side) {
		s.refusesBuffer(make([]byte, 10)[:0], nd.InvalidBufferSize)
	}},
	{id: "C097", title: "an endpoint with all limits at their maximum", active: func(s *side) {
		s.prepare(shape{CQ: int(s.info.MaxCompletionQueueDepth), Limits: deepest(s.info)})
	}},
	{id: "C098", title: "a peer that disconnects and exits flushes a posted Receive", exits: true, own: true, away: active, active: func(s *side) {
		c := s.pair(shape{})
		err := c.connector.Disconnect(s.brief(20 * time.Millisecond)) // which starts it
		s.wantOneOf(err, nd.Canceled, nd.IOTimeout)
		s.exit()
	}, passive: func(s *side) {
		s.survive()
		c := s.pair(shape{Before: func(c *conn) { c.must(c.ep.Receive(1, c.sge(0, 64))) }})
		c.received(nd.Canceled, 1)
		c.peerEnded()
	}},
	{id: "C099", title: "Flush of an unconnected endpoint: one wait, two results", active: func(s *side) {
		c := s.prepare(shape{CQ: 2})
		c.must(c.ep.Receive(1, nil))
		c.must(c.ep.Receive(2, nil))
		c.must(c.ep.Flush())
		s.must(c.cq.Notify(s.ctx, nd.NotifyAny))
		results := make([]nd.Result, 3)
		if n := c.cq.Poll(results[:2]); n != 2 {
			s.fatalf("%d results after one wait, want 2", n)
		}
		for i, r := range results[:2] {
			c.check(r, nd.Canceled, uint64(i+1))
			if !c.owns(r, false) {
				s.errorf("result %+v", r)
			}
		}
		c.empty(c.cq)
	}},
	{id: "C100", title: "a Send without a Receive ends by itself (1 MiB)", active: func(s *side) {
		c := s.pair(shape{Region: unreceived})
		begin := time.Now()
		c.must(c.ep.Send(1, c.sge(0, unreceived), 0))
		c.done(nd.IOTimeout, 1) // the peer does nothing until the connection ends
		if d := time.Since(begin); d < s.ReceiveTimeout*9/10 {
			s.errorf("gave up after %v, before %v", d, s.ReceiveTimeout)
		}
		c.dead()
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.peerEnded()
		c.dead()
		s.meet()
	}},
	{id: "C101", title: "the side without a Receive gets no result (1 MiB)", active: func(s *side) {
		c := s.pair(shape{Region: unreceived})
		c.must(c.ep.Send(1, c.sge(0, unreceived), 0))
		c.done(nd.IOTimeout, 1)
		c.empty(c.cq)
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		s.meet() // the Send has ended
		c.peerEnded()
		c.empty(c.cq)
	}},
}
