package ndtest

import "github.com/softnd/softnd/nd"

// The passive side owns the window, the active side uses it.
var invalidateScenarios = []scenario{
	{id: "C128", title: "Invalidate on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(shape{})
		s.want(nd.ConnectionInvalid, c.ep.Invalidate(1, s.window(), 0))
		s.empty(c.cq)
	}},
	{id: "C129", title: "Invalidate is refused while the queue is full of results nobody took", active: func(s *side) {
		s.pair(shape{}).alive()
	}, passive: func(s *side) {
		const depth = 16
		c := s.pair(shape{Limits: nd.EndpointConfig{InitiatorDepth: depth}})
		w := s.window()
		c.bind(w, 0, 64, nd.AllowRead)
		for i := range uint64(depth) {
			c.must(c.ep.Write(i, nil, 0, 0, 0))
		}
		s.want(nd.NoMoreEntries, c.ep.Invalidate(99, w, 0))
		for i := range uint64(depth) {
			c.done(nd.Success, i)
		}
		s.empty(c.cq)
		c.invalidate(w)
		c.alive()
	}},
	{id: "C130", title: "a silent Invalidate leaves no result, and works", active: func(s *side) {
		c := s.pair(shape{})
		d := hear[nd.WindowDescriptor](s)
		c.writes(nd.Success, 0, 100, d, 0)
		c.must(c.ep.Receive(1, nil))
		s.meet() // the window may go
		c.received(nd.Success, 1)
		s.meet() // the owner has looked at its queue
		c.refusedWrite(0, 100, d, 0)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.tell(c.bind(w, 0, 1000, readWrite))
		s.meet()
		c.must(c.ep.Invalidate(2, w, nd.SilentSuccess))
		c.must(c.ep.Send(3, nil, 0))
		c.done(nd.Success, 3)
		s.empty(c.cq)
		s.meet()
		c.isOver()
	}},
	{id: "C131", title: "a silent Invalidate that fails leaves a result", active: func(s *side) {
		s.pair(shape{}).isOver()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Invalidate(2, s.window(), nd.SilentSuccess))
		c.done(nd.InvalidDeviceRequest, 2)
		c.isOver()
	}},
	{id: "C132", title: "of a window bound again the new token is good, the old one not", active: func(s *side) {
		c := s.pair(shape{})
		first, second := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
		if first.Token == second.Token {
			s.errorf("both bindings have the token %v", first.Token)
		}
		fill(c.memory.mem[:1000], 5)
		c.writes(nd.Success, 0, 1000, second, 0)
		c.refusedWrite(0, 8, first, 0)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.tell(c.bind(w, 0, 1000, nd.AllowWrite))
		c.invalidate(w)
		s.tell(c.bind(w, 2000, 1000, nd.AllowWrite))
		c.isOver()
		s.blank(c.memory.mem[:2000])
		s.holds(c.memory.mem[2000:3000], 5)
		s.blank(c.memory.mem[3000:])
	}},
	{id: "C133", title: "an invalid window may go to another region, with other rights", active: func(s *side) {
		c := s.pair(shape{})
		c.writes(nd.Success, 0, 1000, hear[nd.WindowDescriptor](s), 0)
		s.meet()
		d := hear[nd.WindowDescriptor](s)
		c.reads(nd.Success, 0, 500, d, 0)
		s.holds(c.memory.mem[:500], 6)
		c.refusedWrite(1000, 8, d, 0)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.tell(c.bind(w, 0, 1000, nd.AllowWrite))
		s.meet()
		c.invalidate(w)
		r := s.region(500, nd.AllowLocalWrite)
		fill(r.mem, 6)
		c.must(c.ep.Bind(1, r.mr, w, r.mem, nd.AllowRead))
		c.done(nd.Success, 1)
		s.tell(w.Descriptor())
		c.isOver()
		s.holds(r.mem, 6)
	}},
	{id: "C134", title: "an invalid window may go to another connection, and to that peer only", active: func(s *side) {
		c := s.pair(shape{})
		other := c.another()
		d := hear[nd.WindowDescriptor](s)
		other.writes(nd.Success, 0, 100, d, 0)
		c.refusedWrite(0, 100, d, 0)
		other.writes(nd.Success, 0, 100, d, 0)
		other.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		other := c.another()
		w := s.window()
		c.bind(w, 0, 100, readWrite|nd.ThisEndpointOnly)
		c.invalidate(w)
		s.tell(other.bind(w, 0, 100, readWrite|nd.ThisEndpointOnly))
		c.isOver()
		other.alive()
	}},
	{id: "C135", title: "a Write in progress (of 8 MiB) changes nothing after the Invalidate's result",
		active: longWriter, passive: func(s *side) {
			cutShort(s, func(mem []byte, tried func()) {
				before := sumBack(mem)
				tried()
				if sumBack(mem) != before {
					s.errorf("the memory has changed after the Invalidate")
				}
			})
		}},
	{id: "C136", title: "a Read in progress (of 8 MiB) sees nothing that is written after the Invalidate's result",
		active: longReader, passive: func(s *side) {
			cutShort(s, func(mem []byte, tried func()) {
				paint(mem, afterwards)
				tried()
			})
		}},
	{id: "C137", title: "Invalidate with ReadFence waits for the data of the owner's own Reads (4 of 2 MiB)",
		active: fencedFromAfar, passive: fencedAtHome},
	{id: "C138", title: "Invalidate on another endpoint fails, and the window stays bound", active: func(s *side) {
		c := s.pair(shape{})
		other := c.another()
		d := hear[nd.WindowDescriptor](s)
		other.isOver()
		c.writes(nd.Success, 0, 100, d, 0)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		other := c.another()
		w := s.window()
		s.tell(c.bind(w, 0, 100, readWrite))
		other.must(other.ep.Invalidate(1, w, 0))
		other.done(nd.InvalidDeviceRequest, 1)
		other.isOver()
		c.alive()
		c.invalidate(w)
	}},
	{id: "C139", title: "the second of two Invalidates fails", active: func(s *side) {
		s.pair(shape{}).isOver()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		c.bind(w, 0, 100, readWrite)
		c.must(c.ep.Invalidate(1, w, 0))
		c.must(c.ep.Invalidate(2, w, 0))
		c.done(nd.Success, 1)
		c.done(nd.InvalidDeviceRequest, 2)
		c.isOver()
	}},
	{id: "C140", title: "an Invalidate behind a Send that fails is canceled", active: func(s *side) {
		c := s.pair(shape{Region: 1 << 20})
		c.must(c.ep.Receive(1, c.sge(0, 100)))
		s.meet()
		c.receivesFlushed(1)
		c.isOver()
		s.blank(c.memory.mem[:100])
	}, passive: func(s *side) {
		const long = 1 << 20
		c := s.pair(shape{Region: long})
		w := s.window()
		c.bind(w, 0, 100, readWrite)
		s.meet()
		remote := c.memory.mr.RemoteToken() // of no use here
		c.must(c.ep.Read(1, c.sge(0, long), c.far.Address, c.far.Token, 0))
		c.must(c.ep.Send(2, []nd.SGE{{Buffer: c.memory.mem[:8], Token: remote}}, 0))
		c.must(c.ep.Invalidate(3, w, 0))
		c.done(nd.Success, 1)
		c.done(nd.AccessViolation, 2)
		c.flushed(3)
		c.isOver()
		c.must(c.memory.mr.Deregister(s.ctx)) // no window is bound any more
	}},
	{id: "C141", title: "Invalidate of a plain region is refused, and changes nothing", active: func(s *side) {
		c := s.pair(shape{})
		d := hear[nd.WindowDescriptor](s)
		c.writes(nd.Success, 0, 100, c.far, 0)
		c.writes(nd.Success, 0, 100, d, 0)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		d := c.bind(w, 0, 100, nd.AllowWrite)
		s.wantOneOf(c.ep.InvalidateRegion(1, c.memory.mr, 0), nd.InvalidDeviceRequest, nd.NotSupported)
		s.empty(c.cq)
		s.tell(d)
		c.alive()
	}},
	{id: "C142", title: "Deregister ends the use of both tokens", active: func(s *side) {
		c := s.pair(shape{})
		other, witness := c.another(), c.another()
		d := hear[nd.WindowDescriptor](s)
		c.writes(nd.Success, 0, 100, d, 0)
		s.meet() // the region may go
		s.meet()
		c.refusedWrite(0, 100, d, 0)
		other.isOver()
		witness.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		other, witness := c.another(), c.another()
		r := s.region(1000, allRights)
		s.tell(r.far())
		s.meet()
		sge := r.sge(0, 8)
		s.must(r.mr.Deregister(s.ctx))
		clear(r.mem)
		s.meet()
		c.isOver()
		other.must(other.ep.Write(1, sge, c.far.Address, c.far.Token, 0))
		other.done(nd.AccessViolation, 1)
		other.isOver()
		s.blank(r.mem)
		witness.alive()
	}},
	{id: "C143", title: "a fast-registered region can be invalidated, and registered again", active: func(s *side) {
		c := s.pair(shape{})
		first := hear[nd.WindowDescriptor](s)
		fill(c.memory.mem[:100], 1)
		c.writes(nd.Success, 0, 100, first, 50)
		c.reads(nd.Success, 200, 100, first, 50)
		s.holds(c.memory.mem[200:300], 1)
		s.meet()
		second := hear[nd.WindowDescriptor](s)
		if first.Token == second.Token {
			s.errorf("both registrations have the token %v", first.Token)
		}
		c.writes(nd.Success, 0, 100, second, 0)
		c.refusedWrite(0, 8, first, 0)
	}, passive: fastOwner},
	{id: "C144", title: "deferred requests complete, in order", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(9, nil))
		s.meet()
		c.received(nd.Success, 9)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.meet()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:100], nd.AllowRead|nd.Defer))
		c.must(c.ep.Invalidate(2, w, nd.Defer))
		c.must(c.ep.Send(3, nil, 0))
		for i, want := range []nd.RequestType{nd.RequestBind, nd.RequestInvalidate, nd.RequestSend} {
			if r := c.done(nd.Success, uint64(i)+1); r.RequestType != want {
				s.errorf("result %d is of a %v, want %v", i+1, r.RequestType, want)
			}
		}
	}},
	{id: "C145", title: "a post that fails pushes out what was deferred", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(9, nil))
		s.meet()
		c.received(nd.Success, 9)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		w := s.window()
		s.meet()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:100], nd.AllowRead|nd.Defer))
		c.must(c.ep.Send(2, nil, nd.Defer))
		s.want(nd.DataOverrun, c.ep.Send(3, make([]nd.SGE, s.info.MaxInitiatorSGE+1), 0))
		c.done(nd.Success, 1)
		c.done(nd.Success, 2)
		s.empty(c.cq)
		c.alive()
	}},
}
