package ndtest

import (
	"bytes"

	"github.com/softnd/softnd/nd"
)

// The passive side binds, the active side uses the window.
var bindScenarios = []scenario{
	{id: "C171", title: "Bind on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(shape{})
		w := s.window()
		s.want(nd.ConnectionInvalid, c.ep.Bind(1, c.memory.mr, w, c.memory.mem, nd.AllowRead))
		if w.RemoteToken() != 0 {
			s.errorf("the window has the token %v", w.RemoteToken())
		}
		s.empty(c.cq)
	}},
	{id: "C172", title: "Bind with AllowWrite is refused without the region's AllowLocalWrite", active: func(s *side) {
		s.pair(shape{}).alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		for _, flags := range []nd.RegionFlags{0, nd.AllowRemoteRead} {
			r := s.region(grantSize, flags)
			s.want(nd.AccessViolation, c.ep.Bind(1, r.mr, w, r.mem, nd.AllowWrite))
			s.want(nd.AccessViolation, c.ep.Bind(1, r.mr, w, r.mem, readWrite))
			s.empty(c.cq)
			s.must(r.mr.Deregister(s.ctx)) // no window is bound to it
		}
		c.bind(w, 0, grantSize, nd.AllowWrite)
		c.invalidate(w)
		c.alive()
	}},
	{id: "C173", title: "Bind with AllowRead needs no right of the region", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.reads(nd.Success, 0, 1000, d, 0)
		s.holds(c.memory.mem[:1000], 4)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		r := s.region(1000, 0)
		fill(r.mem, 4)
		w := s.window()
		c.must(c.ep.Bind(1, r.mr, w, r.mem, nd.AllowRead))
		c.done(nd.Success, 1)
		s.tell(w.Descriptor())
		c.alive()
	}},
	{id: "C174", title: "Bind of bytes outside the region, or of none, is refused", active: func(s *side) {
		s.pair(shape{}).alive()
	}, passive: func(s *side) {
		const base, end = 32 << 10, 96 << 10
		c := s.pair(shape{})
		around := s.region(end+base, nd.AllowLocalWrite)
		mr, err := s.ad.Register(s.ctx, around.mem[base:end], nd.AllowLocalWrite)
		s.must(err)
		s.atEnd(func() { mr.Close() })
		w := s.window()
		for _, part := range [][2]int{
			{base - 1, base + 100}, {base - 100, base}, {0, end + 1}, // starts before
			{end, end + 100}, {end, end + 1}, // starts behind
			{end - 100, end + 1}, {base, end + 1}, // starts inside
			{base, base}, {base + 100, base + 100}, {end, end}, // nothing
		} {
			err := c.ep.Bind(1, mr, w, around.mem[part[0]:part[1]], nd.AllowRead)
			s.want(nd.AccessViolation, err)
		}
		s.want(nd.AccessViolation, c.ep.Bind(1, mr, w, nil, nd.AllowRead))
		s.empty(c.cq)
		s.must(c.ep.Bind(2, mr, w, around.mem[base:end], nd.AllowRead))
		c.done(nd.Success, 2)
		c.alive()
	}},
	{id: "C175", title: "the token is good as soon as Bind has returned, for who learns it by a later Send", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, c.sge(0, nd.WindowDescriptorSize)))
		s.meet()
		c.received(nd.Success, 1)
		var d nd.WindowDescriptor
		s.must(d.UnmarshalBinary(c.memory.mem[:nd.WindowDescriptorSize]))
		fill(c.memory.mem[:grantSize], 2)
		c.writes(nd.Success, 0, grantSize, d, 0)
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.meet()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:grantSize], nd.AllowWrite))
		d := w.Descriptor()
		if d.Token == 0 || d.Token != w.RemoteToken() || d.Length != grantSize {
			s.errorf("after Bind the descriptor is %v, the token %v", d, w.RemoteToken())
		}
		message, err := d.MarshalBinary()
		s.must(err)
		copy(c.memory.mem[inboxAt:], message)
		c.must(c.ep.Send(2, c.sge(inboxAt, len(message)), 0))
		s.meet() // the peer has written, and no result has been taken
		c.done(nd.Success, 1)
		c.done(nd.Success, 2)
		s.holds(c.memory.mem[:grantSize], 2)
	}},
	{id: "C176", title: "a window ends at its first and at its last byte", active: func(s *side) {
		c, d := borrower(s, shape{})
		paint(c.memory.mem, written)
		c.writes(nd.Success, 0, 1, d, 0)
		c.writes(nd.Success, 0, 1, d, 4095)
		for _, part := range beyond {
			c.another().refusedWrite(0, part[1], d, part[0])
			c.another().refusedRead(0, part[1], d, part[0])
		}
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		s.tell(c.bind(s.window(), 4096, 4096, readWrite))
		for range beyond {
			c.another().isOver()
			c.another().isOver()
		}
		c.alive()
		mem := c.memory.mem
		s.blank(mem[:4096])
		s.painted([]byte{mem[4096], mem[8191]}, written)
		s.blank(mem[4097:8191])
		s.blank(mem[8192:])
	}},
	{id: "C177", title: "a window for writing cannot be read", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.writes(nd.Success, 0, 1, d, 0)
		c.refusedRead(0, 1000, d, 0)
		if bytes.IndexByte(c.memory.mem, beforehand) >= 0 {
			s.errorf("the Read that was refused has brought something")
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		paint(c.memory.mem, beforehand)
		s.tell(c.bind(s.window(), 0, 1000, nd.AllowWrite))
		c.isOver()
	}},
	{id: "C178", title: "overlapping windows have rights of their own", active: func(s *side) {
		c := s.pair(shape{})
		reading, writing := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
		c.reads(nd.Success, 0, 8192, reading, 0)
		s.painted(c.memory.mem[:8192], beforehand)
		paint(c.memory.mem, written)
		c.writes(nd.Success, 0, 8192, writing, 0)
		c.reads(nd.Success, 0, 8192, reading, 0)
		s.painted(c.memory.mem[:4096], beforehand)
		s.painted(c.memory.mem[4096:8192], written)
		c.another().refusedWrite(0, 8, reading, 4096) // both cover these bytes
		c.another().refusedRead(0, 8, writing, 0)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		paint(c.memory.mem, beforehand)
		s.tell(c.bind(s.window(), 0, 8192, nd.AllowRead))
		s.tell(c.bind(s.window(), 4096, 8192, nd.AllowWrite))
		c.another().isOver()
		c.another().isOver()
		c.alive()
		s.painted(c.memory.mem[:4096], beforehand)
		s.painted(c.memory.mem[4096:12288], written)
		s.painted(c.memory.mem[12288:], beforehand)
	}},
	{id: "C179", title: "Bind of a bound window fails", active: func(s *side) {
		s.pair(shape{}).isOver()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		c.bind(w, 0, 1000, nd.AllowRead)
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[2000:3000], nd.AllowRead))
		if r := c.done(nd.InvalidDeviceRequest, 1); r.RequestType != nd.RequestBind {
			s.errorf("the result is of a %v", r.RequestType)
		}
		c.isOver()
	}},
	{id: "C180", title: "Invalidate and Bind may be posted back to back", active: func(s *side) {
		c := s.pair(shape{})
		first, second := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
		c.writes(nd.Success, 0, 1000, second, 0)
		c.refusedWrite(0, 8, first, 0)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.tell(c.bind(w, 0, 1000, readWrite))
		c.must(c.ep.Invalidate(1, w, 0))
		c.must(c.ep.Bind(2, c.memory.mr, w, c.memory.mem[1000:2000], readWrite))
		c.done(nd.Success, 1)
		c.done(nd.Success, 2)
		s.tell(w.Descriptor())
		c.isOver()
	}},
	{id: "C181", title: "the owner's address plus an offset names that byte, wherever the memory lies here", active: func(s *side) {
		c, d := borrower(s, shape{})
		for i, at := range []int{0, 1, 999, 1000, 5000 - 16} {
			fill(c.memory.mem[:16], uint64(i))
			c.writes(nd.Success, 0, 16, d, at)
			c.writes(nd.Success, 0, 16, c.far, 10_000+at)
			s.tell(at)
			s.meet()
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		s.tell(c.bind(s.window(), 20_000, 5000, nd.AllowWrite))
		for i := range uint64(5) {
			at := hear[int](s)
			s.holds(c.memory.mem[20_000+at:20_000+at+16], i)
			s.holds(c.memory.mem[10_000+at:10_000+at+16], i)
			clear(c.memory.mem[10_000+at : 10_000+at+16])
			clear(c.memory.mem[20_000+at : 20_000+at+16])
			s.blank(c.memory.mem) // nothing landed elsewhere
			s.meet()
		}
	}},
	{id: "C182", title: "a silent Bind leaves no result, and works", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, nil))
		s.meet()
		c.received(nd.Success, 1)
		d := hear[nd.WindowDescriptor](s)
		fill(c.memory.mem[:1000], 2)
		c.writes(nd.Success, 0, 1000, d, 0)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.meet()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:1000], nd.AllowWrite|nd.SilentSuccess))
		c.must(c.ep.Send(2, nil, 0))
		c.done(nd.Success, 2)
		s.empty(c.cq)
		s.tell(w.Descriptor())
		c.alive()
		s.holds(c.memory.mem[:1000], 2)
	}},
}

// beyond lists places, and numbers of bytes, that leave a window of 4096 bytes.
var beyond = [][2]int{{-1, 1}, {-1, 2}, {4096, 1}, {4095, 2}}
