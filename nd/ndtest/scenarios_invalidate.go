package ndtest

import "github.com/softnd/softnd/nd"

// Invalidate. The passive side owns the window, the active side uses it.
var invalidateScenarios = []scenario{
	{id: "C128", title: "Invalidate on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(connOptions{})
		s.want(nd.ConnectionInvalid, c.ep.Invalidate(1, s.newWindow(), 0))
		s.wantEmpty(c.cq)
	}},
	{id: "C129", title: "Invalidate is refused while results that were not taken fill the queue", active: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}, passive: func(s *side) {
		const depth = 16
		c := s.pair(connOptions{Endpoint: nd.EndpointConfig{InitiatorDepth: depth}})
		w := s.newWindow()
		c.bind(w, 0, 64, nd.AllowRead)
		for i := range uint64(depth) {
			c.must(c.ep.Write(i, nd.SGL{}, 0, 0, 0))
		}
		s.want(nd.NoMoreEntries, c.ep.Invalidate(99, w, 0))
		for i := range uint64(depth) {
			c.wantResult(nd.Success, i)
		}
		s.wantEmpty(c.cq)
		c.invalidate(w)
		c.wantAlive()
	}},
	{id: "C130", title: "a silent Invalidate makes no result, and invalidates", active: func(s *side) {
		c := s.pair(connOptions{})
		d := hear[nd.WindowDescriptor](s)
		c.writeAndCheck(nd.Success, 0, 100, d, 0)
		c.must(c.ep.Receive(1, nd.SGL{}))
		s.barrier() // the owner may invalidate now
		c.wantReceive(nd.Success, 1)
		s.barrier() // the owner has polled its queue
		c.wantWriteRefused(0, 100, d, 0)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.tell(c.bind(w, 0, 1000, readWrite))
		s.barrier()
		c.must(c.ep.Invalidate(2, w, nd.SilentSuccess))
		c.must(c.ep.Send(3, nd.SGL{}, 0))
		c.wantResult(nd.Success, 3)
		s.wantEmpty(c.cq)
		s.barrier()
		c.wantBroken()
	}},
	{id: "C131", title: "a silent Invalidate that fails makes a result", active: func(s *side) {
		s.pair(connOptions{}).wantBroken()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Invalidate(2, s.newWindow(), nd.SilentSuccess))
		c.wantResult(nd.InvalidDeviceRequest, 2)
		c.wantBroken()
	}},
	{id: "C132", title: "after a window is bound again, its new token is valid and its old one is not", active: func(s *side) {
		c := s.pair(connOptions{})
		first, second := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
		if first.Token == second.Token {
			s.errorf("Bind: both bindings have token %v, want different ones", first.Token)
		}
		fill(c.memory.mem[:1000], 5)
		c.writeAndCheck(nd.Success, 0, 1000, second, 0)
		c.wantWriteRefused(0, 8, first, 0)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.tell(c.bind(w, 0, 1000, nd.AllowWrite))
		c.invalidate(w)
		s.tell(c.bind(w, 2000, 1000, nd.AllowWrite))
		c.wantBroken()
		s.wantZero(c.memory.mem[:2000])
		s.wantPattern(c.memory.mem[2000:3000], 5)
		s.wantZero(c.memory.mem[3000:])
	}},
	{id: "C133", title: "an invalidated window may be bound to another region, with other rights", active: func(s *side) {
		c := s.pair(connOptions{})
		c.writeAndCheck(nd.Success, 0, 1000, hear[nd.WindowDescriptor](s), 0)
		s.barrier()
		d := hear[nd.WindowDescriptor](s)
		c.readAndCheck(nd.Success, 0, 500, d, 0)
		s.wantPattern(c.memory.mem[:500], 6)
		c.wantWriteRefused(1000, 8, d, 0)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.tell(c.bind(w, 0, 1000, nd.AllowWrite))
		s.barrier()
		c.invalidate(w)
		r := s.region(500, nd.AllowLocalWrite)
		fill(r.mem, 6)
		c.must(c.ep.Bind(1, r.mr, w, r.mem, nd.AllowRead))
		c.wantResult(nd.Success, 1)
		s.tell(w.Descriptor())
		c.wantBroken()
		s.wantPattern(r.mem, 6)
	}},
	{id: "C134", title: "an invalidated window may be bound on another connection, for the peer of that one only", active: func(s *side) {
		c := s.pair(connOptions{})
		other := c.anotherConn()
		d := hear[nd.WindowDescriptor](s)
		other.writeAndCheck(nd.Success, 0, 100, d, 0)
		c.wantWriteRefused(0, 100, d, 0)
		other.writeAndCheck(nd.Success, 0, 100, d, 0)
		other.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		other := c.anotherConn()
		w := s.newWindow()
		c.bind(w, 0, 100, readWrite|nd.ThisEndpointOnly)
		c.invalidate(w)
		s.tell(other.bind(w, 0, 100, readWrite|nd.ThisEndpointOnly))
		c.wantBroken()
		other.wantAlive()
	}},
	{id: "C135", title: "a Write of 8 MiB in progress changes no memory after the result of Invalidate",
		active: writeDuringInvalidate, passive: func(s *side) {
			invalidateDuringTransfer(s, func(mem []byte, tried func()) {
				before := checksumBackward(mem)
				tried()
				if checksumBackward(mem) != before {
					s.errorf("the memory has changed after the result of Invalidate, want no change")
				}
			})
		}},
	{id: "C136", title: "a Read of 8 MiB in progress returns no byte that is stored after the result of Invalidate",
		active: readDuringInvalidate, passive: func(s *side) {
			invalidateDuringTransfer(s, func(mem []byte, tried func()) {
				setAll(mem, afterRevoke)
				tried()
			})
		}},
	{id: "C137", title: "Invalidate with ReadFence waits for the data of the owner's Reads (4 of 2 MiB)",
		active: fencedInvalidatePeer, passive: fencedInvalidateOwner},
	{id: "C138", title: "Invalidate on another endpoint fails, and the window stays bound", active: func(s *side) {
		c := s.pair(connOptions{})
		other := c.anotherConn()
		d := hear[nd.WindowDescriptor](s)
		other.wantBroken()
		c.writeAndCheck(nd.Success, 0, 100, d, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		other := c.anotherConn()
		w := s.newWindow()
		s.tell(c.bind(w, 0, 100, readWrite))
		other.must(other.ep.Invalidate(1, w, 0))
		other.wantResult(nd.InvalidDeviceRequest, 1)
		other.wantBroken()
		c.wantAlive()
		c.invalidate(w)
	}},
	{id: "C139", title: "the second Invalidate of a window fails", active: func(s *side) {
		s.pair(connOptions{}).wantBroken()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		c.bind(w, 0, 100, readWrite)
		c.must(c.ep.Invalidate(1, w, 0))
		c.must(c.ep.Invalidate(2, w, 0))
		c.wantResult(nd.Success, 1)
		c.wantResult(nd.InvalidDeviceRequest, 2)
		c.wantBroken()
	}},
	{id: "C140", title: "an Invalidate posted after a Send that fails is canceled", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: large})
		c.must(c.ep.Receive(1, c.sge(0, 100)))
		s.barrier()
		c.wantReceivesFlushed(1)
		c.wantBroken()
		s.wantZero(c.memory.mem[:100])
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: large})
		w := s.newWindow()
		c.bind(w, 0, 100, readWrite)
		s.barrier()
		remote := c.memory.mr.RemoteToken() // not valid as a local token
		c.must(c.ep.Read(1, c.sge(0, large), c.peerRegion.Address, c.peerRegion.Token, 0))
		c.must(c.ep.Send(2, nd.One(nd.SGE{Buffer: c.memory.mem[:8], Token: remote}), 0))
		c.must(c.ep.Invalidate(3, w, 0))
		c.wantResult(nd.Success, 1)
		c.wantResult(nd.AccessViolation, 2)
		c.wantFlushed(3)
		c.wantBroken()
		c.must(c.memory.mr.Deregister(s.ctx)) // the end of the connection has unbound the window
	}},
	{id: "C141", title: "Invalidate of a region that was not fast-registered is refused without effect", active: func(s *side) {
		c := s.pair(connOptions{})
		d := hear[nd.WindowDescriptor](s)
		c.writeAndCheck(nd.Success, 0, 100, c.peerRegion, 0)
		c.writeAndCheck(nd.Success, 0, 100, d, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		d := c.bind(w, 0, 100, nd.AllowWrite)
		s.wantOneOf(c.ep.InvalidateRegion(1, c.memory.mr, 0), nd.InvalidDeviceRequest, nd.NotSupported)
		s.wantEmpty(c.cq)
		s.tell(d)
		c.wantAlive()
	}},
	{id: "C142", title: "Deregister invalidates the local and the remote token", active: func(s *side) {
		c := s.pair(connOptions{})
		other, bystander := c.anotherConn(), c.anotherConn()
		d := hear[nd.WindowDescriptor](s)
		c.writeAndCheck(nd.Success, 0, 100, d, 0)
		s.barrier() // the owner may deregister now
		s.barrier()
		c.wantWriteRefused(0, 100, d, 0)
		other.wantBroken()
		bystander.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		other, bystander := c.anotherConn(), c.anotherConn()
		r := s.region(1000, allRights)
		s.tell(r.descriptor())
		s.barrier()
		sge := r.sge(0, 8)
		s.must(r.mr.Deregister(s.ctx))
		clear(r.mem)
		s.barrier()
		c.wantBroken()
		other.must(other.ep.Write(1, sge, c.peerRegion.Address, c.peerRegion.Token, 0))
		other.wantResult(nd.AccessViolation, 1)
		other.wantBroken()
		s.wantZero(r.mem)
		bystander.wantAlive()
	}},
	{id: "C143", title: "a fast-registered region can be invalidated and registered again", active: func(s *side) {
		c := s.pair(connOptions{})
		first := hear[nd.WindowDescriptor](s)
		fill(c.memory.mem[:100], 1)
		c.writeAndCheck(nd.Success, 0, 100, first, 50)
		c.readAndCheck(nd.Success, 200, 100, first, 50)
		s.wantPattern(c.memory.mem[200:300], 1)
		s.barrier()
		second := hear[nd.WindowDescriptor](s)
		if first.Token == second.Token {
			s.errorf("FastRegister: both registrations have token %v, want different ones", first.Token)
		}
		c.writeAndCheck(nd.Success, 0, 100, second, 0)
		c.wantWriteRefused(0, 8, first, 0)
	}, passive: fastRegisterOwner},
	{id: "C144", title: "deferred requests complete in order", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(9, nd.SGL{}))
		s.barrier()
		c.wantReceive(nd.Success, 9)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.barrier()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:100], nd.AllowRead|nd.Defer))
		c.must(c.ep.Invalidate(2, w, nd.Defer))
		c.must(c.ep.Send(3, nd.SGL{}, 0))
		for i, want := range []nd.RequestType{nd.RequestBind, nd.RequestInvalidate, nd.RequestSend} {
			if r := c.wantResult(nd.Success, uint64(i)+1); r.RequestType != want {
				s.errorf("result %d is of a %v, want a %v", i+1, r.RequestType, want)
			}
		}
	}},
	{id: "C145", title: "a post that fails starts the deferred requests", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(9, nd.SGL{}))
		s.barrier()
		c.wantReceive(nd.Success, 9)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		w := s.newWindow()
		s.barrier()
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[:100], nd.AllowRead|nd.Defer))
		c.must(c.ep.Send(2, nd.SGL{}, nd.Defer))
		s.want(nd.DataOverrun, c.ep.Send(3, nd.List(make([]nd.SGE, s.info.MaxInitiatorSGE+1)...), 0))
		c.wantResult(nd.Success, 1)
		c.wantResult(nd.Success, 2)
		s.wantEmpty(c.cq)
		c.wantAlive()
	}},
}
