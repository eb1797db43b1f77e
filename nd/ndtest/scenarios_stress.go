package ndtest

import (
	"errors"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// stressConn is one side of a connection of Stress.
type stressConn struct {
	*conn
	index  int
	window nd.MemoryWindow
	fast   nd.MemoryRegion     // of access by fast registration
	pages  nd.LogicalMapping   // of peerArea
	token  nd.Token            // of the access that this side has granted
	peer   nd.WindowDescriptor // the access that the peer has granted

	post       []step      // steps left to post
	posted     uint64      // steps posted in this round
	results    []nd.Result // expected of the initiator queue
	incoming   []step      // messages not received yet
	receives   uint64      // results of Receives in this round
	grantHeard bool        // the peer's descriptor of this round has arrived
}

// stressFeatures are optional features of an adapter.
type stressFeatures struct {
	Inline    int // bytes; 0 = no inline requests
	Fast      bool
	Atomics   bool
	Immediate bool
}

// stress runs one side.
func (s *side) stress(task stressTask) {
	conns := s.newStressConns()
	mine := stressFeatures{s.inlineLimit(), conns[0].supportsFastRegister(), s.info.AdapterFlags.Has(nd.AtomicsSupported), s.info.AdapterFlags.Has(nd.ImmediateSupported)}
	s.tell(mine)
	other := hear[stressFeatures](s)
	p := newPlan(task.Seed, stressFeatures{min(mine.Inline, other.Inline), mine.Fast && other.Fast, mine.Atomics && other.Atomics, mine.Immediate && other.Immediate})
	if p.Fast {
		for _, c := range conns {
			c.mapPages()
		}
	}
	fill(conns[0].memory.mem[:stressArea], task.Seed+uint64(s.role))
	for round := range task.Rounds {
		p.round()
		for i, c := range conns {
			c.postReceives(p.directions[s.role][i], p.directions[1-s.role][i])
		}
		shared := newSharedNumbers(conns[0].conn, p.Atomics)
		s.barrier() // all Receives are posted
		s.exchange(p, conns, shared)
		s.barrier() // the peer's requests are complete, too
		s.wantEmpty(conns[0].cq)
		shared.check(round, conns, p)
		for i, c := range conns {
			c.checkMemory(round, p.directions[s.role][i], p.directions[1-s.role][i])
		}
	}
	for _, c := range conns {
		c.wantAlive()
	}
}

// inlineLimit returns the maximum size of inline requests, or 0 if the adapter has none.
func (s *side) inlineLimit() int { return int(min(s.info.InlineRequestThreshold, 512)) }

// supportsFastRegister reports whether the adapter can fast-register the kind of memory in use.
func (c *stressConn) supportsFastRegister() bool {
	pages, err := c.ad.BuildLogicalAddressMapping(c.ctx, c.peerArea())
	if errors.Is(err, nd.NotSupported) || errors.Is(err, nd.InvalidParameter) {
		return false
	}
	c.must(err)
	c.must(pages.Close(c.ctx))
	return true
}

func (s *side) newStressConns() (conns []*stressConn) {
	o := connOptions{CQDepth: 1024, RegionSize: stressRegion, Endpoint: nd.EndpointConfig{InitiatorDepth: 64, ReceiveDepth: 64, InlineSize: s.inlineLimit()}}
	if s.info.AdapterFlags.Has(nd.AtomicsSupported) {
		o.RegionFlags = atomicRights
	}
	for i := range stressConns {
		c := &stressConn{conn: s.pair(o), index: i, window: s.newWindow()}
		o.ShareWith = c.conn
		conns = append(conns, c)
	}
	return conns
}

func (c *stressConn) mapPages() {
	var err error
	c.pages, err = c.ad.BuildLogicalAddressMapping(c.ctx, c.peerArea())
	c.must(err)
	c.cleanup(func() { c.pages.Close(c.ctx) })
	c.fast = c.emptyRegion()
	c.must(c.fast.InitializeFastRegister(c.ctx, len(c.pages.Pages()), true))
}

// peerArea is the area that the peer writes over this connection.
func (c *stressConn) peerArea() []byte { return c.memory.mem[writtenAt(c.index):][:stressArea] }

// postReceives starts a round and posts its Receives.
func (c *stressConn) postReceives(mine, theirs *direction) {
	c.post, c.posted, c.results = mine.steps, 0, nil
	c.incoming, c.receives, c.grantHeard = nil, 0, false
	for _, st := range theirs.steps {
		if !st.takesReceive() {
			continue
		}
		if st.stepKind == doWriteImmediate { // it leaves the buffers of the Receive as they are
			st.sum = xxhash.Sum64(c.bytesOf(st.receiveInto))
		}
		c.must(c.ep.Receive(uint64(len(c.incoming)), c.entries(st.receiveInto)))
		c.incoming = append(c.incoming, st)
	}
}

func (c *stressConn) entries(parts []span) nd.SGL {
	var sge []nd.SGE
	for _, s := range parts {
		sge = append(sge, c.sge(s.off, s.n).First)
	}
	return nd.List(sge...)
}

// exchange posts the requests of all connections in a mixed order and takes all results.
func (s *side) exchange(p *plan, conns []*stressConn, shared *sharedNumbers) {
	byContext := make(map[uint64]*stressConn)
	for _, c := range conns {
		byContext[c.context] = c
	}
	mix := s.serial // the order of posts on different connections is not part of the plan
	var buf [8]nd.Result
	for {
		busy, stuck := false, true
		for range conns {
			mix = mix*6364136223846793005 + 1442695040888963407
			c := conns[mix>>33%uint64(len(conns))]
			if c.canPost() {
				c.postNext(p)
			}
		}
		for _, c := range conns {
			busy = busy || len(c.post)+len(c.results)+len(c.incoming) > 0
			stuck = stuck && !c.canPost()
		}
		if shared.change(mix >> 20) {
			busy, stuck = true, false
		}
		if !busy {
			return
		}
		n := conns[0].cq.Poll(buf[:1+mix>>40%uint64(len(buf))])
		if n == 0 && stuck {
			buf[0], n = s.takeResult(conns[0].cq), 1
		}
		for _, r := range buf[:n] {
			c := byContext[r.EndpointContext]
			if c == nil {
				s.fatalf("result %+v: its endpoint context is of no connection", r)
			}
			c.handleResult(r)
		}
	}
}

// canPost reports whether the next step can be posted.
func (c *stressConn) canPost() bool {
	return len(c.post) > 0 && (c.post[0].stepKind != doAwait || c.grantHeard)
}

// postNext posts the next step.
func (c *stressConn) postNext(p *plan) {
	st := c.post[0]
	c.post = c.post[1:]
	x := c.posted
	c.posted++
	if st.stepKind == doAwait {
		return
	}
	if err := c.postStep(x, st, &p.directions[c.role][c.index].grant.rights); err != nil {
		c.fatalf("connection %d, step %d: %v", c.index, x, err)
	}
	if st.flags.Has(nd.SilentSuccess) {
		return
	}
	want := nd.Result{EndpointContext: c.context, RequestContext: x, RequestType: st.request()}
	if st.stepKind == doRead || st.isAtomic() || st.stepKind == doWrite || st.takesReceive() {
		want.BytesTransferred = uint32(st.size)
	}
	c.results = append(c.results, want)
}

func (c *stressConn) postStep(x uint64, st step, rights *nd.OpFlags) error {
	sge := c.entries(st.parts)
	if st.flags.Has(nd.Inline) {
		defer copyUnregistered(&sge)()
	}
	far := c.peerRegion
	far.Address += uint64(writtenAt(c.index))
	switch {
	case st.usesGrant || st.stepKind == doSendInvalidate:
		far = c.peer
	case st.shared:
		far.Address = c.peerRegion.Address
	}
	switch st.stepKind {
	case doWrite:
		return c.ep.Write(x, sge, far.Address+uint64(st.at), far.Token, st.flags)
	case doRead:
		return c.ep.Read(x, sge, far.Address+uint64(st.at), far.Token, st.flags)
	case doWriteImmediate:
		return c.ep.WriteImmediate(x, sge, far.Address+uint64(st.at), far.Token, st.immediate, st.flags)
	case doFetchAndAdd:
		return c.ep.FetchAndAdd(x, sge.First, far.Address+uint64(st.at), far.Token, st.operands[0], st.flags)
	case doCompareAndSwap:
		return c.ep.CompareAndSwap(x, sge.First, far.Address+uint64(st.at), far.Token, st.operands[0], st.operands[1], st.flags)
	case doSwap:
		return c.ep.Swap(x, sge.First, far.Address+uint64(st.at), far.Token, st.operands[0], st.flags)
	case doSendImmediate:
		return c.ep.SendImmediate(x, sge, st.immediate, st.flags)
	case doSendInvalidate:
		return c.ep.SendAndInvalidate(x, sge, far.Token, st.flags)
	case doBind:
		err := c.ep.Bind(x, c.memory.mr, c.window, c.peerArea(), st.flags)
		c.storeDescriptor(c.window.Descriptor())
		return err
	case doFastRegister:
		const base = 1 << 40
		err := c.ep.FastRegister(x, nd.FastRegistration{Region: c.fast, Pages: c.pages.Pages(), Offset: c.pages.Offset(), Length: stressArea, BaseAddress: base, Rights: regionRights(*rights)}, st.flags)
		c.storeDescriptor(nd.WindowDescriptor{Address: base, Length: stressArea, Token: c.fast.RemoteToken()})
		return err
	case doInvalidate:
		if c.fast != nil && c.token == c.fast.RemoteToken() {
			return c.ep.InvalidateRegion(x, c.fast, st.flags)
		}
		return c.ep.Invalidate(x, c.window, st.flags)
	}
	return c.ep.Send(x, sge, st.flags)
}

// storeDescriptor stores the descriptor of the granted access where doGrant sends it from.
func (c *stressConn) storeDescriptor(d nd.WindowDescriptor) {
	c.token = d.Token
	b, err := d.MarshalBinary()
	c.must(err)
	copy(c.memory.mem[descriptorAt(c.index):], b)
}

func regionRights(f nd.OpFlags) (r nd.RegionFlags) {
	if f.Has(nd.AllowRead) {
		r |= nd.AllowRemoteRead
	}
	if f.Has(nd.AllowWrite) {
		r |= nd.AllowRemoteWrite
	}
	if f.Has(nd.AllowAtomic) {
		r |= nd.AllowRemoteAtomic
	}
	return r
}

// copyUnregistered replaces the entries of an inline request by one entry with a copy in unregistered
// memory. The caller calls overwrite after the post, because the memory is the caller's again.
func copyUnregistered(sge *nd.SGL) (overwrite func()) {
	var data []byte
	for _, e := range sge.Entries() {
		data = append(data, e.Buffer...)
	}
	*sge = nd.One(nd.SGE{Buffer: data})
	return func() {
		for i := range data {
			data[i] ^= 0xff
		}
	}
}

// handleResult checks a result and the memory that it covers.
func (c *stressConn) handleResult(r nd.Result) {
	if r.RequestType.Initiator() {
		if len(c.results) == 0 || r != c.results[0] {
			c.fatalf("connection %d: initiator result %+v, want %+v (Endpoint.Err: %v)", c.index, r, c.results[:min(1, len(c.results))], c.ep.Err())
		}
		c.results = c.results[1:]
		return
	}
	if len(c.incoming) == 0 {
		c.fatalf("connection %d: receive result %+v, want none: the peer has sent no further message", c.index, r)
	}
	st := c.incoming[0]
	c.incoming = c.incoming[1:]
	want := nd.Result{EndpointContext: c.context, RequestContext: c.receives, RequestType: st.receiveType(), BytesTransferred: uint32(st.size)}
	switch st.stepKind {
	case doSendInvalidate:
		want.InvalidatedToken = c.token
	case doSendImmediate, doWriteImmediate:
		want.SetImmediate(want.RequestType, st.immediate)
	}
	if r != want {
		c.fatalf("connection %d: receive result %+v, want %+v (Endpoint.Err: %v)", c.index, r, want, c.ep.Err())
	}
	c.receives++
	bytes := c.bytesOf(st.receiveInto)
	if st.sends() {
		bytes = bytes[:st.size]
	}
	if st.stepKind == doGrant {
		c.must(c.peer.UnmarshalBinary(bytes))
		c.grantHeard = true
	} else if got := xxhash.Sum64(bytes); got != st.sum {
		c.fatalf("connection %d: message %d of %d bytes: its Receive has checksum %#x, want %#x", c.index, want.RequestContext, st.size, got, st.sum)
	}
	for _, w := range st.visible {
		if xxhash.Sum64(c.memory.mem[w.off:][:w.n]) != w.sum {
			c.fatalf("connection %d: message %d was received before the %d bytes that were written before it were visible", c.index, want.RequestContext, w.n)
		}
	}
}

// bytesOf returns a copy of the bytes of the spans.
func (c *stressConn) bytesOf(parts []span) (b []byte) {
	for _, s := range parts {
		b = append(b, c.memory.mem[s.off:][:s.n]...)
	}
	return b
}

// checkMemory compares memory with the model after a round.
func (c *stressConn) checkMemory(round int, mine, theirs *direction) {
	for x, st := range mine.steps {
		if (st.stepKind == doRead || st.isAtomic() && !st.shared) && xxhash.Sum64(c.bytesOf(st.parts)) != st.sum {
			c.fatalf("connection %d, round %d: the %v of step %d has returned other bytes than the model", c.index, round, st.request(), x)
		}
	}
	if xxhash.Sum64(c.peerArea()) != xxhash.Sum64(theirs.written) {
		c.fatalf("connection %d, round %d: the memory that the peer writes has other bytes than the model", c.index, round)
	}
}
