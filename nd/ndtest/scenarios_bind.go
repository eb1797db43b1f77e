package ndtest

import (
	"bytes"

	"github.com/softnd/softnd/nd"
)

// Bind. The passive side binds the window, the active side uses it.
var bindScenarios = []scenario{
	{id: "C171", title: "Bind on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(connOptions{})
		w := s.newWindow()
		s.want(nd.ConnectionInvalid, c.ep.Bind(1, c.memory.mr, w, c.memory.mem, nd.AllowRead))
		if w.RemoteToken() != 0 {
			s.errorf("RemoteToken after a refused Bind: %v, want 0", w.RemoteToken())
		}
		s.wantEmpty(c.cq)
	}},
	{id: "C172", title: "Bind with AllowWrite is refused without the region's AllowLocalWrite", active: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		for _, flags := range []nd.RegionFlags{0, nd.AllowRemoteRead} {
			r := s.region(accessSize, flags)
			s.want(nd.AccessViolation, c.ep.Bind(1, r.mr, w, r.mem, nd.AllowWrite))
			s.want(nd.AccessViolation, c.ep.Bind(1, r.mr, w, r.mem, readWrite))
			s.wantEmpty(c.cq)
			s.must(r.mr.Deregister(s.ctx)) // no window is bound to the region
		}
		c.bind(w, 0, accessSize, nd.AllowWrite)
		c.invalidate(w)
		c.wantAlive()
	}},
	{id: "C173", title: "Bind with AllowRead needs no flag of the region", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.readAndCheck(nd.Success, 0, 1000, d, 0)
		s.wantPattern(c.memory.mem[:1000], 4)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		r := s.region(1000, 0)
		fill(r.mem, 4)
		w := s.newWindow()
		c.must(c.ep.Bind(1, r.mr, w, r.mem, nd.AllowRead))
		c.wantResult(nd.Success, 1)
		s.tell(w.Descriptor())
		c.wantAlive()
	}},
	{id: "C174", title: "Bind of bytes outside the region, or of none, is refused", active: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}, passive: func(s *side) {
		const base, end = 32 << 10, 96 << 10
		c := s.pair(connOptions{})
		around := s.region(end+base, nd.AllowLocalWrite)
		mr, err := s.ad.Register(s.ctx, around.mem[base:end], nd.AllowLocalWrite)
		s.must(err)
		s.cleanup(func() { mr.Close(c.ctx) })
		w := s.newWindow()
		for _, part := range [][2]int{
			{base - 1, base + 100}, {base - 100, base}, {0, end + 1}, // start before the region
			{end, end + 100}, {end, end + 1}, // start after it
			{end - 100, end + 1}, {base, end + 1}, // start inside and end after it
			{base, base}, {base + 100, base + 100}, {end, end}, // empty
		} {
			err := c.ep.Bind(1, mr, w, around.mem[part[0]:part[1]], nd.AllowRead)
			s.want(nd.AccessViolation, err)
		}
		s.want(nd.AccessViolation, c.ep.Bind(1, mr, w, nil, nd.AllowRead))
		s.wantEmpty(c.cq)
		s.must(c.ep.Bind(2, mr, w, around.mem[base:end], nd.AllowRead))
		c.wantResult(nd.Success, 2)
		c.wantAlive()
	}},
	{id: "C175", title: "a Send posted after Bind can carry the token: it is valid when the peer receives it", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, c.sge(0, nd.WindowDescriptorSize)))
		s.barrier()
		c.wantReceive(nd.Success, 1)
		var d nd.WindowDescriptor
		s.must(d.UnmarshalBinary(c.memory.mem[:nd.WindowDescriptorSize]))
		fill(c.memory.mem[:accessSize], 2)
		c.writeAndCheck(nd.Success, 0, accessSize, d, 0)
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.barrier()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:accessSize], nd.AllowWrite))
		d := w.Descriptor()
		if d.Token == 0 || d.Token != w.RemoteToken() || d.Length != accessSize {
			s.errorf("Descriptor after Bind: %v, want %d bytes with token %v, not 0", d, accessSize, w.RemoteToken())
		}
		message, err := d.MarshalBinary()
		s.must(err)
		copy(c.memory.mem[inboxAt:], message)
		c.must(c.ep.Send(2, c.sge(inboxAt, len(message)), 0))
		s.barrier() // the peer has written, although this side has taken no result
		c.wantResult(nd.Success, 1)
		c.wantResult(nd.Success, 2)
		s.wantPattern(c.memory.mem[:accessSize], 2)
	}},
	{id: "C176", title: "a window includes its first and its last byte; access beyond them is refused", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		setAll(c.memory.mem, byPeer)
		c.writeAndCheck(nd.Success, 0, 1, d, 0)
		c.writeAndCheck(nd.Success, 0, 1, d, 4095)
		for _, part := range outsideWindow {
			c.anotherConn().wantWriteRefused(0, part[1], d, part[0])
			c.anotherConn().wantReadRefused(0, part[1], d, part[0])
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		s.tell(c.bind(s.newWindow(), 4096, 4096, readWrite))
		for range outsideWindow {
			c.anotherConn().wantBroken()
			c.anotherConn().wantBroken()
		}
		c.wantAlive()
		mem := c.memory.mem
		s.wantZero(mem[:4096])
		s.wantAll([]byte{mem[4096], mem[8191]}, byPeer)
		s.wantZero(mem[4097:8191])
		s.wantZero(mem[8192:])
	}},
	{id: "C177", title: "a Read through a window for writing is refused", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.writeAndCheck(nd.Success, 0, 1, d, 0)
		c.wantReadRefused(0, 1000, d, 0)
		if bytes.IndexByte(c.memory.mem, beforeRevoke) >= 0 {
			s.errorf("the refused Read has stored bytes, want none")
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		setAll(c.memory.mem, beforeRevoke)
		s.tell(c.bind(s.newWindow(), 0, 1000, nd.AllowWrite))
		c.wantBroken()
	}},
	{id: "C178", title: "overlapping windows have independent rights", active: func(s *side) {
		c := s.pair(connOptions{})
		reading, writing := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
		c.readAndCheck(nd.Success, 0, 8192, reading, 0)
		s.wantAll(c.memory.mem[:8192], beforeRevoke)
		setAll(c.memory.mem, byPeer)
		c.writeAndCheck(nd.Success, 0, 8192, writing, 0)
		c.readAndCheck(nd.Success, 0, 8192, reading, 0)
		s.wantAll(c.memory.mem[:4096], beforeRevoke)
		s.wantAll(c.memory.mem[4096:8192], byPeer)
		c.anotherConn().wantWriteRefused(0, 8, reading, 4096) // both windows contain these bytes
		c.anotherConn().wantReadRefused(0, 8, writing, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		setAll(c.memory.mem, beforeRevoke)
		s.tell(c.bind(s.newWindow(), 0, 8192, nd.AllowRead))
		s.tell(c.bind(s.newWindow(), 4096, 8192, nd.AllowWrite))
		c.anotherConn().wantBroken()
		c.anotherConn().wantBroken()
		c.wantAlive()
		s.wantAll(c.memory.mem[:4096], beforeRevoke)
		s.wantAll(c.memory.mem[4096:12288], byPeer)
		s.wantAll(c.memory.mem[12288:], beforeRevoke)
	}},
	{id: "C179", title: "Bind of a bound window fails", active: func(s *side) {
		s.pair(connOptions{}).wantBroken()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		c.bind(w, 0, 1000, nd.AllowRead)
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[2000:3000], nd.AllowRead))
		if r := c.wantResult(nd.InvalidDeviceRequest, 1); r.RequestType != nd.RequestBind {
			s.errorf("result of a %v, want a Bind", r.RequestType)
		}
		c.wantBroken()
	}},
	{id: "C180", title: "Bind may be posted right after Invalidate of the same window", active: func(s *side) {
		c := s.pair(connOptions{})
		first, second := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
		c.writeAndCheck(nd.Success, 0, 1000, second, 0)
		c.wantWriteRefused(0, 8, first, 0)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.tell(c.bind(w, 0, 1000, readWrite))
		c.must(c.ep.Invalidate(1, w, 0))
		c.must(c.ep.Bind(2, c.memory.mr, w, c.memory.mem[1000:2000], readWrite))
		c.wantResult(nd.Success, 1)
		c.wantResult(nd.Success, 2)
		s.tell(w.Descriptor())
		c.wantBroken()
	}},
	{id: "C181", title: "the address of a byte is the owner's address plus its offset", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		for i, at := range []int{0, 1, 999, 1000, 5000 - 16} {
			fill(c.memory.mem[:16], uint64(i))
			c.writeAndCheck(nd.Success, 0, 16, d, at)
			c.writeAndCheck(nd.Success, 0, 16, c.peerRegion, 10_000+at)
			s.tell(at)
			s.barrier()
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		s.tell(c.bind(s.newWindow(), 20_000, 5000, nd.AllowWrite))
		for i := range uint64(5) {
			at := hear[int](s)
			s.wantPattern(c.memory.mem[20_000+at:20_000+at+16], i)
			s.wantPattern(c.memory.mem[10_000+at:10_000+at+16], i)
			clear(c.memory.mem[10_000+at : 10_000+at+16])
			clear(c.memory.mem[20_000+at : 20_000+at+16])
			s.wantZero(c.memory.mem) // no other byte has changed
			s.barrier()
		}
	}},
	{id: "C182", title: "a silent Bind makes no result, and binds", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, nd.SGL{}))
		s.barrier()
		c.wantReceive(nd.Success, 1)
		d := hear[nd.WindowDescriptor](s)
		fill(c.memory.mem[:1000], 2)
		c.writeAndCheck(nd.Success, 0, 1000, d, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.barrier()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:1000], nd.AllowWrite|nd.SilentSuccess))
		c.must(c.ep.Send(2, nd.SGL{}, 0))
		c.wantResult(nd.Success, 2)
		s.wantEmpty(c.cq)
		s.tell(w.Descriptor())
		c.wantAlive()
		s.wantPattern(c.memory.mem[:1000], 2)
	}},
}

// outsideWindow lists offsets and numbers of bytes that are not inside a window of 4096 bytes.
var outsideWindow = [][2]int{{-1, 1}, {-1, 2}, {4096, 1}, {4095, 2}}
