package ndtest

import (
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
)

// connOptions says what one side of a connection is like; the zero value is the usual pair: one
// completion queue for both queues, a region of 64 KiB with all rights, depths of 16, 4 entries,
// inline data up to the adapter's threshold, read limits of 4, no private data.
type connOptions struct {
	CQDepth       int               // its depth; 0 = 256
	SplitCQs      bool              // a completion queue for each queue
	RegionSize    int               // bytes; 0 = 64 KiB
	RegionFlags   nd.RegionFlags    // of the region; 0 = all rights
	NoRegionFlags bool              // Flags are meant to be 0
	Endpoint      nd.EndpointConfig // 0 = the usual; queues and context are filled in
	InboundReads  int               // read limits; 0 = 4, -1 = 0
	OutboundReads int
	PrivateData   []byte      // private data for the peer
	ShareWith     *conn       // use its completion queues and its region
	BeforeConnect func(*conn) // called when all objects are there, before they are connected
}

// conn is one side's half of a connection, and what belongs to it.
type conn struct {
	*side
	ep          nd.Endpoint
	cq, rcq     nd.CompletionQueue // of the initiator queue and of the receive queue
	memory      *region
	connector   nd.Connector
	peerRegion  nd.WindowDescriptor // the peer's region, by its own remote token
	peerData    []byte              // the peer's private data
	context     uint64              // of the endpoint
	aliveRegion *region             // for alive; nil until then
	adapter     nd.Adapter          // of the endpoint, which need not be the half's own
	opts        connOptions
}

// newQueue creates a completion queue.
func (s *side) newQueue(depth int) nd.CompletionQueue {
	q, err := s.ad.CreateCompletionQueue(s.ctx, depth)
	s.must(err)
	s.cleanup(func() { q.Close() })
	return q
}

// newBoundConnector creates a connector and binds it to a port of the adapter.
func (s *side) newBoundConnector(port uint16) nd.Connector {
	c := s.newConnector()
	s.must(c.Bind(netip.AddrPortFrom(s.addr, port)))
	return c
}

// newConnector creates a connector.
func (s *side) newConnector() nd.Connector {
	c, err := s.ad.CreateConnector(s.ctx)
	s.must(err)
	s.cleanup(func() { c.Close() })
	return c
}

// listen creates a listener at a free port.
func (s *side) listen(backlog int) (nd.Listener, netip.AddrPort) {
	l, err := s.ad.CreateListener(s.ctx)
	s.must(err)
	s.cleanup(func() { l.Close() })
	s.must(l.Bind(netip.AddrPortFrom(s.addr, 0)))
	s.must(l.Listen(backlog))
	addr, err := l.LocalAddress()
	s.must(err)
	return l, addr
}

// prepare creates everything that a connection needs, without connecting.
func (s *side) prepare(o connOptions) *conn {
	c := &conn{side: s, opts: o, adapter: s.ad}
	if o.ShareWith != nil {
		c.cq, c.rcq, c.memory = o.ShareWith.cq, o.ShareWith.rcq, o.ShareWith.memory
	} else {
		depth := or(o.CQDepth, min(256, int(s.info.MaxCompletionQueueDepth)))
		c.cq = s.newQueue(depth)
		c.rcq = c.cq
		if o.SplitCQs {
			c.rcq = s.newQueue(depth)
		}
		flags := o.RegionFlags
		if flags == 0 && !o.NoRegionFlags {
			flags = allRights
		}
		c.memory = s.region(or(o.RegionSize, 64<<10), flags)
	}
	s.serial++
	c.context = s.serial<<8 | uint64(s.role)
	l := o.Endpoint
	l.Receive, l.Initiator, l.Context = c.rcq, c.cq, c.context
	if l.SharedReceive == nil {
		l.ReceiveDepth, l.MaxReceiveSGE = or(l.ReceiveDepth, 16), or(l.MaxReceiveSGE, min(4, int(s.info.MaxReceiveSGE)))
	}
	l.InitiatorDepth, l.MaxInitiatorSGE = or(l.InitiatorDepth, 16), or(l.MaxInitiatorSGE, min(4, int(s.info.MaxInitiatorSGE)))
	l.InlineSize = or(l.InlineSize, int(s.info.InlineRequestThreshold))
	ep, err := s.ad.CreateEndpoint(s.ctx, l)
	s.must(err)
	s.cleanup(func() { ep.Close() })
	c.ep, s.endpoints = ep, append(s.endpoints, ep)
	if o.BeforeConnect != nil {
		o.BeforeConnect(c)
	}
	return c
}

func or(n, ifZero int) int {
	if n == 0 {
		return ifZero
	}
	return n
}

func (o *connOptions) connectParams() nd.ConnectParams {
	limit := func(n int) int {
		if n < 0 {
			return 0
		}
		return or(n, 4)
	}
	return nd.ConnectParams{InboundReadLimit: limit(o.InboundReads), OutboundReadLimit: limit(o.OutboundReads), PrivateData: o.PrivateData}
}

// pair makes one side of a connection; both halves call it, with shapes of their own. When it
// returns both sides are connected, and each knows the other's region.
func (s *side) pair(o connOptions) *conn {
	c := s.prepare(o)
	if s.role == active {
		c.connect(hear[netip.AddrPort](s))
		c.completeConnect()
	} else {
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		l.Close()
	}
	s.tell(c.memory.descriptor())
	c.peerRegion = hear[nd.WindowDescriptor](s)
	return c
}

// connect makes the active side's connector and connects it, without completing.
func (c *conn) connect(to netip.AddrPort) {
	c.connector = c.newBoundConnector(0)
	c.must(c.connector.Connect(c.ctx, c.ep, to, c.opts.connectParams()))
	c.peerData = c.privateData()
}

// completeConnect is the active side's last step.
func (c *conn) completeConnect() {
	c.must(c.connector.CompleteConnect(c.ctx))
	if c.ep.Connector() != c.connector {
		c.errorf("the endpoint names %v as its connector, not %v", c.ep.Connector(), c.connector)
	}
}

// getRequest takes the next request into a fresh connector.
func (c *conn) getRequest(l nd.Listener) {
	c.connector = c.newConnector()
	c.must(l.GetConnectionRequest(c.ctx, c.connector))
	c.peerData = c.privateData()
}

// accept takes the next request and accepts it.
func (c *conn) accept(l nd.Listener) {
	c.getRequest(l)
	c.must(c.connector.Accept(c.ctx, c.ep, c.opts.connectParams()))
}

func (c *conn) privateData() []byte {
	buf := make([]byte, max(c.info.MaxCallerData, c.info.MaxCalleeData))
	n, err := c.connector.GetPrivateData(buf)
	c.must(err)
	return buf[:n]
}

// sge names n bytes of the connection's region from off on.
func (c *conn) sge(off, n int) []nd.SGE { return c.memory.sge(off, n) }

// ---- Results ----

// takeResult waits for the next result in cq, of whichever endpoint.
func (s *side) takeResult(cq nd.CompletionQueue) nd.Result {
	if kept := s.stash[cq]; len(kept) > 0 {
		s.stash[cq] = kept[1:]
		return kept[0]
	}
	var one [1]nd.Result
	_, err := cq.Wait(s.ctx, one[:])
	s.must(err)
	return one[0]
}

// nextResult waits for the next result of this endpoint's initiator or receive queue; others that come
// before it are kept.
func (c *conn) nextResult(initiator bool) nd.Result {
	cq := c.rcq
	if initiator {
		cq = c.cq
	}
	for i, r := range c.stash[cq] {
		if c.ownsResult(r, initiator) {
			c.stash[cq] = append(append([]nd.Result(nil), c.stash[cq][:i]...), c.stash[cq][i+1:]...)
			return r
		}
	}
	for {
		var one [1]nd.Result
		if _, err := cq.Wait(c.ctx, one[:]); err != nil {
			kind := "receive"
			if initiator {
				kind = "initiator"
			}
			c.fatalf("waiting for a result of the %s queue: %v (the endpoint says: %v)", kind, err, c.ep.Err())
		}
		if c.ownsResult(one[0], initiator) {
			return one[0]
		}
		c.stash[cq] = append(c.stash[cq], one[0])
	}
}

func (c *conn) ownsResult(r nd.Result, initiator bool) bool {
	return r.EndpointContext == c.context && r.RequestType.Initiator() == initiator
}

// wantResult waits for the next initiator result and checks its status and its context.
func (c *conn) wantResult(status nd.Status, reqCtx uint64) nd.Result {
	return c.checkResult(c.nextResult(true), status, reqCtx)
}

// wantReceive waits for the next receive result and checks its status and its context.
func (c *conn) wantReceive(status nd.Status, reqCtx uint64) nd.Result {
	return c.checkResult(c.nextResult(false), status, reqCtx)
}

func (c *conn) checkResult(r nd.Result, status nd.Status, reqCtx uint64) nd.Result {
	if r.Status != status || r.RequestContext != reqCtx {
		c.fatalf("result %v of request %d (%v), want %v of request %d (the endpoint says: %v)",
			r.Status, r.RequestContext, r.RequestType, status, reqCtx, c.ep.Err())
	}
	if status != nd.Success && c.ep.Err() == nil {
		c.errorf("a result is %v, and the endpoint has no reason for it", status)
	}
	return r
}

// wantFlushed checks that the initiator requests of the given contexts complete with Canceled, in
// this order, and that nothing else is left in that queue.
func (c *conn) wantFlushed(reqCtx ...uint64) {
	for _, x := range reqCtx {
		c.wantResult(nd.Canceled, x)
	}
}

// wantReceivesFlushed is flushed for the receive queue.
func (c *conn) wantReceivesFlushed(reqCtx ...uint64) {
	for _, x := range reqCtx {
		c.wantReceive(nd.Canceled, x)
	}
}

// wantErrorState checks that the endpoint is in the error state: posts succeed, and complete with
// Canceled. Results of earlier requests must have been taken.
func (c *conn) wantErrorState() {
	c.eventually("the endpoint fails", func() bool { return c.ep.Err() != nil })
	const probe = 0xdead
	c.must(c.ep.Receive(probe, nil))
	c.wantReceive(nd.Canceled, probe)
	c.must(c.ep.Send(probe+1, nil, 0))
	c.wantResult(nd.Canceled, probe+1)
}

// wantDisconnected checks that NotifyDisconnect returns, and that Done does without a poll.
func (c *conn) wantDisconnected() {
	c.must(c.connector.NotifyDisconnect(c.ctx))
	select {
	case <-c.ep.Done():
	case <-c.ctx.Done():
		c.fatalf("the connection has ended, and Done is still open: %v", c.ctx.Err())
	}
	if c.ep.Err() == nil {
		c.errorf("Done is closed, and Err is nil")
	}
}

// wantAlive checks that the connection still carries a message of one byte in each direction, from and
// to memory of its own. Both halves call it.
func (c *conn) wantAlive() {
	const probe = 0xa11fe
	sent := [2]byte{passive: 0x9a, active: 0xa5}
	if c.aliveRegion == nil {
		c.withAdapter(c.adapter, func() { c.aliveRegion = c.region(2, nd.AllowLocalWrite) })
	}
	c.aliveRegion.mem[0], c.aliveRegion.mem[1] = 0, sent[c.role]
	c.must(c.ep.Receive(probe, c.aliveRegion.sge(0, 1)))
	c.barrier() // both receives are posted
	c.must(c.ep.Send(probe+1, c.aliveRegion.sge(1, 1), 0))
	c.wantResult(nd.Success, probe+1)
	if r := c.wantReceive(nd.Success, probe); r.BytesTransferred != 1 || c.aliveRegion.mem[0] != sent[1-c.role] {
		c.fatalf("a message of %d bytes holds %#x, want %#x in one", r.BytesTransferred, c.aliveRegion.mem[0], sent[1-c.role])
	}
}

// wantEmpty checks that no result is in the queue of this endpoint's requests, now and for a little
// while.
func (s *side) wantEmpty(cq nd.CompletionQueue) {
	time.Sleep(5 * time.Millisecond)
	var one [1]nd.Result
	if n := cq.Poll(one[:]); n > 0 {
		s.fatalf("an unexpected result: %+v", one[0])
	}
	if kept := s.stash[cq]; len(kept) > 0 {
		s.fatalf("an unexpected result: %+v", kept[0])
	}
}

// bind binds w to n bytes of the region from off on, waits for the result, and returns what a
// peer needs.
func (c *conn) bind(w nd.MemoryWindow, off, n int, flags nd.OpFlags) nd.WindowDescriptor {
	const probe = 0xb14d
	c.must(c.ep.Bind(probe, c.memory.mr, w, c.memory.mem[off:off+n], flags))
	c.wantResult(nd.Success, probe)
	return w.Descriptor()
}

// invalidate ends a window's grant and waits for the result.
func (c *conn) invalidate(w nd.MemoryWindow) {
	const probe = 0x1b7a
	c.must(c.ep.Invalidate(probe, w, 0))
	c.wantResult(nd.Success, probe)
}

// disconnect ends the connection in good order; both halves call it.
func (c *conn) disconnect() { c.must(c.connector.Disconnect(c.ctx)) }

// bindAndTell binds a new window to n bytes of the region and tells the other half what it needs; see
// borrow.
func (c *conn) bindAndTell(off, n int, flags nd.OpFlags) nd.MemoryWindow {
	w := c.newWindow()
	c.tell(c.bind(w, off, n, flags))
	return w
}

// hearDescriptor hears what the other half lends.
func (c *conn) hearDescriptor() nd.WindowDescriptor { return hear[nd.WindowDescriptor](c.side) }

// wantLength checks how many bytes a request carried.
func (c *conn) wantLength(r nd.Result, n int) {
	if int(r.BytesTransferred) != n {
		c.fatalf("a %v carried %d bytes, want %d", r.RequestType, r.BytesTransferred, n)
	}
}
