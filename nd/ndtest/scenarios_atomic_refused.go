package ndtest

import "github.com/softnd/softnd/nd"

var atomicRefusals = []scenario{
	{id: "X020", title: "atomics on an endpoint that is not connected are refused", active: func(s *side) {
		s.skipUnless(nd.AtomicsSupported)
		c := s.prepare(atomicOptions())
		for _, a := range atomics {
			s.want(nd.ConnectionInvalid, a.post(c, 1, c.sge(0, 8).First, c.memory.descriptor(), 0))
		}
		s.wantEmpty(c.cq)
	}},
	{id: "X021", title: "atomics refuse an entry that does not have 8 bytes, an address that is no multiple of 8, and flags of other requests", active: func(s *side) {
		c := s.atomicPair()
		for _, a := range atomics {
			for _, n := range []int{0, 4, 7, 9, 16} {
				s.want(nd.InvalidBufferSize, a.post(c, 1, c.sge(0, n).First, c.peerRegion, 0))
			}
			for _, off := range []int{1, 4, 12} {
				s.want(nd.InvalidParameter, a.post(c, 1, c.sge(0, 8).First, past(c.peerRegion, off), 0))
			}
			for _, f := range []nd.OpFlags{nd.Inline, nd.SendAndSolicitEvent, nd.AllowRead, nd.AllowAtomic, nd.ReadLocalInvalidate, unknownFlag} {
				s.want(nd.InvalidParameter, a.post(c, 1, c.sge(0, 8).First, c.peerRegion, f))
			}
		}
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.atomicPair()
		c.wantAlive()
		s.wantZero(c.memory.mem)
	}},
	{id: "X022", title: "Bind for atomics of a region without AllowLocalWrite is refused", active: func(s *side) {
		c, w := s.atomicPair(), s.newWindow()
		r := s.region(4096, nd.AllowRemoteRead)
		s.want(nd.AccessViolation, c.ep.Bind(1, r.mr, w, r.mem, nd.AllowAtomic))
		c.wantAlive()
	}, passive: func(s *side) { s.atomicPair().wantAlive() }},
	{id: "X023", title: "a window for atomics takes nothing else, and its region needs no remote right", active: func(s *side) {
		c := s.atomicPair()
		reader := c.anotherConn()
		d := c.hearDescriptor()
		c.add(1, oldAt, d, 8, 2, 0)
		c.wantDone(nd.RequestFetchAndAdd, 1, 8)
		reader.wantReadRefused(0, 8, d, 8)
		c.wantWriteRefused(0, 8, d, 8)
	}, passive: func(s *side) {
		s.skipUnless(nd.AtomicsSupported)
		c := s.pair(connOptions{RegionFlags: nd.AllowLocalWrite})
		reader := c.anotherConn()
		c.bindAndTell(64, 64, nd.AllowAtomic)
		reader.wantBroken()
		c.wantBroken()
		c.wantNumberAt(72, 2)
	}},
	refusedAtomic("X024", "a region without the right", refusal{rights: allRights}),
	refusedAtomic("X025", "a window without the right", refusal{rights: atomicRights, bind: readWrite}),
	refusedAtomic("X026", "8 bytes behind a window", refusal{rights: atomicRights, bind: nd.AllowAtomic, off: 64}),
	refusedAtomic("X027", "8 bytes before a window", refusal{rights: atomicRights, bind: nd.AllowAtomic, off: -8}),
	refusedAtomic("X028", "a wrong local token", refusal{rights: atomicRights, badToken: true}),
	refusedAtomic("X029", "a local region without AllowLocalWrite", refusal{rights: atomicRights, readOnly: true}),
}

// refusal says why an atomic is refused.
type refusal struct {
	rights             nd.RegionFlags // of the owner's region
	bind               nd.OpFlags     // of its window; 0 = the region's own token is used
	off                int            // of the number in the window or region
	badToken, readOnly bool           // of the region for the old value
}

// refusedAtomic is a row in which each atomic fails with AccessViolation.
func refusedAtomic(id, why string, r refusal) scenario {
	return scenario{id: id, title: "each atomic is refused with AccessViolation: " + why, active: func(s *side) {
		s.skipUnless(nd.AtomicsSupported)
		base := s.pair(connOptions{})
		local := nd.AllowLocalWrite
		if r.readOnly {
			local = nd.AllowRemoteRead
		}
		old := s.region(4096, local).sge(0, 8).First
		if r.badToken {
			old.Token = ^old.Token
		}
		d := base.hearDescriptor()
		for _, a := range atomics {
			c := base.anotherConn()
			s.must(a.post(c, 1, old, past(d, r.off), 0))
			if got := c.wantResult(nd.AccessViolation, 1); got.RequestType != a.kind || got.BytesTransferred != 0 {
				s.errorf("result %+v, want a %v of 0 bytes", got, a.kind)
			}
			c.wantBroken()
			s.wantZero(old.Buffer)
		}
		base.wantAlive()
	}, passive: func(s *side) {
		s.skipUnless(nd.AtomicsSupported)
		base := s.pair(connOptions{RegionFlags: r.rights})
		if r.bind != 0 {
			base.bindAndTell(1024, 64, r.bind)
		} else {
			s.tell(base.memory.descriptor())
		}
		for range atomics {
			base.anotherConn().wantBroken()
		}
		base.wantAlive()
		if !r.badToken && !r.readOnly { // then the number may have changed
			s.wantZero(base.memory.mem)
		}
	}}
}

// atomicRevocations are rows in which access ends while atomics use it.
var atomicRevocations = []scenario{
	revokedAtomics("X030", revocations[0]),
	revokedAtomics("X031", revocations[1]),
	revokedAtomics("X032", revocations[2]),
	revokedAtomics("X033", revocations[3]),
	revokedAtomics("X034", revocations[4]),
}

func revokedAtomics(id string, w revocation) scenario {
	return scenario{id: id, title: w.name + ": access that atomics use: each that succeeded counts, and none comes later", active: func(s *side) {
		base := s.atomicPair()
		user := base.anotherConn()
		d := base.hearDescriptor()
		done, status := 0, nd.Success
		for n := 0; status == nd.Success; n++ {
			user.add(1, oldAt, d, 0, 1, 0)
			if n == 20 {
				s.tell("in use")
				w.requestIfPeer(base, d)
			}
			if status = user.nextResult(true).Status; status == nd.Success {
				done++
			}
		}
		if status != nd.AccessViolation {
			s.errorf("the status of the last atomic is %v, want %v", status, nd.AccessViolation)
		}
		s.tell(done)
		user.wantBroken()
		base.wantAlive()
	}, passive: func(s *side) {
		base := s.atomicPair()
		user := base.anotherConn()
		g := base.grantAccess(w, base.memory.mem)
		hear[string](s)
		g.revoke(g)
		last := base.number(0)
		done := uint64(hear[int](s))
		if base.wantNumberAt(0, last); last < done || last > done+1 {
			s.errorf("the number is %d after %d additions that succeeded, want that or one more", last, done)
		}
		user.wantBroken()
		base.wantAlive()
	}}
}
