package ndtest

import (
	"slices"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

var sendInvalidateScenarios = slices.Concat(sendInvalidateBasics, refusedInvalidateScenarios, sendInvalidateFlagScenarios)

var sendInvalidateBasics = []scenario{
	{id: "C146", title: "SendAndInvalidate: the window is invalid when the Receive has a result", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		late := c.anotherConn()
		fill(c.memory.mem[:100], 7)
		c.sendInvalidate(100, d.Token, 0)
		hear[string](s)
		late.wantWriteRefused(0, 100, d, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		late := c.anotherConn()
		c.wantInvalidated(100, d.Token)
		s.tell("received")
		late.wantBroken()
		s.wantPattern(c.memory.mem[inboxAt:inboxAt+100], 7)
		s.wantZero(c.memory.mem[inboxAt+100:])
		s.wantZero(c.memory.mem[:accessSize])
		c.wantAlive()
	}},
	{id: "C147", title: "the Receive's result names the token that was invalidated", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.sendInvalidate(100, d.Token, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c, w, d := windowOwner(s, connOptions{})
		r := c.wantReceive(nd.Success, inbox)
		if r.RequestType != nd.RequestReceiveAndInvalidate || ndcompat.NDKOperationTypeOf(r.RequestType) != ndcompat.NDKOperationReceiveAndInvalidate {
			s.errorf("result of a %v, want a ReceiveAndInvalidate", r.RequestType)
		}
		if r.InvalidatedToken != d.Token || r.InvalidatedToken != w.RemoteToken() {
			s.errorf("InvalidatedToken: %v, want that of the window, %v", r.InvalidatedToken, d.Token)
		}
		c.wantAlive()
	}},
	{id: "C148", title: "the Receive of a SendAndInvalidate has the fields of a plain Receive", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.sendInvalidate(100, d.Token, 0)
		c.wantWriteRefused(0, 8, d, 0)
	}, passive: func(s *side) {
		c, _, _ := windowOwner(s, connOptions{SplitCQs: true})
		r := s.takeResult(c.rcq)
		if r.Status != nd.Success || r.RequestContext != inbox || r.EndpointContext != c.context || r.BytesTransferred != 100 {
			s.errorf("result %+v, want Success with the contexts of the Receive and 100 bytes", r)
		}
		s.wantEmpty(c.cq)
		c.wantBroken()
	}},
	{id: "C149", title: "the sender's result of SendAndInvalidate is that of a Send", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		r := c.sendInvalidate(100, d.Token, 0)
		if r.RequestType != nd.RequestSend || r.InvalidatedToken != 0 || r.BytesTransferred != 100 {
			s.errorf("result %+v, want a Send of 100 bytes without InvalidatedToken", r)
		}
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		c.wantInvalidated(100, d.Token)
		c.wantAlive()
	}},
	{id: "C150", title: "a window that the peer has invalidated cannot be invalidated again", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.sendInvalidate(100, d.Token, 0)
		c.wantBroken()
	}, passive: func(s *side) {
		c, w, d := windowOwner(s, connOptions{})
		c.wantInvalidated(100, d.Token)
		c.must(c.ep.Invalidate(1, w, 0))
		c.wantResult(nd.InvalidDeviceRequest, 1)
		c.wantBroken()
	}},
	{id: "C151", title: "a window that the peer has invalidated can be bound again", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.sendInvalidate(100, d.Token, 0)
		again := hear[nd.WindowDescriptor](s)
		if again.Token == d.Token {
			s.errorf("Bind: the window has its old token, want another")
		}
		fill(c.memory.mem[:1000], 3)
		c.writeAndCheck(nd.Success, 0, 1000, again, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c, w, d := windowOwner(s, connOptions{})
		c.wantInvalidated(100, d.Token)
		s.tell(c.bind(w, 8192, 1000, nd.AllowWrite))
		c.wantAlive()
		s.wantPattern(c.memory.mem[8192:9192], 3)
	}},
	{id: "C152", title: "Deregister succeeds after the peer has invalidated the window of the region", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		s.barrier()
		c.sendInvalidate(100, d.Token, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		s.want(nd.DeviceBusy, c.memory.mr.Deregister(s.ctx))
		s.barrier()
		c.wantInvalidated(100, d.Token)
		s.must(c.memory.mr.Deregister(s.ctx))
		c.wantAlive()
	}},
}

var refusedInvalidateScenarios = []scenario{
	{id: "C153", title: "SendAndInvalidate with an unknown token ends the connection", active: func(s *side) {
		base := s.pair(connOptions{})
		for _, token := range []nd.Token{0, ^base.peerRegion.Token} {
			base.anotherConn().sendRefusedInvalidate(token, 0)
		}
		base.wantAlive()
	}, passive: func(s *side) {
		base := s.pair(connOptions{})
		for range 2 {
			base.anotherConn().refuseInvalidate()
		}
		base.wantAlive()
	}},
	{id: "C154", title: "SendAndInvalidate with a token that its owner or the peer has invalidated ends the connection", active: func(s *side) {
		base := s.pair(connOptions{})
		c := base.anotherConn()
		c.sendRefusedInvalidate(hear[nd.WindowDescriptor](s).Token, 0)
		c = base.anotherConn()
		d := hear[nd.WindowDescriptor](s)
		c.sendInvalidate(100, d.Token, 0)
		c.sendRefusedInvalidate(d.Token, 0)
		base.wantAlive()
	}, passive: func(s *side) {
		base := s.pair(connOptions{})
		w := s.newWindow()
		c := base.anotherConn()
		d := c.bind(w, 0, accessSize, readWrite)
		c.invalidate(w)
		s.tell(d)
		c.refuseInvalidate()
		c = base.anotherConn()
		d = c.bind(w, 0, accessSize, readWrite)
		c.postInbox()
		s.tell(d)
		c.wantInvalidated(100, d.Token)
		clear(c.memory.mem)
		c.refuseInvalidate()
		base.wantAlive()
	}},
	{id: "C155", title: "SendAndInvalidate with the token of a window on another connection ends its own connection only", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.anotherConn().sendRefusedInvalidate(d.Token, 0)
		c.writeAndCheck(nd.Success, 0, 100, d, 0)
		c.sendInvalidate(100, d.Token, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c, _, d := windowOwner(s, connOptions{})
		c.anotherConn().refuseInvalidate()
		c.wantInvalidated(100, d.Token)
		c.wantAlive()
	}},
	{id: "C156", title: "SendAndInvalidate with a region's token ends the connection and leaves the region registered", active: func(s *side) {
		c := s.pair(connOptions{})
		c.anotherConn().sendRefusedInvalidate(c.peerRegion.Token, 0)
		c.writeAndCheck(nd.Success, 0, 100, c.peerRegion, 0)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.anotherConn().refuseInvalidate()
		c.wantAlive()
	}},
	{id: "C164", title: "a silent SendAndInvalidate that fails makes a result", active: func(s *side) {
		c := s.pair(connOptions{})
		c.sendRefusedInvalidate(^c.peerRegion.Token, nd.SilentSuccess)
	}, passive: func(s *side) {
		s.pair(connOptions{}).refuseInvalidate()
	}},
	{id: "C167", title: "SendAndInvalidate on an endpoint that is not connected is refused", active: func(s *side) {
		c := s.prepare(connOptions{})
		s.want(nd.ConnectionInvalid, c.ep.SendAndInvalidate(1, c.sge(0, 8), 1, 0))
		s.wantEmpty(c.cq)
	}},
	{id: "C168", title: "SendAndInvalidate to a Receive that is too small fails and names no token", active: func(s *side) {
		c, d := windowUser(s, connOptions{})
		c.must(c.ep.SendAndInvalidate(1, c.sge(0, inboxSize+1), d.Token, 0))
		c.wantResult(nd.RemoteError, 1)
		c.wantBroken()
	}, passive: func(s *side) {
		c, _, _ := windowOwner(s, connOptions{})
		r := c.wantReceive(nd.BufferOverflow, inbox)
		if r.InvalidatedToken != 0 || r.BytesTransferred != 0 {
			s.errorf("result %+v, want 0 bytes and no InvalidatedToken", r)
		}
		c.wantBroken()
		s.must(c.memory.mr.Deregister(s.ctx)) // the end of the connection has unbound the window
	}},
	{id: "C169", title: "of concurrent Invalidates by owner and peer, one succeeds and the other ends the connection (60 times)",
		active: raceInvalidatePeer, passive: raceInvalidateOwner},
}

const races = 60

func raceInvalidatePeer(s *side) {
	base := s.pair(connOptions{})
	for range races {
		c := base.anotherConn()
		d := hear[nd.WindowDescriptor](s)
		s.barrier()
		c.must(c.ep.SendAndInvalidate(3, nd.SGL{}, d.Token, 0))
		r := c.nextResult(true)
		s.tell(r.Status)
		c.wantBroken()
		c.closeConnection()
	}
	base.wantAlive()
}

func raceInvalidateOwner(s *side) {
	base := s.pair(connOptions{})
	w := s.newWindow()
	first := 0
	for range races {
		c := base.anotherConn()
		d := c.bind(w, 0, accessSize, readWrite)
		c.must(c.ep.Receive(1, nd.SGL{}))
		s.tell(d)
		s.barrier()
		c.must(c.ep.Invalidate(2, w, 0))
		own, message := c.nextResult(true), c.nextResult(false)
		sender := hear[nd.Status](s)
		switch own.Status {
		case nd.Success:
			first++
			if message.Status != nd.InvalidDeviceRequest || sender != nd.RemoteError {
				s.fatalf("Invalidate: Success; Receive: %v, want InvalidDeviceRequest; Send: %v, want RemoteError", message.Status, sender)
			}
		case nd.InvalidDeviceRequest:
			if message.Status != nd.Success || message.InvalidatedToken != d.Token || sender != nd.Success {
				s.fatalf("Invalidate: InvalidDeviceRequest; Receive: %v with token %v, want Success with the window's; Send: %v, want Success", message.Status, message.InvalidatedToken, sender)
			}
		default:
			s.fatalf("Invalidate: %v, want Success or InvalidDeviceRequest; Receive: %v; Send: %v", own.Status, message.Status, sender)
		}
		c.wantBroken()
		c.closeConnection()
	}
	s.logf("the owner's Invalidate succeeded in %d of %d races", first, races)
	s.must(base.memory.mr.Deregister(s.ctx)) // no window is bound
	base.wantAlive()
}
