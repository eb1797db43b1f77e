package ndtest

import "github.com/softnd/softnd/nd"

// SendAndInvalidate with flags, and notifications.
var sendInvalidateFlagScenarios = []scenario{
	{id: "C157", title: "a SendAndInvalidate ends a Notify for solicited events only with SendAndSolicitEvent", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		s.barrier()
		for i := range uint64(3) {
			c.must(c.ep.Send(i, nd.SGL{}, 0))
			c.wantResult(nd.Success, i)
		}
		s.barrier() // the three messages have arrived
		s.barrier() // and the Notify is still pending
		c.sendInvalidate(100, d.Token, nd.SendAndSolicitEvent)
	}, passive: func(s *side) {
		c := s.pair(connOptions{SplitCQs: true})
		w := s.newWindow()
		s.tell(c.bind(w, 0, accessSize, readWrite))
		for i := range uint64(4) {
			c.must(c.ep.Receive(i, c.sge(inboxAt, inboxSize)))
		}
		first, _ := c.startNotify(c.rcq, nd.NotifySolicited)
		s.barrier()
		s.barrier()
		s.wantPending(first)
		s.barrier()
		s.must(s.await(first))
		var results [8]nd.Result
		if n := c.rcq.Poll(results[:]); n != 4 {
			s.fatalf("Poll after Notify: %d results, want 4", n)
		}
		for i, r := range results[:4] {
			if r.Status != nd.Success || r.RequestContext != uint64(i) {
				s.errorf("result %d is %+v, want Success of that request", i, r)
			}
		}
		if results[3].InvalidatedToken != w.RemoteToken() {
			s.errorf("the last result is %+v, want the token of the window", results[3])
		}
		second, stop := c.startNotify(c.rcq, nd.NotifySolicited)
		s.wantPending(second)
		stop()
	}},
	{id: "C158", title: "a plain Send does not end a Notify for solicited events", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.must(c.ep.Send(1, c.sge(0, 50), 0))
		c.wantResult(nd.Success, 1)
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{SplitCQs: true})
		c.postInbox()
		wait, stop := c.startNotify(c.rcq, nd.NotifySolicited)
		s.barrier()
		s.barrier() // the message has arrived
		for range 10 {
			s.wantPending(wait)
		}
		if r := c.wantReceive(nd.Success, inbox); r.BytesTransferred != 50 {
			s.errorf("result %+v, want 50 bytes", r)
		}
		stop()
	}},
	{id: "C159", title: "a failed Receive ends a Notify for solicited events", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.must(c.ep.Send(1, c.sge(0, inboxSize+1), 0))
		c.wantResult(nd.RemoteError, 1)
		c.wantBroken()
	}, passive: func(s *side) {
		c := s.pair(connOptions{SplitCQs: true})
		c.postInbox()
		wait, _ := c.startNotify(c.rcq, nd.NotifySolicited)
		s.barrier()
		s.must(s.await(wait))
		c.wantReceive(nd.BufferOverflow, inbox)
		c.wantBroken()
	}},
	{id: "C160", title: "an inline SendAndInvalidate copies its bytes when posted, from any memory", active: func(s *side) {
		n := s.inlineSize()
		c, d := windowUser(s, connOptions{Endpoint: nd.EndpointConfig{InlineSize: n}})
		source := make([]byte, n)
		fill(source, 8)
		c.must(c.ep.SendAndInvalidate(1, nd.One(nd.SGE{Buffer: source, Token: c.memory.mr.RemoteToken()}), d.Token, nd.Inline))
		clear(source)
		c.wantResult(nd.Success, 1)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		n := s.inlineSize()
		c.wantInvalidated(n, d.Token)
		s.wantPattern(c.memory.mem[inboxAt:inboxAt+n], 8)
		c.wantAlive()
	}},
	{id: "C161", title: "an inline SendAndInvalidate may have more than MaxInitiatorSGE entries", active: func(s *side) {
		s.inlineSize()
		n := int(s.info.MaxInitiatorSGE) + 1
		c, d := windowUser(s, connOptions{Endpoint: nd.EndpointConfig{InlineSize: n}})
		var sge []nd.SGE
		for i := range n {
			sge = append(sge, nd.SGE{Buffer: []byte{byte(i)}})
		}
		c.must(c.ep.SendAndInvalidate(1, nd.List(sge...), d.Token, nd.Inline))
		c.wantResult(nd.Success, 1)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		n := int(s.info.MaxInitiatorSGE) + 1
		c.wantInvalidated(n, d.Token)
		for i, b := range c.memory.mem[inboxAt : inboxAt+n] {
			if b != byte(i) {
				s.errorf("byte %[1]d is %[2]d, want %[1]d", i, b)
			}
		}
		c.wantAlive()
	}},
	{id: "C162", title: "an inline SendAndInvalidate that is too long is refused", active: func(s *side) {
		s.inlineSize()
		n := int(s.info.MaxInlineDataSize) // the largest size that an endpoint can have
		c, d := windowUser(s, connOptions{Endpoint: nd.EndpointConfig{InlineSize: n}})
		source := make([]byte, n+1)
		s.want(nd.BufferOverflow, c.ep.SendAndInvalidate(1, nd.One(nd.SGE{Buffer: source}), d.Token, nd.Inline))
		s.wantEmpty(c.cq)
		c.writeAndCheck(nd.Success, 0, 100, d, 0)
		c.sendInvalidate(100, d.Token, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		c.wantInvalidated(100, d.Token)
		c.wantAlive()
	}},
	{id: "C163", title: "a silent SendAndInvalidate makes no result at its sender", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.must(c.ep.SendAndInvalidate(1, c.sge(0, 100), d.Token, nd.SilentSuccess))
		s.barrier()
		c.must(c.ep.Send(2, nd.SGL{}, 0))
		c.wantResult(nd.Success, 2)
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		c.must(c.ep.Receive(1, nd.SGL{}))
		s.barrier()
		c.wantInvalidated(100, d.Token)
		c.wantReceive(nd.Success, 1)
		c.wantAlive()
	}},
	// A provider passes this row without an implementation of the fence if its initiator runs one request
	// at a time, or if its target serves requests in order. C137 and C245 need the fence.
	{id: "C165", title: "SendAndInvalidate with ReadFence waits for the data of an earlier Read (1 MiB)", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: 1 << 20})
		d := hear[nd.WindowDescriptor](s)
		c.must(c.ep.Read(1, c.sge(0, 1<<20), d.Address, d.Token, 0))
		c.must(c.ep.SendAndInvalidate(2, nd.SGL{}, d.Token, nd.ReadFence))
		c.wantResult(nd.Success, 1)
		s.wantAll(c.memory.mem, 4)
		if r := c.wantResult(nd.Success, 2); r.RequestType != nd.RequestSend {
			s.errorf("result of a %v, want a Send", r.RequestType)
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: 1 << 20})
		setAll(c.memory.mem, 4)
		d := c.bind(s.newWindow(), 0, 1<<20, nd.AllowRead)
		c.must(c.ep.Receive(inbox, nd.SGL{}))
		s.tell(d)
		c.wantInvalidated(0, d.Token)
		clear(c.memory.mem) // the Read is complete
		c.wantAlive()
	}},
	{id: "C166", title: "Writes before a SendAndInvalidate are visible when its message is received", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: large})
		for i, n := range writeSizes {
			d := hear[nd.WindowDescriptor](s)
			setAll(c.memory.mem[:n], byte(i+1))
			c.must(c.ep.Write(1, c.sge(0, n), d.Address, d.Token, 0))
			c.must(c.ep.SendAndInvalidate(2, nd.SGL{}, d.Token, 0))
			c.wantResult(nd.Success, 1)
			c.wantResult(nd.Success, 2)
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: large})
		w := s.newWindow()
		for i, n := range writeSizes {
			c.must(c.ep.Receive(inbox, nd.SGL{}))
			d := c.bind(w, 0, n, nd.AllowWrite)
			s.tell(d)
			c.wantInvalidated(0, d.Token)
			s.wantAll(c.memory.mem[:n], byte(i+1))
		}
		c.wantAlive()
	}},
}

var writeSizes = []int{1, 40, 41, 4096, 100_000, 1 << 20, large}

// inlineSize returns a legal size of inline requests, at most 100. It skips the row if there is none.
func (s *side) inlineSize() int {
	if s.info.MaxInlineDataSize == 0 {
		s.skipf("the adapter has no inline data (MaxInlineDataSize is 0)")
	}
	return min(int(s.info.MaxInlineDataSize), 100)
}
