package ndtest

import "github.com/softnd/softnd/nd"

// Helpers for SendAndInvalidate. The passive side owns the window. A message of the active side
// invalidates it.

const (
	accessSize        = 4096
	inboxAt           = 32 << 10 // offset of messages in the owner's region
	inboxSize         = 500
	inbox      uint64 = 0xb0c5 // request context of the Receive of the message
)

// windowOwner makes the owner's side of a connection. It binds a window, posts a Receive, and tells the
// peer the descriptor.
func windowOwner(s *side, o connOptions) (c *conn, w nd.MemoryWindow, d nd.WindowDescriptor) {
	c = s.pair(o)
	w = s.newWindow()
	d = c.bind(w, 0, accessSize, readWrite)
	c.postInbox()
	s.tell(d)
	return c, w, d
}

// windowUser makes the other side of windowOwner.
func windowUser(s *side, o connOptions) (*conn, nd.WindowDescriptor) {
	c := s.pair(o)
	return c, hear[nd.WindowDescriptor](s)
}

func (c *conn) postInbox() { c.must(c.ep.Receive(inbox, c.sge(inboxAt, inboxSize))) }

// sendInvalidate sends a message of n bytes that invalidates a token of the peer.
func (c *conn) sendInvalidate(n int, token nd.Token, flags nd.OpFlags) nd.Result {
	const probe = 0x5a1
	c.must(c.ep.SendAndInvalidate(probe, c.sge(0, n), token, flags))
	return c.wantResult(nd.Success, probe)
}

// wantInvalidated checks the result of the owner's Receive for such a message.
func (c *conn) wantInvalidated(n int, token nd.Token) {
	r := c.wantReceive(nd.Success, inbox)
	if r.RequestType != nd.RequestReceiveAndInvalidate || r.InvalidatedToken != token || int(r.BytesTransferred) != n {
		c.errorf("result of a %v with %d bytes and invalidated token %v, want a %v with %d bytes and %v",
			r.RequestType, r.BytesTransferred, r.InvalidatedToken, nd.RequestReceiveAndInvalidate, n, token)
	}
}

// sendRefusedInvalidate posts a SendAndInvalidate that the peer refuses. The owner calls
// refuseInvalidate.
func (c *conn) sendRefusedInvalidate(token nd.Token, flags nd.OpFlags) {
	c.must(c.ep.Receive(20, nd.SGL{}))
	c.barrier() // the owner has posted its Receives
	setAll(c.memory.mem[:100], 9)
	c.must(c.ep.SendAndInvalidate(21, c.sge(0, 100), token, flags))
	c.must(c.ep.Send(22, nd.SGL{}, 0))
	if r := c.wantResult(nd.RemoteError, 21); r.RequestType != nd.RequestSend || r.InvalidatedToken != 0 {
		c.errorf("result of a %v with invalidated token %v, want a Send with none", r.RequestType, r.InvalidatedToken)
	}
	c.wantFlushed(22)
	c.wantReceivesFlushed(20)
	c.wantBroken()
	c.barrier() // the owner has checked its memory
}

// refuseInvalidate is the owner's side of sendRefusedInvalidate. The message changes no memory.
func (c *conn) refuseInvalidate() {
	const first, second = 30, 31
	c.must(c.ep.Receive(first, c.sge(inboxAt, inboxSize)))
	c.must(c.ep.Receive(second, nd.SGL{}))
	c.barrier()
	if r := c.wantReceive(nd.InvalidDeviceRequest, first); r.InvalidatedToken != 0 {
		c.errorf("the failed Receive has invalidated token %v, want none", r.InvalidatedToken)
	}
	c.wantReceivesFlushed(second)
	c.wantBroken()
	c.wantZero(c.memory.mem[inboxAt : inboxAt+inboxSize])
	c.barrier()
}

// startNotify starts a Notify. stop cancels it and checks that it was pending.
func (c *conn) startNotify(cq nd.CompletionQueue, t nd.NotifyType) (wait <-chan error, stop func()) {
	ctx, cancel := c.withCancel()
	wait = c.async(func() error { return cq.Notify(ctx, t) })
	return wait, func() {
		cancel()
		c.want(nd.Canceled, c.await(wait))
	}
}
