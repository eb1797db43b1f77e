package ndtest

import "github.com/softnd/softnd/nd"

// windowSize is how much the owner's window covers where the table says 4 MiB, excess by how much a
// request exceeds it.
const (
	windowSize = 1 << 20
	excess     = 41
)

// sufferViolation is the half whose memory an offence is aimed at. It lends the first part of its region,
// which is a little larger, takes the grant back if stale, and sees the end: its Receive is
// canceled, its memory is as it was, and there is no other result.
func sufferViolation(s *side, flags nd.RegionFlags, rights nd.OpFlags, stale bool) {
	const seed = 4
	c := s.pair(connOptions{RegionSize: windowSize + 4096, RegionFlags: flags, BeforeConnect: fillRegion(seed)})
	c.must(c.ep.Receive(1, nil))
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

// commitViolation is the half that makes one forbidden request and gets its status.
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
		c.errorf("the result is of a %v, want %v", r.RequestType, request)
	}
	if n <= windowSize {
		c.wantZero(c.memory.mem) // no byte came through
	}
	c.wantErrorState()
}

var violationScenarios = []scenario{
	{id: "C079", title: "Read through an invalidated window (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, true)
	}, passive: func(s *side) { commitViolation(s, nd.RequestRead, windowSize) }},
	{id: "C080", title: "a sink that is a byte longer than its region fails in the result", active: func(s *side) {
		sufferViolation(s, 0, readWrite, false)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := c.hearDescriptor()
		short, err := s.ad.Register(s.ctx, c.memory.mem[:4096], nd.AllowLocalWrite)
		s.must(err)
		s.cleanup(func() { short.Close() })
		c.must(c.ep.Read(1, []nd.SGE{{Buffer: c.memory.mem[:4097], Token: short.LocalToken()}}, d.Address, d.Token, 0))
		c.wantResult(nd.AccessViolation, 1)
		c.wantZero(c.memory.mem[4096:])
		c.wantErrorState()
	}},
	{id: "C081", title: "Write through an invalidated window (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, true)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize) }},
	{id: "C082", title: "the owner's Invalidate succeeds, and its Receive is canceled by the offence", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, nil))
		w := s.newWindow()
		d := c.bind(w, 0, 4096, readWrite)
		c.must(c.ep.Invalidate(2, w, 0))
		if r := c.wantResult(nd.Success, 2); r.RequestType != nd.RequestInvalidate {
			c.errorf("the result is of a %v", r.RequestType)
		}
		c.wantEmpty(c.cq) // the Receive waits still
		s.tell(d)
		if r := c.wantReceive(nd.Canceled, 1); r.RequestType != nd.RequestReceive {
			c.errorf("the result is of a %v", r.RequestType)
		}
		c.wantErrorState()
	}, passive: func(s *side) { commitViolation(s, nd.RequestRead, 4096) }},
	{id: "C083", title: "a window for writing over a region with no more than remote rights", active: func(s *side) {
		c := s.pair(connOptions{RegionFlags: nd.AllowRemoteRead | nd.AllowRemoteWrite})
		c.must(c.ep.Receive(1, nil))
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
	{id: "C084", title: "queues of depth 1: a slot is free when its result was taken", active: func(s *side) {
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
	{id: "C095", title: "Read of 41 bytes too many (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestRead, windowSize+excess) }},
	{id: "C096", title: "Write of 41 bytes too many stores nothing (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, readWrite, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize+excess) }},
	{id: "C102", title: "Write through a window for reading (1 MiB)", active: func(s *side) {
		sufferViolation(s, 0, nd.AllowRead, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize) }},
	{id: "C103", title: "the same where the region itself may be written (1 MiB)", active: func(s *side) {
		sufferViolation(s, nd.AllowLocalWrite, nd.AllowRead, false)
	}, passive: func(s *side) { commitViolation(s, nd.RequestWrite, windowSize) }},
}
