package ndtest

import "github.com/softnd/softnd/nd"

// lent is how much the owner's window covers where the table says 4 MiB, excess by how much a
// request exceeds it.
const (
	lent   = 1 << 20
	excess = 41
)

// victim is the half whose memory an offence is aimed at. It lends the first part of its region,
// which is a little larger, takes the grant back if stale, and sees the end: its Receive is
// canceled, its memory is as it was, and there is no other result.
func victim(s *side, flags nd.RegionFlags, rights nd.OpFlags, stale bool) {
	const seed = 4
	c := s.pair(shape{Region: lent + 4096, Flags: flags, Before: filled(seed)})
	c.must(c.ep.Receive(1, nil))
	w := s.window()
	d := c.bind(w, 0, lent, rights)
	if stale {
		c.invalidate(w)
	}
	s.tell(d)
	c.received(nd.Canceled, 1)
	c.peerEnded()
	c.holds(c.memory.mem, seed)
	c.empty(c.cq)
}

// offend is the half that makes one forbidden request and gets its status.
func offend(s *side, request nd.RequestType, n int) {
	c := s.pair(shape{Region: lent + 4096})
	d := c.borrow()
	if request == nd.RequestRead {
		c.must(c.ep.Read(1, c.sge(0, n), d.Address, d.Token, 0))
	} else {
		c.must(c.ep.Write(1, c.sge(0, n), d.Address, d.Token, 0))
	}
	r := c.done(nd.AccessViolation, 1)
	c.carried(r, 0)
	if r.RequestType != request {
		c.errorf("the result is of a %v, want %v", r.RequestType, request)
	}
	if n <= lent {
		c.blank(c.memory.mem) // no byte came through
	}
	c.dead()
}

var violationScenarios = []scenario{
	{id: "C079", title: "Read through an invalidated window (1 MiB)", active: func(s *side) {
		victim(s, 0, readWrite, true)
	}, passive: func(s *side) { offend(s, nd.RequestRead, lent) }},
	{id: "C080", title: "a sink that is a byte longer than its region fails in the result", active: func(s *side) {
		victim(s, 0, readWrite, false)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		d := c.borrow()
		short, err := s.ad.Register(s.ctx, c.memory.mem[:4096], nd.AllowLocalWrite)
		s.must(err)
		s.atEnd(func() { short.Close() })
		c.must(c.ep.Read(1, []nd.SGE{{Buffer: c.memory.mem[:4097], Token: short.LocalToken()}}, d.Address, d.Token, 0))
		c.done(nd.AccessViolation, 1)
		c.blank(c.memory.mem[4096:])
		c.dead()
	}},
	{id: "C081", title: "Write through an invalidated window (1 MiB)", active: func(s *side) {
		victim(s, 0, readWrite, true)
	}, passive: func(s *side) { offend(s, nd.RequestWrite, lent) }},
	{id: "C082", title: "the owner's Invalidate succeeds, and its Receive is canceled by the offence", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, nil))
		w := s.window()
		d := c.bind(w, 0, 4096, readWrite)
		c.must(c.ep.Invalidate(2, w, 0))
		if r := c.done(nd.Success, 2); r.RequestType != nd.RequestInvalidate {
			c.errorf("the result is of a %v", r.RequestType)
		}
		c.empty(c.cq) // the Receive waits still
		s.tell(d)
		if r := c.received(nd.Canceled, 1); r.RequestType != nd.RequestReceive {
			c.errorf("the result is of a %v", r.RequestType)
		}
		c.dead()
	}, passive: func(s *side) { offend(s, nd.RequestRead, 4096) }},
	{id: "C083", title: "a window for writing over a region with no more than remote rights", active: func(s *side) {
		c := s.pair(shape{Flags: nd.AllowRemoteRead | nd.AllowRemoteWrite})
		c.must(c.ep.Receive(1, nil))
		c.lend(0, 4096, readWrite)
		c.received(nd.Success, 1)
		c.holds(c.memory.mem[:4096], 3)
	}, passive: func(s *side) {
		c := s.pair(shape{Before: filled(3)})
		d := c.borrow()
		c.store(0, 4096, d.Address, d.Token)
		c.fetch(0, 4096, d.Address, d.Token)
		c.finish()
	}},
	{id: "C084", title: "queues of depth 1: a slot is free when its result was taken", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		c.must(c.ep.Send(1, c.sge(0, 64), 0))
		c.done(nd.Success, 1)
		s.meet()
		c.must(c.ep.Send(2, c.sge(0, 64), 0))
		c.done(nd.Success, 2)
	}, passive: func(s *side) {
		c := s.pair(shape{CQ: 2, Limits: nd.EndpointConfig{ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}})
		c.must(c.ep.Receive(1, c.sge(0, 64)))
		s.want(nd.NoMoreEntries, c.ep.Receive(2, c.sge(0, 64)))
		s.meet()
		c.received(nd.Success, 1)
		c.must(c.ep.Receive(2, c.sge(0, 64)))
		for i := range uint64(3) {
			c.must(c.ep.Read(i, c.sge(64, 64), c.far.Address, c.far.Token, 0))
			s.want(nd.NoMoreEntries, c.ep.Read(9, c.sge(64, 64), c.far.Address, c.far.Token, 0))
			c.done(nd.Success, i)
		}
		s.meet()
		c.received(nd.Success, 2)
	}},
	{id: "C095", title: "Read of 41 bytes too many (1 MiB)", active: func(s *side) {
		victim(s, 0, readWrite, false)
	}, passive: func(s *side) { offend(s, nd.RequestRead, lent+excess) }},
	{id: "C096", title: "Write of 41 bytes too many stores nothing (1 MiB)", active: func(s *side) {
		victim(s, 0, readWrite, false)
	}, passive: func(s *side) { offend(s, nd.RequestWrite, lent+excess) }},
	{id: "C102", title: "Write through a window for reading (1 MiB)", active: func(s *side) {
		victim(s, 0, nd.AllowRead, false)
	}, passive: func(s *side) { offend(s, nd.RequestWrite, lent) }},
	{id: "C103", title: "the same where the region itself may be written (1 MiB)", active: func(s *side) {
		victim(s, nd.AllowLocalWrite, nd.AllowRead, false)
	}, passive: func(s *side) { offend(s, nd.RequestWrite, lent) }},
}
