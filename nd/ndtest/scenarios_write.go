package ndtest

import "github.com/softnd/softnd/nd"

var writeScenarios = []scenario{
	{id: "C183", title: "Write on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(connOptions{})
		s.want(nd.ConnectionInvalid, c.ep.Write(1, c.sge(0, 8), c.memory.mr.Address(), c.memory.mr.RemoteToken(), 0))
		s.wantEmpty(c.cq)
	}},
	{id: "C184", title: "100 silent Writes and one that is not silent: one result, and all data", active: func(s *side) {
		const n = 100
		c := s.pair(connOptions{Endpoint: nd.EndpointConfig{InitiatorDepth: n + 1}})
		fill(c.memory.mem, 6)
		for i := range uint64(n) {
			at := int(i) * 600
			c.must(c.ep.Write(i, c.sge(at, 600), c.peerRegion.Address+uint64(at), c.peerRegion.Token, nd.SilentSuccess))
		}
		c.must(c.ep.Write(n, c.sge(n*600, 600), c.peerRegion.Address+n*600, c.peerRegion.Token, 0))
		c.wantResult(nd.Success, n)
		s.barrier()
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		want := make([]byte, len(c.memory.mem))
		fill(want, 6)
		clear(want[101*600:])
		if string(want) != string(c.memory.mem) {
			s.errorf("the memory differs from the bytes of the Writes")
		}
		c.wantAlive()
	}},
	{id: "C185", title: "a silent Write that fails makes a result", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Write(1, c.sge(0, 100), c.peerRegion.Address, ^c.peerRegion.Token, nd.SilentSuccess))
		if r := c.wantResult(nd.AccessViolation, 1); r.RequestType != nd.RequestWrite {
			s.errorf("result of a %v, want a Write", r.RequestType)
		}
		c.wantBroken()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.wantBroken()
		s.wantZero(c.memory.mem)
	}},
	// A provider whose target serves requests in order passes this row without an implementation of the
	// fence. C137 and C245 need the fence.
	{id: "C186", title: "an earlier Read of the range of a Write with ReadFence returns the old data (1 MiB)", active: func(s *side) {
		const long = 1 << 20
		c := s.pair(connOptions{RegionSize: 2 * long})
		setAll(c.memory.mem[long:], afterRevoke)
		for range 3 {
			s.barrier() // the owner has stored the old data
			c.must(c.ep.Read(1, c.sge(0, long), c.peerRegion.Address, c.peerRegion.Token, 0))
			c.must(c.ep.Write(2, c.sge(long, long), c.peerRegion.Address, c.peerRegion.Token, nd.ReadFence))
			c.wantResult(nd.Success, 1)
			c.wantResult(nd.Success, 2)
			s.wantAll(c.memory.mem[:long], beforeRevoke)
			s.barrier()
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: 1 << 20})
		for range 3 {
			setAll(c.memory.mem, beforeRevoke)
			s.barrier()
			s.barrier()
			s.wantAll(c.memory.mem, afterRevoke)
		}
	}},
	{id: "C187", title: "a Write stores at the address plus the initiator's offset", active: func(s *side) {
		c := s.pair(connOptions{})
		fill(c.memory.mem[:1000], 9)
		c.writeAndCheck(nd.Success, 0, 1000, c.peerRegion, 12_345)
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		s.wantZero(c.memory.mem[:12_345])
		s.wantPattern(c.memory.mem[12_345:13_345], 9)
		s.wantZero(c.memory.mem[13_345:])
	}},
	{id: "C188", title: "an empty Write succeeds with any address and token", active: func(s *side) {
		c := s.pair(connOptions{})
		for i, d := range []nd.WindowDescriptor{{}, {Address: ^uint64(0), Token: ^nd.Token(0)}, {Address: 1, Token: c.peerRegion.Token}} {
			c.must(c.ep.Write(uint64(i), nd.SGL{}, d.Address, d.Token, 0))
			if r := c.wantResult(nd.Success, uint64(i)); r.BytesTransferred != 0 || r.RequestType != nd.RequestWrite {
				s.errorf("result %+v, want a Write of 0 bytes", r)
			}
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.wantAlive()
		s.wantZero(c.memory.mem)
	}},
	{id: "C189", title: "entries are gathered in order; together they may fill the window, but not exceed it", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		fill(c.memory.mem[:3000], 1)
		copy(c.memory.mem[40_000:], c.memory.mem[:1000])
		copy(c.memory.mem[10_000:], c.memory.mem[1000:3000])
		sge := nd.List(c.sge(40_000, 1000).First, c.sge(10_000, 2000).First) // every adapter takes at least two
		c.must(c.ep.Write(1, sge, d.Address, d.Token, 0))
		if r := c.wantResult(nd.Success, 1); r.BytesTransferred != 3000 {
			s.errorf("result of the Write: %d bytes, want 3000", r.BytesTransferred)
		}
		s.barrier()
		s.barrier() // the owner has checked its memory
		sge.More[0] = c.sge(10_000, 2001).First
		c.must(c.ep.Write(2, sge, d.Address, d.Token, 0))
		c.wantResult(nd.AccessViolation, 2)
		c.wantBroken()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		setAll(c.memory.mem, 0xee)
		s.tell(c.bind(s.newWindow(), 5000, 3000, nd.AllowWrite))
		s.barrier()
		s.wantPattern(c.memory.mem[5000:8000], 1)
		s.barrier()
		c.wantBroken()
		s.wantAll(c.memory.mem[:5000], 0xee)
		s.wantAll(c.memory.mem[8000:], 0xee)
	}},
	{id: "C190", title: "a Write makes no result and ends no Notify at its target", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		fill(c.memory.mem, 1)
		for range 10 {
			c.writeAndCheck(nd.Success, 0, 100, c.peerRegion, 0)
			c.writeAndCheck(nd.Success, 0, len(c.memory.mem), c.peerRegion, 0)
		}
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		wait, stop := c.startNotify(c.cq, nd.NotifyAny)
		s.barrier()
		s.barrier() // the peer has written
		s.wantPattern(c.memory.mem, 1)
		s.wantEmpty(c.cq)
		s.wantPending(wait)
		stop()
	}},
}
