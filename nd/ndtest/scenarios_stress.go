package ndtest

import (
	"bytes"
	"errors"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// stressConn is one connection while it is under stress, as one half sees it.
type stressConn struct {
	*conn
	index  int
	window nd.MemoryWindow
	fast   nd.MemoryRegion     // for grants by fast registration
	pages  nd.LogicalMapping   // of the place that the peer writes to
	token  nd.Token            // of our grant
	peer   nd.WindowDescriptor // the peer's grant

	post       []step      // what is left to post
	posted     uint64      // steps posted in this round
	results    []nd.Result // owed by the initiator queue
	incoming   []step      // messages that have not been received
	receives   uint64      // taken in this round
	grantHeard bool        // the peer's grant of this round
}

// stressFeatures is what an adapter can do.
type stressFeatures struct {
	Inline int
	Fast   bool
}

// stress runs one half.
func (s *side) stress(task stressTask) {
	conns := s.newStressConns()
	mine := stressFeatures{s.inlineLimit(), conns[0].supportsFastRegister()}
	s.tell(mine)
	other := hear[stressFeatures](s)
	p := newPlan(task.Seed, min(mine.Inline, other.Inline), mine.Fast && other.Fast)
	if p.fast {
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
		s.barrier() // all receives are posted
		s.exchange(p, conns)
		s.barrier() // the peer's requests are done, too
		s.wantEmpty(conns[0].cq)
		for i, c := range conns {
			c.checkMemory(round, p.directions[s.role][i], p.directions[1-s.role][i])
		}
	}
	for _, c := range conns {
		c.wantAlive()
	}
}

// inlineLimit returns how many bytes an inline request may have; 0 if there are none.
func (s *side) inlineLimit() int { return int(min(s.info.InlineRequestThreshold, 512)) }

// supportsFastRegister tells whether the adapter has fast registration of the kind of memory in use.
func (c *stressConn) supportsFastRegister() bool {
	pages, err := c.ad.BuildLogicalAddressMapping(c.ctx, c.peerArea())
	if errors.Is(err, nd.NotSupported) || errors.Is(err, nd.InvalidParameter) {
		return false
	}
	c.must(err)
	c.must(pages.Close())
	return true
}

func (s *side) newStressConns() (conns []*stressConn) {
	o := connOptions{CQDepth: 1024, RegionSize: stressRegion, Endpoint: nd.EndpointConfig{InitiatorDepth: 64, ReceiveDepth: 64, InlineSize: s.inlineLimit()}}
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
	c.cleanup(func() { c.pages.Close() })
	c.fast = c.emptyRegion()
	c.must(c.fast.InitializeFastRegister(c.ctx, len(c.pages.Pages()), true))
}

// peerArea is where the peer writes over this connection.
func (c *stressConn) peerArea() []byte { return c.memory.mem[writtenAt(c.index):][:stressArea] }

// postReceives posts the receives of a round.
func (c *stressConn) postReceives(mine, theirs *direction) {
	c.post, c.posted, c.results = mine.steps, 0, nil
	c.incoming, c.receives, c.grantHeard = nil, 0, false
	for _, st := range theirs.steps {
		if !st.sends() {
			continue
		}
		c.must(c.ep.Receive(uint64(len(c.incoming)), c.entries(st.receiveInto)))
		c.incoming = append(c.incoming, st)
	}
}

func (c *stressConn) entries(parts []span) (sge []nd.SGE) {
	for _, s := range parts {
		sge = append(sge, c.sge(s.off, s.n)...)
	}
	return sge
}

// exchange posts the requests of all connections, mixed, and takes all results.
func (s *side) exchange(p *plan, conns []*stressConn) {
	byContext := make(map[uint64]*stressConn)
	for _, c := range conns {
		byContext[c.context] = c
	}
	mix := s.serial // which connection posts next is no part of the plan
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
				s.fatalf("a result of nobody: %+v", r)
			}
			c.handleResult(r)
		}
	}
}

// canPost tells whether the next step can be posted.
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
	if st.stepKind == doWrite || st.stepKind == doRead || st.sends() {
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
	if st.usesGrant || st.stepKind == doSendInvalidate {
		far = c.peer
	}
	switch st.stepKind {
	case doWrite:
		return c.ep.Write(x, sge, far.Address+uint64(st.at), far.Token, st.flags)
	case doRead:
		return c.ep.Read(x, sge, far.Address+uint64(st.at), far.Token, st.flags)
	case doSendInvalidate:
		return c.ep.SendAndInvalidate(x, sge, far.Token, st.flags)
	case doBind:
		err := c.ep.Bind(x, c.memory.mr, c.window, c.peerArea(), st.flags)
		c.storeDescriptor(c.window.Descriptor())
		return err
	case doFastRegister:
		const base = 1 << 40
		err := c.ep.FastRegister(x, c.fast, c.pages.Pages(), c.pages.Offset(), stressArea, base, regionRights(*rights), st.flags)
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

// storeDescriptor puts the descriptor of our grant where doGrant sends it from.
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
	return r
}

// copyUnregistered replaces the entries of an inline request by a copy in memory that is not registered, and
// returns what overwrites that, since it is the caller's again when the post returns.
func copyUnregistered(sge *[]nd.SGE) func() {
	var data []byte
	for _, e := range *sge {
		data = append(data, e.Buffer...)
	}
	*sge = []nd.SGE{{Buffer: data}}
	return func() {
		for i := range data {
			data[i] ^= 0xff
		}
	}
}

// handleResult checks one result, and what it says about memory.
func (c *stressConn) handleResult(r nd.Result) {
	if r.RequestType.Initiator() {
		if len(c.results) == 0 || r != c.results[0] {
			c.fatalf("connection %d: result %+v, owed are %+v (the endpoint says: %v)", c.index, r, c.results[:min(1, len(c.results))], c.ep.Err())
		}
		c.results = c.results[1:]
		return
	}
	if len(c.incoming) == 0 {
		c.fatalf("connection %d: nobody sent %+v", c.index, r)
	}
	st := c.incoming[0]
	c.incoming = c.incoming[1:]
	want := nd.Result{EndpointContext: c.context, RequestContext: c.receives, RequestType: nd.RequestReceive, BytesTransferred: uint32(st.size)}
	if st.stepKind == doSendInvalidate {
		want.RequestType, want.InvalidatedToken = nd.RequestReceiveAndInvalidate, c.token
	}
	if r != want {
		c.fatalf("connection %d: result %+v, want %+v (the endpoint says: %v)", c.index, r, want, c.ep.Err())
	}
	c.receives++
	if st.stepKind == doGrant {
		c.must(c.peer.UnmarshalBinary(c.bytesOf(st.receiveInto, st.size)))
		c.grantHeard = true
	} else if got := xxhash.Sum64(c.bytesOf(st.receiveInto, st.size)); got != st.sum {
		c.fatalf("connection %d: message %d of %d bytes has the sum %#x, want %#x", c.index, want.RequestContext, st.size, got, st.sum)
	}
	for _, w := range st.visible {
		if xxhash.Sum64(c.memory.mem[w.off:][:w.n]) != w.sum {
			c.fatalf("connection %d: message %d came before the %d bytes of the Write in front of it", c.index, want.RequestContext, w.n)
		}
	}
}

// bytesOf gathers the first n bytes of a list.
func (c *stressConn) bytesOf(parts []span, n int) []byte {
	var b bytes.Buffer
	for _, s := range parts {
		b.Write(c.memory.mem[s.off:][:s.n])
	}
	return b.Bytes()[:n]
}

// checkMemory compares the memory with the model after a round.
func (c *stressConn) checkMemory(round int, mine, theirs *direction) {
	for x, st := range mine.steps {
		if st.stepKind == doRead && xxhash.Sum64(c.bytesOf(st.parts, st.size)) != st.sum {
			c.fatalf("connection %d, round %d: step %d has read other bytes", c.index, round, x)
		}
	}
	if xxhash.Sum64(c.peerArea()) != xxhash.Sum64(theirs.written) {
		c.fatalf("connection %d, round %d: the Writes of the peer have left other bytes", c.index, round)
	}
}
