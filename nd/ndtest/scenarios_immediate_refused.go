package ndtest

import "github.com/softnd/softnd/nd"

var immediateFlagScenarios = []scenario{
	{id: "X120", title: "inline requests with a number copy their bytes when posted, from any memory", active: func(s *side) {
		n := s.inlineSize()
		c := s.immediatePair(connOptions{Endpoint: nd.EndpointConfig{InlineSize: n}})
		source := make([]byte, n+1)
		fill(source[:n], 8)
		long, short := nd.One(nd.SGE{Buffer: source}), nd.One(nd.SGE{Buffer: source[:n], Token: c.memory.mr.RemoteToken()})
		s.want(nd.BufferOverflow, c.ep.SendImmediate(1, long, 5, nd.Inline))
		s.want(nd.BufferOverflow, c.ep.WriteImmediate(1, long, c.peerRegion.Address, c.peerRegion.Token, 5, nd.Inline))
		s.barrier()
		c.must(c.ep.SendImmediate(1, short, 5, nd.Inline))
		c.must(c.ep.WriteImmediate(2, short, c.peerRegion.Address, c.peerRegion.Token, 6, nd.Inline))
		clear(source)
		c.wantDone(nd.RequestSend, 1, n)
		c.wantDone(nd.RequestWrite, 2, n)
	}, passive: func(s *side) {
		n := s.inlineSize()
		c := s.immediatePair(connOptions{Endpoint: nd.EndpointConfig{InlineSize: n}})
		c.must(c.ep.Receive(1, c.sge(4096, n)))
		c.must(c.ep.Receive(2, nd.SGL{}))
		s.barrier()
		c.wantNumber(nd.RequestReceiveImmediate, 1, n, 5)
		c.wantNumber(nd.RequestReceiveWriteImmediate, 2, n, 6)
		s.wantPattern(c.memory.mem[4096:4096+n], 8)
		s.wantPattern(c.memory.mem[:n], 8)
	}},
	{id: "X121", title: "silent requests with a number make no result at their sender", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		s.barrier()
		c.must(c.ep.SendImmediate(1, nd.SGL{}, 5, nd.SilentSuccess))
		c.must(c.ep.WriteImmediate(2, c.sge(0, 8), c.peerRegion.Address, c.peerRegion.Token, 6, nd.SilentSuccess))
		c.must(c.ep.Send(3, nd.SGL{}, 0))
		c.wantResult(nd.Success, 3)
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		c.receiveAny(3)
		s.barrier()
		c.wantNumber(nd.RequestReceiveImmediate, 0, 0, 5)
		c.wantNumber(nd.RequestReceiveWriteImmediate, 1, 8, 6)
		c.wantReceive(nd.Success, 2)
		c.wantAlive()
	}},
	{id: "X122", title: "requests with ReadFence and a number can carry the data of an earlier Read", active: func(s *side) {
		c := s.immediatePair(connOptions{RegionSize: fencedSize})
		for range fencedRounds {
			s.barrier()
			c.postRead(1, fencedSize)
			c.must(c.ep.SendImmediate(2, c.sge(fencedSize-fencedTail, fencedTail), 5, nd.ReadFence))
			c.postRead(3, fencedSize)
			c.must(c.ep.WriteImmediate(4, c.sge(fencedSize-fencedTail, fencedTail), c.peerRegion.Address+fencedSize, c.peerRegion.Token, 6, nd.ReadFence))
			for i := range uint64(4) {
				c.wantResult(nd.Success, i+1)
			}
		}
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{RegionSize: fencedSize + 2*fencedTail})
		source := c.memory.mem[fencedSize-fencedTail : fencedSize]
		for i := range uint64(fencedRounds) {
			fill(c.memory.mem[:fencedSize], i)
			c.must(c.ep.Receive(1, c.sge(fencedSize+fencedTail, fencedTail)))
			c.must(c.ep.Receive(2, nd.SGL{}))
			s.barrier()
			c.wantNumber(nd.RequestReceiveImmediate, 1, fencedTail, 5)
			c.wantNumber(nd.RequestReceiveWriteImmediate, 2, fencedTail, 6)
			s.wantEqual(c.memory.mem[fencedSize:fencedSize+fencedTail], source)
			s.wantEqual(c.memory.mem[fencedSize+fencedTail:], source)
		}
	}},
	{id: "X123", title: "requests with a number refuse flags and lists as Send and Write do, but WriteImmediate takes SendAndSolicitEvent", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		at, token := c.peerRegion.Address, c.peerRegion.Token
		for _, f := range []nd.OpFlags{nd.AllowRead, nd.AllowAtomic, nd.ReadLocalInvalidate, unknownFlag} {
			s.want(nd.InvalidParameter, c.ep.SendImmediate(1, nd.SGL{}, 0, f))
			s.want(nd.InvalidParameter, c.ep.WriteImmediate(1, nd.SGL{}, at, token, 0, f))
		}
		s.want(nd.InvalidParameter, c.ep.Write(1, nd.SGL{}, at, token, nd.SendAndSolicitEvent))
		var many []nd.SGE
		for i := range int(s.info.MaxInitiatorSGE) + 1 {
			many = append(many, c.sge(i, 1).First)
		}
		s.want(nd.DataOverrun, c.ep.SendImmediate(1, nd.List(many...), 0, 0))
		s.want(nd.DataOverrun, c.ep.WriteImmediate(1, nd.List(many...), at, token, 0, 0))
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) { s.immediatePair(connOptions{}).wantAlive() }},
	{id: "X124", title: "requests with a number on an endpoint that is not connected are refused", active: func(s *side) {
		s.skipUnless(nd.ImmediateSupported)
		c := s.prepare(connOptions{})
		s.want(nd.ConnectionInvalid, sendNumber(c))
		s.want(nd.ConnectionInvalid, writeNumber(c))
		s.wantEmpty(c.cq)
	}},
	{id: "X125", title: "requests with a number that are posted after the end of the connection complete with Canceled", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		c.must(c.ep.Flush(c.ctx))
		s.must(sendNumber(c))
		s.must(writeNumber(c))
		for _, kind := range []nd.RequestType{nd.RequestSend, nd.RequestWrite} {
			if r := c.wantResult(nd.Canceled, 1); r.RequestType != kind || r.BytesTransferred != 0 {
				s.errorf("result %+v, want a %v of 0 bytes", r, kind)
			}
		}
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		c.receiveAny(1)
		c.wantReceivesFlushed(0)
		c.wantBroken()
	}},
	{id: "X126", title: "a SendImmediate to a Receive that is too small fails at both sides", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		s.barrier()
		c.must(c.ep.SendImmediate(1, c.sge(0, 100), 5, 0))
		c.wantResult(nd.RemoteError, 1)
		c.wantBroken()
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		c.must(c.ep.Receive(1, c.sge(0, 99)))
		s.barrier()
		r := c.wantReceive(nd.BufferOverflow, 1)
		if _, ok := r.Immediate(); ok || r.BytesTransferred != 0 {
			s.errorf("result %+v, want neither bytes nor a number", r)
		}
		c.wantBroken()
	}},
	refusedNumber("X127", "a region without the right", nd.AllowLocalWrite, 0, 0),
	refusedNumber("X128", "a window without the right", allRights, nd.AllowRead, 0),
	refusedNumber("X129", "the byte behind a window", allRights, nd.AllowWrite, 4096-99),
	{id: "X130", title: "a WriteImmediate through an invalidated window is refused, and completes no Receive", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		user := c.anotherConn()
		d := c.hearDescriptor()
		s.barrier() // the window is invalidated
		user.must(user.ep.WriteImmediate(1, user.sge(0, 100), d.Address, d.Token, 5, 0))
		user.wantResult(nd.AccessViolation, 1)
		user.wantBroken()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		user := c.anotherConn()
		user.receiveAny(1)
		w := c.bindAndTell(0, 4096, nd.AllowWrite)
		c.invalidate(w)
		setAll(c.memory.mem, afterRevoke)
		s.barrier()
		user.wantReceivesFlushed(0)
		user.wantBroken()
		s.wantAll(c.memory.mem, afterRevoke)
		c.wantAlive()
	}},
}

// refusedNumber is a row in which a WriteImmediate of 100 bytes is refused. It goes to an offset of a window of 4096 bytes, or of a region.
func refusedNumber(id, why string, rights nd.RegionFlags, bind nd.OpFlags, off int) scenario {
	return scenario{id: id, title: "a WriteImmediate is refused with AccessViolation, and completes no Receive: " + why, active: func(s *side) {
		c := s.immediatePair(connOptions{})
		setAll(c.memory.mem, afterRevoke)
		d := c.hearDescriptor()
		c.must(c.ep.WriteImmediate(1, c.sge(0, 100), d.Address+uint64(off), d.Token, 5, 0))
		if r := c.wantResult(nd.AccessViolation, 1); r.RequestType != nd.RequestWrite || r.BytesTransferred != 0 {
			s.errorf("result %+v, want a Write of 0 bytes", r)
		}
		c.wantBroken()
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{RegionFlags: rights})
		c.must(c.ep.Receive(7, c.sge(0, 8)))
		if bind != 0 {
			c.bindAndTell(0, 4096, bind)
		} else {
			s.tell(c.memory.descriptor())
		}
		if r := c.wantReceive(nd.Canceled, 7); r.RequestType != nd.RequestReceive {
			s.errorf("result of a %v, want a Receive", r.RequestType)
		}
		c.wantBroken()
		s.wantZero(c.memory.mem)
	}}
}
