package ndtest

import "github.com/softnd/softnd/nd"

// sendTooMuch is the active side of a message that is one byte larger than its Receive.
func sendTooMuch(s *side) *conn {
	c := s.pair(connOptions{BeforeConnect: fillRegion(1)})
	s.barrier()
	c.must(c.ep.Send(1, c.sge(0, 1024), 0))
	return c
}

// receiveTooMuch is the passive side of sendTooMuch.
func receiveTooMuch(s *side) *conn {
	c := s.pair(connOptions{})
	c.must(c.ep.Receive(2, c.sge(0, 1023)))
	s.barrier()
	return c
}

// fillRegion returns a function for connOptions.BeforeConnect that fills the region.
func fillRegion(seed uint64) func(*conn) {
	return func(c *conn) { fill(c.memory.mem, seed) }
}

var overflowScenarios = []scenario{
	{id: "C050", title: "a Receive that is too small completes with BufferOverflow", active: func(s *side) {
		sendTooMuch(s).wantDisconnected()
	}, passive: func(s *side) {
		c := receiveTooMuch(s)
		c.wantLength(c.wantReceive(nd.BufferOverflow, 2), 0)
		c.wantZero(c.memory.mem[1023:])
	}},
	{id: "C051", title: "the Send to a Receive that is too small completes with RemoteError", active: func(s *side) {
		c := sendTooMuch(s)
		c.wantLength(c.wantResult(nd.RemoteError, 1), 0)
	}, passive: func(s *side) {
		receiveTooMuch(s).wantDisconnected()
	}},
	{id: "C052", title: "after an overflow, all other requests of both sides are flushed", active: func(s *side) {
		c := s.pair(connOptions{})
		notice := s.async(func() error { return c.connector.NotifyDisconnect(s.ctx) })
		c.must(c.ep.Receive(1, c.sge(0, 64)))
		c.must(c.ep.Receive(2, c.sge(0, 64)))
		s.barrier()
		c.must(c.ep.Send(11, c.sge(0, 1024), 0))
		c.must(c.ep.Send(12, c.sge(0, 8), 0))
		c.must(c.ep.Write(13, c.sge(0, 8), c.peerRegion.Address, c.peerRegion.Token, nd.SilentSuccess))
		c.must(c.ep.Read(14, c.sge(0, 8), c.peerRegion.Address, c.peerRegion.Token, 0))
		c.wantResult(nd.RemoteError, 11)
		c.wantFlushed(12, 13, 14)
		c.wantReceivesFlushed(1, 2)
		c.wantErrorState()
		s.must(s.await(notice))
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		notice := s.async(func() error { return c.connector.NotifyDisconnect(s.ctx) })
		c.must(c.ep.Receive(1, c.sge(0, 1023)))
		c.must(c.ep.Receive(2, c.sge(0, 1024)))
		c.must(c.ep.Receive(3, nd.SGL{}))
		s.barrier()
		c.wantReceive(nd.BufferOverflow, 1)
		c.wantReceivesFlushed(2, 3)
		c.wantErrorState()
		s.must(s.await(notice))
	}},
	{id: "C053", title: "a Receive of exactly the message's size", active: func(s *side) {
		c := s.pair(connOptions{BeforeConnect: fillRegion(1)})
		s.barrier()
		c.must(c.ep.Send(1, c.sge(0, 1024), 0))
		c.wantLength(c.wantResult(nd.Success, 1), 1024)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(2, c.sge(0, 1024)))
		s.barrier()
		c.wantLength(c.wantReceive(nd.Success, 2), 1024)
		c.wantPattern(c.memory.mem[:1024], 1)
		c.wantAlive()
	}},
	{id: "C054", title: "a message one byte shorter than its Receive leaves the last byte unchanged", active: func(s *side) {
		c := s.pair(connOptions{BeforeConnect: fillRegion(1)})
		s.barrier()
		c.must(c.ep.Send(1, c.sge(0, 1023), 0))
		c.wantLength(c.wantResult(nd.Success, 1), 1023)
	}, passive: func(s *side) {
		const keep = 0x5a
		c := s.pair(connOptions{BeforeConnect: func(c *conn) { c.memory.mem[1023] = keep }})
		c.must(c.ep.Receive(2, c.sge(0, 1024)))
		s.barrier()
		c.wantLength(c.wantReceive(nd.Success, 2), 1023)
		c.wantPattern(c.memory.mem[:1023], 1)
		if got := c.memory.mem[1023]; got != keep {
			c.errorf("the byte after the message is %#x, want it unchanged", got)
		}
	}},
	{id: "C055", title: "both queues can have MaxReceiveQueueDepth with a completion queue of the maximum depth", active: func(s *side) {
		depth := int(s.info.MaxReceiveQueueDepth)
		c := s.prepare(connOptions{CQDepth: int(s.info.MaxCompletionQueueDepth),
			Endpoint: nd.EndpointConfig{ReceiveDepth: depth, InitiatorDepth: depth}})
		for i := range depth {
			c.must(c.ep.Receive(uint64(i), nd.SGL{}))
		}
	}},
}
