package ndtest

import (
	"slices"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

var sendInvalidateScenarios = slices.Concat(revokedByMessage, revokedInVain, revokedWithFlags)

var revokedByMessage = []scenario{
	{id: "C146", title: "SendAndInvalidate: the window is dead when the Receive's result is there", active: func(s *side) {
		c, d := borrower(s, shape{})
		late := c.another()
		fill(c.memory.mem[:100], 7)
		c.takesBack(100, d.Token, 0)
		hear[string](s)
		late.refusedWrite(0, 100, d, 0)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		late := c.another()
		c.tookBack(100, d.Token)
		s.tell("received")
		late.isOver()
		s.holds(c.memory.mem[inboxAt:inboxAt+100], 7)
		s.blank(c.memory.mem[inboxAt+100:])
		s.blank(c.memory.mem[:grantSize])
		c.alive()
	}},
	{id: "C147", title: "the Receive's result names the token that was invalidated", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.takesBack(100, d.Token, 0)
		c.alive()
	}, passive: func(s *side) {
		c, w, d := lender(s, shape{})
		r := c.received(nd.Success, inbox)
		if r.RequestType != nd.RequestReceiveAndInvalidate || ndcompat.NDKOperationTypeOf(r.RequestType) != ndcompat.NDKOperationReceiveAndInvalidate {
			s.errorf("the result is of a %v", r.RequestType)
		}
		if r.InvalidatedToken != d.Token || r.InvalidatedToken != w.RemoteToken() {
			s.errorf("the result names %v, the window had %v", r.InvalidatedToken, d.Token)
		}
		c.alive()
	}},
	{id: "C148", title: "to a program that looks at no more than a plain result, it is a Receive", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.takesBack(100, d.Token, 0)
		c.refusedWrite(0, 8, d, 0)
	}, passive: func(s *side) {
		c, _, _ := lender(s, shape{Split: true})
		r := s.take(c.rcq)
		if r.Status != nd.Success || r.RequestContext != inbox || r.EndpointContext != c.context || r.BytesTransferred != 100 {
			s.errorf("the result is %+v", r)
		}
		s.empty(c.cq)
		c.isOver()
	}},
	{id: "C149", title: "to the sender it is a Send", active: func(s *side) {
		c, d := borrower(s, shape{})
		r := c.takesBack(100, d.Token, 0)
		if r.RequestType != nd.RequestSend || r.InvalidatedToken != 0 || r.BytesTransferred != 100 {
			s.errorf("the result is %+v", r)
		}
		s.empty(c.cq)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		c.tookBack(100, d.Token)
		c.alive()
	}},
	{id: "C150", title: "a window that the peer has invalidated cannot be invalidated again", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.takesBack(100, d.Token, 0)
		c.isOver()
	}, passive: func(s *side) {
		c, w, d := lender(s, shape{})
		c.tookBack(100, d.Token)
		c.must(c.ep.Invalidate(1, w, 0))
		c.done(nd.InvalidDeviceRequest, 1)
		c.isOver()
	}},
	{id: "C151", title: "a window that the peer has invalidated can be bound again", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.takesBack(100, d.Token, 0)
		again := hear[nd.WindowDescriptor](s)
		if again.Token == d.Token {
			s.errorf("the window has its old token")
		}
		fill(c.memory.mem[:1000], 3)
		c.writes(nd.Success, 0, 1000, again, 0)
		c.alive()
	}, passive: func(s *side) {
		c, w, d := lender(s, shape{})
		c.tookBack(100, d.Token)
		s.tell(c.bind(w, 8192, 1000, nd.AllowWrite))
		c.alive()
		s.holds(c.memory.mem[8192:9192], 3)
	}},
	{id: "C152", title: "after the peer has invalidated its window the region is no longer busy", active: func(s *side) {
		c, d := borrower(s, shape{})
		s.meet()
		c.takesBack(100, d.Token, 0)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		s.want(nd.DeviceBusy, c.memory.mr.Deregister(s.ctx))
		s.meet()
		c.tookBack(100, d.Token)
		s.must(c.memory.mr.Deregister(s.ctx))
		c.alive()
	}},
}

var revokedInVain = []scenario{
	{id: "C153", title: "SendAndInvalidate with an unknown token ends the connection", active: func(s *side) {
		base := s.pair(shape{})
		for _, token := range []nd.Token{0, ^base.far.Token} {
			base.another().revokesInVain(token, 0)
		}
		base.alive()
	}, passive: func(s *side) {
		base := s.pair(shape{})
		for range 2 {
			base.another().refusesToRevoke()
		}
		base.alive()
	}},
	{id: "C154", title: "and so does one with a token that was invalidated, by its owner or by the peer", active: func(s *side) {
		base := s.pair(shape{})
		c := base.another()
		c.revokesInVain(hear[nd.WindowDescriptor](s).Token, 0)
		c = base.another()
		d := hear[nd.WindowDescriptor](s)
		c.takesBack(100, d.Token, 0)
		c.revokesInVain(d.Token, 0)
		base.alive()
	}, passive: func(s *side) {
		base := s.pair(shape{})
		w := s.window()
		c := base.another()
		d := c.bind(w, 0, grantSize, readWrite)
		c.invalidate(w)
		s.tell(d)
		c.refusesToRevoke()
		c = base.another()
		d = c.bind(w, 0, grantSize, readWrite)
		c.awaitMessage()
		s.tell(d)
		c.tookBack(100, d.Token)
		clear(c.memory.mem)
		c.refusesToRevoke()
		base.alive()
	}},
	{id: "C155", title: "and one with the token of a window that is bound on another connection, which does not suffer", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.another().revokesInVain(d.Token, 0)
		c.writes(nd.Success, 0, 100, d, 0)
		c.takesBack(100, d.Token, 0)
		c.alive()
	}, passive: func(s *side) {
		c, _, d := lender(s, shape{})
		c.another().refusesToRevoke()
		c.tookBack(100, d.Token)
		c.alive()
	}},
	{id: "C156", title: "and one with a plain region's token; the region does not suffer", active: func(s *side) {
		c := s.pair(shape{})
		c.another().revokesInVain(c.far.Token, 0)
		c.writes(nd.Success, 0, 100, c.far, 0)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.another().refusesToRevoke()
		c.alive()
	}},
	{id: "C164", title: "a silent SendAndInvalidate that fails leaves a result", active: func(s *side) {
		c := s.pair(shape{})
		c.revokesInVain(^c.far.Token, nd.SilentSuccess)
	}, passive: func(s *side) {
		s.pair(shape{}).refusesToRevoke()
	}},
	{id: "C167", title: "SendAndInvalidate on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(shape{})
		s.want(nd.ConnectionInvalid, c.ep.SendAndInvalidate(1, c.sge(0, 8), 1, 0))
		s.empty(c.cq)
	}},
	{id: "C168", title: "SendAndInvalidate to a Receive that is too small", active: func(s *side) {
		c, d := borrower(s, shape{})
		c.must(c.ep.SendAndInvalidate(1, c.sge(0, inboxSize+1), d.Token, 0))
		c.done(nd.RemoteError, 1)
		c.isOver()
	}, passive: func(s *side) {
		c, _, _ := lender(s, shape{})
		r := c.received(nd.BufferOverflow, inbox)
		if r.InvalidatedToken != 0 || r.BytesTransferred != 0 {
			s.errorf("the result is %+v", r)
		}
		c.isOver()
		s.must(c.memory.mr.Deregister(s.ctx)) // the window went with the connection
	}},
	{id: "C169", title: "of the owner's Invalidate and the peer's at the same time one succeeds, the other ends the connection (60 times)",
		active: raceFromAfar, passive: raceAtHome},
}

const races = 60

func raceFromAfar(s *side) {
	base := s.pair(shape{})
	for range races {
		c := base.another()
		d := hear[nd.WindowDescriptor](s)
		s.meet()
		c.must(c.ep.SendAndInvalidate(3, nil, d.Token, 0))
		r := c.next(true)
		s.tell(r.Status)
		c.isOver()
		c.shut()
	}
	base.alive()
}

func raceAtHome(s *side) {
	base := s.pair(shape{})
	w := s.window()
	first := 0
	for range races {
		c := base.another()
		d := c.bind(w, 0, grantSize, readWrite)
		c.must(c.ep.Receive(1, nil))
		s.tell(d)
		s.meet()
		c.must(c.ep.Invalidate(2, w, 0))
		own, message := c.next(true), c.next(false)
		sender := hear[nd.Status](s)
		switch own.Status {
		case nd.Success:
			first++
			if message.Status != nd.InvalidDeviceRequest || sender != nd.RemoteError {
				s.fatalf("invalidated here; the Receive ended with %v, the Send with %v", message.Status, sender)
			}
		case nd.InvalidDeviceRequest:
			if message.Status != nd.Success || message.InvalidatedToken != d.Token || sender != nd.Success {
				s.fatalf("not invalidated here; the Receive ended with %v and %v, the Send with %v", message.Status, message.InvalidatedToken, sender)
			}
		default:
			s.fatalf("the Invalidate ended with %v, the Receive with %v, the Send with %v", own.Status, message.Status, sender)
		}
		c.isOver()
		c.shut()
	}
	s.logf("the owner's Invalidate came first in %d of %d races", first, races)
	s.must(base.memory.mr.Deregister(s.ctx)) // no window is bound any more
	base.alive()
}
