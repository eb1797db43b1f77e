package ndtest

import "github.com/softnd/softnd/nd"

// SendAndInvalidate with flags, and notifications.
var revokedWithFlags = []scenario{
	{id: "C157", title: "only a solicited SendAndInvalidate ends a Notify for solicited events", active: func(s *side) {
		c, d := borrower(s, shape{})
		s.meet()
		for i := range uint64(3) {
			c.must(c.ep.Send(i, nil, 0))
			c.done(nd.Success, i)
		}
		s.meet() // the three have arrived
		s.meet() // and have woken nobody
		c.takesBack(100, d.Token, nd.SendAndSolicitEvent)
	}, passive: func(s *side) {
		c := s.pair(shape{Split: true})
		w := s.window()
		s.tell(c.bind(w, 0, grantSize, readWrite))
		for i := range uint64(4) {
			c.must(c.ep.Receive(i, c.sge(inboxAt, inboxSize)))
		}
		first, _ := c.armed(c.rcq, nd.NotifySolicited)
		s.meet()
		s.meet()
		s.pending(first)
		s.meet()
		s.must(s.ended(first))
		var results [8]nd.Result
		if n := c.rcq.Poll(results[:]); n != 4 {
			s.fatalf("%d results are there at the wake-up, want 4", n)
		}
		for i, r := range results[:4] {
			if r.Status != nd.Success || r.RequestContext != uint64(i) {
				s.errorf("result %d is %+v", i, r)
			}
		}
		if results[3].InvalidatedToken != w.RemoteToken() {
			s.errorf("the last result is %+v", results[3])
		}
		second, stop := c.armed(c.rcq, nd.NotifySolicited)
		s.pending(second)
		stop()
	}},
	{id: "C158", title: "a plain Send does not end a Notify for solicited events", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		c.must(c.ep.Send(1, c.sge(0, 50), 0))
		c.done(nd.Success, 1)
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{Split: true})
		c.awaitMessage()
		wait, stop := c.armed(c.rcq, nd.NotifySolicited)
		s.meet()
		s.meet() // the message has arrived
		for range 10 {
			s.pending(wait)
		}
		if r := c.received(nd.Success, inbox); r.BytesTransferred != 50 {
			s.errorf("the result is %+v", r)
		}
		stop()
	}},
	{id: "C159", title: "a failed Receive ends a Notify for solicited events", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		c.must(c.ep.Send(1, c.sge(0, inboxSize+1), 0))
		c.done(nd.RemoteError, 1)
		c.isOver()
	}, passive: func(s *side) {
		c := s.pair(shape{Split: true})
		c.awaitMessage()
		wait, _ := c.armed(c.rcq, nd.NotifySolicited)
		s.meet()
		s.must(s.ended(wait))
		c.received(nd.BufferOverflow, inbox)
		c.isOver()
	}},
	{id: "C160", title: "an inline SendAndInvalidate takes its bytes at once, from any memory", active: func(s *side) {
		n := s.inlineSize()
		c, d := borrower(s, shape{Limits: nd.EndpointConfig{InlineSize: n}})
		source := make([]byte, n)
		fill(source, 8)
		c.must(c.ep.SendAndInvalidate(1, []nd.SGE{{Buffer: source, Token: c.memory.mr.RemoteToken()}}, d.Token, nd.Inline))
		clear(source)
		c.done(nd.Success, 1)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		n := s.inlineSize()
		c.tookBack(n, d.Token)
		s.holds(c.memory.mem[inboxAt:inboxAt+n], 8)
		c.alive()
	}},
	{id: "C161", title: "an inline SendAndInvalidate may have more entries than others", active: func(s *side) {
		s.inlineSize()
		n := int(s.info.MaxInitiatorSGE) + 1
		c, d := borrower(s, shape{Limits: nd.EndpointConfig{InlineSize: n}})
		var sge []nd.SGE
		for i := range n {
			sge = append(sge, nd.SGE{Buffer: []byte{byte(i)}})
		}
		c.must(c.ep.SendAndInvalidate(1, sge, d.Token, nd.Inline))
		c.done(nd.Success, 1)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		n := int(s.info.MaxInitiatorSGE) + 1
		c.tookBack(n, d.Token)
		for i, b := range c.memory.mem[inboxAt : inboxAt+n] {
			if b != byte(i) {
				s.errorf("byte %d is %d", i, b)
			}
		}
		c.alive()
	}},
	{id: "C162", title: "an inline SendAndInvalidate that is too long is refused", active: func(s *side) {
		s.inlineSize()
		n := int(s.info.MaxInlineDataSize) // no endpoint can grant more
		c, d := borrower(s, shape{Limits: nd.EndpointConfig{InlineSize: n}})
		source := make([]byte, n+1)
		s.want(nd.BufferOverflow, c.ep.SendAndInvalidate(1, []nd.SGE{{Buffer: source}}, d.Token, nd.Inline))
		s.empty(c.cq)
		c.writes(nd.Success, 0, 100, d, 0)
		c.takesBack(100, d.Token, 0)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		c.tookBack(100, d.Token)
		c.alive()
	}},
	{id: "C163", title: "a silent SendAndInvalidate leaves no result at its sender", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.must(c.ep.SendAndInvalidate(1, c.sge(0, 100), d.Token, nd.SilentSuccess))
		s.meet()
		c.must(c.ep.Send(2, nil, 0))
		c.done(nd.Success, 2)
		s.empty(c.cq)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		c.must(c.ep.Receive(1, nil))
		s.meet()
		c.tookBack(100, d.Token)
		c.received(nd.Success, 1)
		c.alive()
	}},
	// A provider that runs its requests strictly one after the other satisfies this row without
	// looking at the fence, and so does one whose target serves them in order: see C137 and C245.
	{id: "C165", title: "SendAndInvalidate with ReadFence lets an earlier Read (of 1 MiB) have its data", active: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		d := hear[nd.WindowDescriptor](s)
		c.must(c.ep.Read(1, c.sge(0, 1<<20), d.Address, d.Token, 0))
		c.must(c.ep.SendAndInvalidate(2, nil, d.Token, nd.ReadFence))
		c.done(nd.Success, 1)
		s.painted(c.memory.mem, 4)
		if r := c.done(nd.Success, 2); r.RequestType != nd.RequestSend {
			s.errorf("the result is of a %v", r.RequestType)
		}
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		paint(c.memory.mem, 4)
		d := c.bind(s.window(), 0, 1<<20, nd.AllowRead)
		c.must(c.ep.Receive(inbox, nil))
		s.tell(d)
		c.tookBack(0, d.Token)
		clear(c.memory.mem) // nobody reads it any more
		c.alive()
	}},
	{id: "C166", title: "what was written before SendAndInvalidate is there when its message is", active: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		for i, n := range writeSizes {
			d := hear[nd.WindowDescriptor](s)
			paint(c.memory.mem[:n], byte(i+1))
			c.must(c.ep.Write(1, c.sge(0, n), d.Address, d.Token, 0))
			c.must(c.ep.SendAndInvalidate(2, nil, d.Token, 0))
			c.done(nd.Success, 1)
			c.done(nd.Success, 2)
		}
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		w := s.window()
		for i, n := range writeSizes {
			c.must(c.ep.Receive(inbox, nil))
			d := c.bind(w, 0, n, nd.AllowWrite)
			s.tell(d)
			c.tookBack(0, d.Token)
			s.painted(c.memory.mem[:n], byte(i+1))
		}
		c.alive()
	}},
}

var writeSizes = []int{1, 40, 41, 4096, 100_000, 1 << 20}

// inlineSize returns a number of bytes that inline requests may have.
func (s *side) inlineSize() int {
	if s.info.MaxInlineDataSize == 0 {
		s.skipf("the adapter takes no inline data")
	}
	return min(int(s.info.MaxInlineDataSize), 100)
}
