package ndtest

import "github.com/softnd/softnd/nd"

// windowSize is the size of the owner's window; 4 MiB in the table. excess is by how many bytes a request
// exceeds it.
const (
	windowSize = 1 << 20 // as titles of rows say
	excess     = 41
)

// sufferViolation is the side that a forbidden request targets. It binds a window to the first part of
// its region and, if stale, invalidates it. When the request breaks the connection, its Receive must be
// canceled, its memory unchanged, and its queue otherwise empty.
func sufferViolation(s *side, flags nd.RegionFlags, rights nd.OpFlags, stale bool) {
	const seed = 4
	c := s.pair(connOptions{RegionSize: windowSize + 4096, RegionFlags: flags, BeforeConnect: fillRegion(seed)})
	c.must(c.ep.Receive(1, nd.SGL{}))
	w := s.newWindow()
	d := c.bind(w, 0, windowSize, rights)
	if stale {
		c.invalidate(w)
	}
	s.tell(d)
	c.wantReceive(nd.Canceled, 1)
	c.wantDisconnected()
	c.wantPattern(c.memory.mem, seed)
	c.wantEmpty(c.cq)
}

// commitViolation is the side that posts one forbidden request and checks its result.
func commitViolation(s *side, request nd.RequestType, n int) {
	c := s.pair(connOptions{RegionSize: windowSize + 4096})
	d := c.hearDescriptor()
	if request == nd.RequestRead {
		c.must(c.ep.Read(1, c.sge(0, n), d.Address, d.Token, 0))
	} else {
		c.must(c.ep.Write(1, c.sge(0, n), d.Address, d.Token, 0))
	}
	r := c.wantResult(nd.AccessViolation, 1)
	c.wantLength(r, 0)
	if r.RequestType != request {
		c.errorf("result of a %v, want a %v", r.RequestType, request)
	}
	if n <= windowSize {
		c.wantZero(c.memory.mem) // no byte was transferred
	}
	c.wantErrorState()
}

var violationScenarios = []scenario{
	{id: "C079", title: "a Read through an invalidated window fails (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, true)
	}, passive: func(s *side) { commitViolation(s, nd.RequestRead, windowSize) }},
	{id: "C080", title: "a Read into a buffer one byte longer than its region fails in its result", active: func(s *side) {
		sufferViolation(s, 0, readWrite, false)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := c.hearDescriptor()
		short, err := s.ad.Register(s.ctx, c.memory.mem[:4096], nd.AllowLocalWrite)
		s.must(err)
		s.cleanup(func() { short.Close(c.ctx) })
		c.must(c.ep.Read(1, nd.One(nd.SGE{Buffer: c.memory.mem[:4097], Token: short.LocalToken()}), d.Address, d.Token, 0))
		c.wantResult(nd.AccessViolation, 1)
		c.wantZero(c.memory.mem[4096:])
		c.wantErrorState()
	}},
	{id: "C081", title: "a Write through an invalidated window fails (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, true)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize) }},
	{id: "C082", title: "the owner's Invalidate succeeds, and a later violation cancels its Receive", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, nd.SGL{}))
		w := s.newWindow()
		d := c.bind(w, 0, 4096, readWrite)
		c.must(c.ep.Invalidate(2, w, 0))
		if r := c.wantResult(nd.Success, 2); r.RequestType != nd.RequestInvalidate {
			c.errorf("result of a %v, want a Receive", r.RequestType)
		}
		c.wantEmpty(c.cq) // the Receive is still pending
		s.tell(d)
		if r := c.wantReceive(nd.Canceled, 1); r.RequestType != nd.RequestReceive {
			c.errorf("result of a %v, want a Receive", r.RequestType)
		}
		c.wantErrorState()
	}, passive: func(s *side) { commitViolation(s, nd.RequestRead, 4096) }},
	{id: "C083", title: "a window for writing on a region with remote rights only", active: func(s *side) {
		c := s.pair(connOptions{RegionFlags: nd.AllowRemoteRead | nd.AllowRemoteWrite})
		c.must(c.ep.Receive(1, nd.SGL{}))
		c.bindAndTell(0, 4096, readWrite)
		c.wantReceive(nd.Success, 1)
		c.wantPattern(c.memory.mem[:4096], 3)
	}, passive: func(s *side) {
		c := s.pair(connOptions{BeforeConnect: fillRegion(3)})
		d := c.hearDescriptor()
		c.write(0, 4096, d.Address, d.Token)
		c.read(0, 4096, d.Address, d.Token)
		c.sendDone()
	}},
	{id: "C084", title: "queues of depth 1: the entry is free when its result has been taken", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.must(c.ep.Send(1, c.sge(0, 64), 0))
		c.wantResult(nd.Success, 1)
		s.barrier()
		c.must(c.ep.Send(2, c.sge(0, 64), 0))
		c.wantResult(nd.Success, 2)
	}, passive: func(s *side) {
		c := s.pair(connOptions{CQDepth: 2, Endpoint: nd.EndpointConfig{ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}})
		c.must(c.ep.Receive(1, c.sge(0, 64)))
		s.want(nd.NoMoreEntries, c.ep.Receive(2, c.sge(0, 64)))
		s.barrier()
		c.wantReceive(nd.Success, 1)
		c.must(c.ep.Receive(2, c.sge(0, 64)))
		for i := range uint64(3) {
			c.must(c.ep.Read(i, c.sge(64, 64), c.peerRegion.Address, c.peerRegion.Token, 0))
			s.want(nd.NoMoreEntries, c.ep.Read(9, c.sge(64, 64), c.peerRegion.Address, c.peerRegion.Token, 0))
			c.wantResult(nd.Success, i)
		}
		s.barrier()
		c.wantReceive(nd.Success, 2)
	}},
	{id: "C095", title: "a Read of 41 bytes more than the window fails (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestRead, windowSize+excess) }},
	{id: "C096", title: "a Write of 41 bytes more than the window fails and stores nothing (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize+excess) }},
	{id: "C102", title: "a Write through a window for reading fails (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, nd.AllowRead, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize) }},
	{id: "C103", title: "a Write through a window for reading fails on a region with AllowLocalWrite (1 MiB)", active: func(s *side) {
		sufferViolation(s, nd.AllowLocalWrite, nd.AllowRead, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize) }},
}
