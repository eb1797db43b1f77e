package ndtest

import "github.com/softnd/softnd/nd"

// Words about SendAndInvalidate: the passive side owns the window, the active side takes it away
// with its message.

const (
	grantSize        = 4096
	inboxAt          = 32 << 10 // where in the owner's region messages arrive
	inboxSize        = 500
	inbox     uint64 = 0xb0c5 // the Receive of the message
)

// lender makes the owner's side: a window bound and told, and a Receive posted.
func lender(s *side, o shape) (c *conn, w nd.MemoryWindow, d nd.WindowDescriptor) {
	c = s.pair(o)
	w = s.window()
	d = c.bind(w, 0, grantSize, readWrite)
	c.awaitMessage()
	s.tell(d)
	return c, w, d
}

// borrower makes the other side.
func borrower(s *side, o shape) (*conn, nd.WindowDescriptor) {
	c := s.pair(o)
	return c, hear[nd.WindowDescriptor](s)
}

func (c *conn) awaitMessage() { c.must(c.ep.Receive(inbox, c.sge(inboxAt, inboxSize))) }

// takesBack sends a message of n bytes that invalidates the peer's token.
func (c *conn) takesBack(n int, token nd.Token, flags nd.OpFlags) nd.Result {
	const probe = 0x5a1
	c.must(c.ep.SendAndInvalidate(probe, c.sge(0, n), token, flags))
	return c.done(nd.Success, probe)
}

// tookBack checks the owner's result for such a message.
func (c *conn) tookBack(n int, token nd.Token) {
	r := c.received(nd.Success, inbox)
	if r.RequestType != nd.RequestReceiveAndInvalidate || r.InvalidatedToken != token || int(r.BytesTransferred) != n {
		c.errorf("%v of %d bytes with %v, want %d bytes with %v", r.RequestType, r.BytesTransferred, r.InvalidatedToken, n, token)
	}
}

// revokesInVain sends an invalidation that the peer refuses.
func (c *conn) revokesInVain(token nd.Token, flags nd.OpFlags) {
	c.must(c.ep.Receive(20, nil))
	c.meet() // the owner's Receives are posted
	paint(c.memory.mem[:100], 9)
	c.must(c.ep.SendAndInvalidate(21, c.sge(0, 100), token, flags))
	c.must(c.ep.Send(22, nil, 0))
	if r := c.done(nd.RemoteError, 21); r.RequestType != nd.RequestSend || r.InvalidatedToken != 0 {
		c.errorf("the result is of a %v with %v", r.RequestType, r.InvalidatedToken)
	}
	c.flushed(22)
	c.receivesFlushed(20)
	c.isOver()
	c.meet() // the owner has looked at its memory
}

// refusesToRevoke is the owner's half of it. The message touches nothing.
func (c *conn) refusesToRevoke() {
	const first, second = 30, 31
	c.must(c.ep.Receive(first, c.sge(inboxAt, inboxSize)))
	c.must(c.ep.Receive(second, nil))
	c.meet()
	if r := c.received(nd.InvalidDeviceRequest, first); r.InvalidatedToken != 0 {
		c.errorf("the failed Receive has invalidated %v", r.InvalidatedToken)
	}
	c.receivesFlushed(second)
	c.isOver()
	c.blank(c.memory.mem[inboxAt : inboxAt+inboxSize])
	c.meet()
}

// armed starts a Notify; stop ends it, which must have been in vain.
func (c *conn) armed(cq nd.CompletionQueue, t nd.NotifyType) (wait <-chan error, stop func()) {
	ctx, cancel := c.cancelable()
	wait = c.begun(func() error { return cq.Notify(ctx, t) })
	return wait, func() {
		cancel()
		c.want(nd.Canceled, c.ended(wait))
	}
}
