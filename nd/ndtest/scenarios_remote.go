package ndtest

import (
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// pipeline is how many Reads the adapter lets an endpoint have in progress, as far as each of them
// can have some bytes of the usual region.
func (s *side) pipeline() int {
	return int(min(s.info.MaxOutboundReadLimit, s.info.MaxInitiatorQueueDepth, s.info.MaxCompletionQueueDepth, 4096))
}

// racers is how many connections C122 ends.
const racers = 8

// writes is how many Writes C117 has outstanding, if the adapter allows.
const writes = 256

var remoteScenarios = []scenario{
	{id: "C115", title: "Reads up to the pipeline's depth, of a side that allows none itself", active: func(s *side) {
		n := s.pipeline()
		entries := min(max(256, 2*n), int(s.info.MaxCompletionQueueDepth))
		c := s.pair(shape{CQ: entries, In: -1, Out: n, Limits: nd.EndpointConfig{InitiatorDepth: n}})
		s.tell(n)
		c.limits(0, min(n, hear[int](s)))
		part := len(c.memory.mem) / n
		for i := range n {
			c.must(c.ep.Read(uint64(i), c.sge(i*part, part), c.far.Address+uint64(i*part), c.far.Token, 0))
		}
		for i := range n {
			c.carried(c.done(nd.Success, uint64(i)), part)
		}
		c.holds(c.memory.mem[:n*part], 1)
	}, passive: func(s *side) {
		in := int(s.info.MaxInboundReadLimit)
		c := s.pair(shape{In: in, Before: filled(1)})
		s.tell(in)
		c.limits(min(in, hear[int](s)), 0)
	}},
	{id: "C116", title: "the passive side sends first", active: func(s *side) {
		c := s.prepare(shape{Before: filled(2)})
		c.must(c.ep.Receive(1, c.sge(0, nd.WindowDescriptorSize)))
		c.connect(hear[netip.AddrPort](s))
		c.complete()
		c.carried(c.received(nd.Success, 1), nd.WindowDescriptorSize)
		var d nd.WindowDescriptor
		s.must(d.UnmarshalBinary(c.memory.mem[:nd.WindowDescriptorSize]))
		c.store(64, 512, d.Address, d.Token)
		c.alive()
	}, passive: func(s *side) {
		c := s.prepare(shape{})
		w := s.window()
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[4096:8192], nd.AllowWrite))
		words, err := w.Descriptor().MarshalBinary()
		s.must(err)
		copy(c.memory.mem, words)
		c.must(c.ep.Send(2, c.sge(0, len(words)), 0))
		c.done(nd.Success, 1)
		c.done(nd.Success, 2)
		c.alive()
		want := make([]byte, 64+512)
		fill(want, 2)
		s.same(c.memory.mem[4096:][:512], want[64:])
	}},
	{id: "C117", title: "Writes up to the queue's depth (at most 256), in order", active: func(s *side) {
		n := int(min(writes, s.info.MaxInitiatorQueueDepth))
		c := s.pair(shape{Limits: nd.EndpointConfig{InitiatorDepth: n}, Before: filled(1)})
		d := c.borrow()
		for i := range n {
			c.must(c.ep.Write(uint64(i), c.sge(64*i, 64), d.Address+uint64(64*i), d.Token, 0))
		}
		for i := range n {
			c.carried(c.done(nd.Success, uint64(i)), 64)
		}
		s.tell(n)
		c.finish()
	}, passive: func(s *side) {
		c := s.pair(shape{Flags: nd.AllowRemoteWrite})
		c.must(c.ep.Receive(1, nil))
		c.lend(0, len(c.memory.mem), nd.AllowWrite)
		n := hear[int](s)
		c.received(nd.Success, 1)
		c.holds(c.memory.mem[:64*n], 1)
	}},
	{id: "C118", title: "the target's program sleeps", active: func(s *side) {
		c := s.pair(shape{Region: lent, Before: filled(1)})
		_ = hear[string](s)
		c.store(0, 512, c.far.Address, c.far.Token)
		c.fetch(0, lent, c.far.Address, c.far.Token)
		mine, theirs := make([]byte, 512), make([]byte, lent)
		fill(mine, 1)
		fill(theirs, 2)
		s.same(c.memory.mem, append(mine, theirs[512:]...))
		fill(c.memory.mem, 3)
		c.store(0, lent, c.far.Address, c.far.Token)
		s.tell("done")
		c.finish()
	}, passive: func(s *side) {
		c := s.pair(shape{Region: lent, Before: filled(2)})
		c.must(c.ep.Receive(1, nil))
		s.tell("asleep")
		_ = hear[string](s) // unlike meet it calls nothing of the provider before the peer is done
		c.received(nd.Success, 1)
		c.holds(c.memory.mem, 3)
	}},
	{id: "C119", title: "the adapter writes in order", active: func(s *side) {
		if !s.info.AdapterFlags.Has(nd.InOrderDMASupported) {
			s.errorf("the adapter's flags are %v", s.info.AdapterFlags)
		}
	}},
	{id: "C120", title: "Writes whose end is waited for in memory (up to 1 MiB)",
		active: func(s *side) { volley(s, false) }, passive: func(s *side) { volley(s, false) }},
	{id: "C121", title: "the answer to a Write lands in its source before its result was taken (up to 1 MiB)",
		active: func(s *side) { volley(s, true) }, passive: func(s *side) { volley(s, true) }},
	{id: "C122", title: "a last Send that races with the peer's Disconnect", active: func(s *side) {
		for range racers {
			c := s.pair(shape{})
			s.meet()
			c.must(c.ep.Send(1, c.sge(0, 1), 0))
			r := c.next(true)
			if r.RequestContext != 1 || r.Status != nd.Success && r.Status != nd.Canceled {
				s.errorf("the last Send ended with %v", r.Status)
			}
			c.endsSomehow()
		}
	}, passive: func(s *side) {
		for range racers {
			c := s.pair(shape{Before: func(c *conn) { c.must(c.ep.Receive(1, c.sge(0, 64))) }})
			s.meet()
			c.endsSomehow()
			if r := c.next(false); r.Status != nd.Success && r.Status != nd.Canceled {
				s.errorf("the Receive ended with %v", r.Status)
			}
		}
	}},
}

// endsSomehow disconnects; on a slow machine the peer may be late, which is not the point here.
func (c *conn) endsSomehow() {
	c.wantOneOf(c.connector.Disconnect(c.ctx), nd.Success, nd.IOTimeout, nd.ConnectionAborted)
}
