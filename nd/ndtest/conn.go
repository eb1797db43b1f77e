package ndtest

import (
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
)

// connOptions describes one side of a connection. The zero value has one completion queue for both
// queues and a region of 64 KiB with all rights. Queues have a depth of 16 and 4 entries per request.
// Inline data goes up to the adapter's threshold, read limits are 4, and there is no private data.
type connOptions struct {
	CQDepth       int               // 0 = 256
	SplitCQs      bool              // a completion queue for each of the two queues
	RegionSize    int               // bytes; 0 = 64 KiB
	RegionFlags   nd.RegionFlags    // of the region; 0 = all rights
	NoRegionFlags bool              // use RegionFlags even if it is 0
	Endpoint      nd.EndpointConfig // 0 = as above; prepare sets queues and context
	InboundReads  int               // read limit; 0 = 4, -1 = none
	OutboundReads int
	PrivateData   []byte      // private data for the peer
	ShareWith     *conn       // use its completion queues and region
	BeforeConnect func(*conn) // called when all objects exist, before they are connected
}

// conn is one side of a connection, with its objects.
type conn struct {
	*side
	ep          nd.Endpoint
	cq, rcq     nd.CompletionQueue // of the initiator queue and of the receive queue
	memory      *region
	connector   nd.Connector
	peerRegion  nd.WindowDescriptor // the peer's region, by its own remote token
	peerData    []byte              // the peer's private data
	context     uint64              // of the endpoint
	aliveRegion *region             // of wantAlive; nil until its first call
	adapter     nd.Adapter          // of the endpoint; may differ from side.ad
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

// prepare creates the objects of a connection, without connecting them.
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
	l.ReceiveCQ, l.InitiatorCQ, l.Context = c.rcq, c.cq, c.context
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

// pair makes one side of a connection. Both sides call it, each with its own options. When it returns,
// the sides are connected, and each knows the other's region.
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

// connect creates the active side's connector and connects it, without CompleteConnect.
func (c *conn) connect(to netip.AddrPort) {
	c.connector = c.newBoundConnector(0)
	c.must(c.connector.Connect(c.ctx, c.ep, to, c.opts.connectParams()))
	c.peerData = c.privateData()
}

// completeConnect is the last step of the active side.
func (c *conn) completeConnect() {
	c.must(c.connector.CompleteConnect(c.ctx))
	if c.ep.Connector() != c.connector {
		c.errorf("Endpoint.Connector: got %v, want %v", c.ep.Connector(), c.connector)
	}
}

// getRequest takes the next connection request into a new connector.
func (c *conn) getRequest(l nd.Listener) {
	c.connector = c.newConnector()
	c.must(l.GetConnectionRequest(c.ctx, c.connector))
	c.peerData = c.privateData()
}

// accept takes the next connection request and accepts it.
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

// sge returns a list of one entry: n bytes of the connection's region at offset off.
func (c *conn) sge(off, n int) nd.SGL { return c.memory.sge(off, n) }

// ---- Results ----

// takeResult waits for the next result in cq, of any endpoint.
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

// nextResult waits for the next result of this endpoint's initiator or receive queue. Results of other
// queues that arrive before it go to the stash.
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
			c.fatalf("CompletionQueue.Wait for a result of the %s queue: %v (Endpoint.Err: %v)", kind, err, c.ep.Err())
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

// wantResult waits for the next initiator result and checks its status and request context.
func (c *conn) wantResult(status nd.Status, reqCtx uint64) nd.Result {
	return c.checkResult(c.nextResult(true), status, reqCtx)
}

// wantReceive waits for the next receive result and checks its status and request context.
func (c *conn) wantReceive(status nd.Status, reqCtx uint64) nd.Result {
	return c.checkResult(c.nextResult(false), status, reqCtx)
}

func (c *conn) checkResult(r nd.Result, status nd.Status, reqCtx uint64) nd.Result {
	if r.Status != status || r.RequestContext != reqCtx {
		c.fatalf("result %v of request %d (%v), want %v of request %d (Endpoint.Err: %v)",
			r.Status, r.RequestContext, r.RequestType, status, reqCtx, c.ep.Err())
	}
	if status != nd.Success && c.ep.Err() == nil {
		c.errorf("Endpoint.Err is nil after a result with status %v, want a reason", status)
	}
	return r
}

// wantFlushed checks that the next initiator results are Canceled, with these request contexts in this
// order.
func (c *conn) wantFlushed(reqCtx ...uint64) {
	for _, x := range reqCtx {
		c.wantResult(nd.Canceled, x)
	}
}

// wantReceivesFlushed is wantFlushed for the receive queue.
func (c *conn) wantReceivesFlushed(reqCtx ...uint64) {
	for _, x := range reqCtx {
		c.wantReceive(nd.Canceled, x)
	}
}

// wantErrorState checks that the endpoint is in the error state: a post succeeds, and its result is
// Canceled. The caller has taken the results of earlier requests.
func (c *conn) wantErrorState() {
	c.eventually("Endpoint.Err is not nil", func() bool { return c.ep.Err() != nil })
	const probe = 0xdead
	c.must(c.ep.Receive(probe, nd.SGL{}))
	c.wantReceive(nd.Canceled, probe)
	c.must(c.ep.Send(probe+1, nd.SGL{}, 0))
	c.wantResult(nd.Canceled, probe+1)
}

// wantDisconnected checks that NotifyDisconnect returns, and that Done is closed without a poll.
func (c *conn) wantDisconnected() {
	c.must(c.connector.NotifyDisconnect(c.ctx))
	select {
	case <-c.ep.Done():
	case <-c.ctx.Done():
		c.fatalf("Endpoint.Done is open after NotifyDisconnect has returned, want it closed: %v", c.ctx.Err())
	}
	if c.ep.Err() == nil {
		c.errorf("Endpoint.Err is nil after Done was closed, want a reason")
	}
}

// wantAlive checks that the connection transfers a message of one byte in each direction. The bytes are
// in a region of its own. Both sides call it.
func (c *conn) wantAlive() {
	const probe = 0xa11fe
	sent := [2]byte{passive: 0x9a, active: 0xa5}
	if c.aliveRegion == nil {
		c.withAdapter(c.adapter, func() { c.aliveRegion = c.region(2, nd.AllowLocalWrite) })
	}
	c.aliveRegion.mem[0], c.aliveRegion.mem[1] = 0, sent[c.role]
	c.must(c.ep.Receive(probe, c.aliveRegion.sge(0, 1)))
	c.barrier() // both Receives are posted
	c.must(c.ep.Send(probe+1, c.aliveRegion.sge(1, 1), 0))
	c.wantResult(nd.Success, probe+1)
	if r := c.wantReceive(nd.Success, probe); r.BytesTransferred != 1 || c.aliveRegion.mem[0] != sent[1-c.role] {
		c.fatalf("the message has %d bytes, the first %#x, want 1 byte %#x", r.BytesTransferred, c.aliveRegion.mem[0], sent[1-c.role])
	}
}

// wantEmpty checks that no result is in cq or arrives within 5 ms.
func (s *side) wantEmpty(cq nd.CompletionQueue) {
	time.Sleep(5 * time.Millisecond)
	var one [1]nd.Result
	if n := cq.Poll(one[:]); n > 0 {
		s.fatalf("result %+v, want none", one[0])
	}
	if kept := s.stash[cq]; len(kept) > 0 {
		s.fatalf("result %+v, want none", kept[0])
	}
}

// bind binds w to n bytes of the region at offset off, waits for the result, and returns the
// window's descriptor.
func (c *conn) bind(w nd.MemoryWindow, off, n int, flags nd.OpFlags) nd.WindowDescriptor {
	const probe = 0xb14d
	c.must(c.ep.Bind(probe, c.memory.mr, w, c.memory.mem[off:off+n], flags))
	c.wantResult(nd.Success, probe)
	return w.Descriptor()
}

// invalidate posts Invalidate of w and waits for the result.
func (c *conn) invalidate(w nd.MemoryWindow) {
	const probe = 0x1b7a
	c.must(c.ep.Invalidate(probe, w, 0))
	c.wantResult(nd.Success, probe)
}

// disconnect calls Disconnect, which must succeed. Both sides call it.
func (c *conn) disconnect() { c.must(c.connector.Disconnect(c.ctx)) }

// bindAndTell binds a new window to n bytes of the region and tells the other side the descriptor. The
// other side calls hearDescriptor.
func (c *conn) bindAndTell(off, n int, flags nd.OpFlags) nd.MemoryWindow {
	w := c.newWindow()
	c.tell(c.bind(w, off, n, flags))
	return w
}

// hearDescriptor returns the next descriptor that the other side tells.
func (c *conn) hearDescriptor() nd.WindowDescriptor { return hear[nd.WindowDescriptor](c.side) }

// wantLength checks the number of bytes of a result.
func (c *conn) wantLength(r nd.Result, n int) {
	if int(r.BytesTransferred) != n {
		c.fatalf("the result of a %v has %d bytes, want %d", r.RequestType, r.BytesTransferred, n)
	}
}
