package ndtest

import "github.com/softnd/softnd/nd"

var writeScenarios = []scenario{
	{id: "C183", title: "Write on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(shape{})
		s.want(nd.ConnectionInvalid, c.ep.Write(1, c.sge(0, 8), c.memory.mr.Address(), c.memory.mr.RemoteToken(), 0))
		s.empty(c.cq)
	}},
	{id: "C184", title: "100 silent Writes and another: one result, all data", active: func(s *side) {
		const n = 100
		c := s.pair(shape{Limits: nd.EndpointConfig{InitiatorDepth: n + 1}})
		fill(c.memory.mem, 6)
		for i := range uint64(n) {
			at := int(i) * 600
			c.must(c.ep.Write(i, c.sge(at, 600), c.far.Address+uint64(at), c.far.Token, nd.SilentSuccess))
		}
		c.must(c.ep.Write(n, c.sge(n*600, 600), c.far.Address+n*600, c.far.Token, 0))
		c.done(nd.Success, n)
		s.meet()
		s.empty(c.cq)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		want := make([]byte, len(c.memory.mem))
		fill(want, 6)
		clear(want[101*600:])
		if string(want) != string(c.memory.mem) {
			s.errorf("the data differ")
		}
		c.alive()
	}},
	{id: "C185", title: "a silent Write that fails leaves a result", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Write(1, c.sge(0, 100), c.far.Address, ^c.far.Token, nd.SilentSuccess))
		if r := c.done(nd.AccessViolation, 1); r.RequestType != nd.RequestWrite {
			s.errorf("the result is of a %v", r.RequestType)
		}
		c.isOver()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.isOver()
		s.blank(c.memory.mem)
	}},
	// A provider whose target serves requests in order satisfies this row without looking at the
	// fence: see C137 and C245.
	{id: "C186", title: "a Write with ReadFence leaves an earlier Read of its range (of 1 MiB) the old data", active: func(s *side) {
		const long = 1 << 20
		c := s.pair(shape{Region: 2 * long})
		paint(c.memory.mem[long:], afterwards)
		for range 3 {
			s.meet() // the old data are there
			c.must(c.ep.Read(1, c.sge(0, long), c.far.Address, c.far.Token, 0))
			c.must(c.ep.Write(2, c.sge(long, long), c.far.Address, c.far.Token, nd.ReadFence))
			c.done(nd.Success, 1)
			c.done(nd.Success, 2)
			s.painted(c.memory.mem[:long], beforehand)
			s.meet()
		}
	}, passive: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		for range 3 {
			paint(c.memory.mem, beforehand)
			s.meet()
			s.meet()
			s.painted(c.memory.mem, afterwards)
		}
	}},
	{id: "C187", title: "a Write lands at the address plus the client's offset", active: func(s *side) {
		c := s.pair(shape{})
		fill(c.memory.mem[:1000], 9)
		c.writes(nd.Success, 0, 1000, c.far, 12_345)
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		s.blank(c.memory.mem[:12_345])
		s.holds(c.memory.mem[12_345:13_345], 9)
		s.blank(c.memory.mem[13_345:])
	}},
	{id: "C188", title: "an empty Write succeeds with any address and token", active: func(s *side) {
		c := s.pair(shape{})
		for i, d := range []nd.WindowDescriptor{{}, {Address: ^uint64(0), Token: ^nd.Token(0)}, {Address: 1, Token: c.far.Token}} {
			c.must(c.ep.Write(uint64(i), nil, d.Address, d.Token, 0))
			if r := c.done(nd.Success, uint64(i)); r.BytesTransferred != 0 || r.RequestType != nd.RequestWrite {
				s.errorf("the result is %+v", r)
			}
		}
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.alive()
		s.blank(c.memory.mem)
	}},
	{id: "C189", title: "entries are gathered in order, and together may fill a window, no more", active: func(s *side) {
		c, d := borrower(s, shape{})
		fill(c.memory.mem[:3000], 1)
		copy(c.memory.mem[40_000:], c.memory.mem[:1000])
		copy(c.memory.mem[10_000:], c.memory.mem[1000:3000])
		sge := append(c.sge(40_000, 1000), c.sge(10_000, 2000)...) // no adapter takes fewer than two
		c.must(c.ep.Write(1, sge, d.Address, d.Token, 0))
		if r := c.done(nd.Success, 1); r.BytesTransferred != 3000 {
			s.errorf("%d bytes", r.BytesTransferred)
		}
		s.meet()
		s.meet() // the owner has looked
		sge[1] = c.sge(10_000, 2001)[0]
		c.must(c.ep.Write(2, sge, d.Address, d.Token, 0))
		c.done(nd.AccessViolation, 2)
		c.isOver()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		paint(c.memory.mem, 0xee)
		s.tell(c.bind(s.window(), 5000, 3000, nd.AllowWrite))
		s.meet()
		s.holds(c.memory.mem[5000:8000], 1)
		s.meet()
		c.isOver()
		s.painted(c.memory.mem[:5000], 0xee)
		s.painted(c.memory.mem[8000:], 0xee)
	}},
	{id: "C190", title: "a Write makes no result and no event at its target", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		fill(c.memory.mem, 1)
		for range 10 {
			c.writes(nd.Success, 0, 100, c.far, 0)
			c.writes(nd.Success, 0, len(c.memory.mem), c.far, 0)
		}
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		wait, stop := c.armed(c.cq, nd.NotifyAny)
		s.meet()
		s.meet() // they have written
		s.holds(c.memory.mem, 1)
		s.empty(c.cq)
		s.pending(wait)
		stop()
	}},
}
