package ndtest

import "github.com/softnd/softnd/nd"

// revocation is a way to revoke access.
type revocation struct {
	name   string
	window bool // of a window; otherwise of a region's own token
	// revoke is called at the owner. After it returns, no transfer uses the access.
	revoke func(*access)
	// request is called at the peer if the peer starts the revocation; otherwise it is nil.
	request func(*conn, nd.WindowDescriptor)
	// prepareAgain makes the objects ready for another grant, after revoke.
	prepareAgain func(*access)
}

// grantedRights are the rights that an owner grants: also that for atomics, if the connection's region has it.
func (c *conn) grantedRights() (ofRegion nd.RegionFlags, ofWindow nd.OpFlags) {
	if c.opts.RegionFlags.RemoteAtomic() {
		return atomicRights, readWrite | nd.AllowAtomic
	}
	return allRights, readWrite
}

// access is access that an owner grants to a peer, with the revocation that will end it.
type access struct {
	revocation
	c   *conn
	mem []byte // stays valid when the region is closed
	mr  nd.MemoryRegion
	w   nd.MemoryWindow // nil if the region's own token is used
	d   nd.WindowDescriptor
}

var revocations = []revocation{
	{name: "Invalidate", window: true,
		revoke:       func(g *access) { g.c.invalidate(g.w) },
		prepareAgain: func(*access) {}},
	{name: "SendAndInvalidate", window: true,
		revoke:       func(g *access) { g.c.wantInvalidated(0, g.d.Token) },
		request:      func(c *conn, d nd.WindowDescriptor) { c.sendInvalidate(0, d.Token, 0) },
		prepareAgain: func(*access) {}},
	{name: "Deregister",
		revoke:       func(g *access) { g.c.must(g.mr.Deregister(g.c.ctx)) },
		prepareAgain: func(g *access) { g.c.must(g.mr.Register(g.c.ctx, g.mem, allRights)) }},
	{name: "Close of the region",
		revoke:       func(g *access) { g.c.must(g.mr.Close(g.c.ctx)) },
		prepareAgain: func(g *access) { g.mr = g.c.register(g.mem, allRights).mr }},
	{name: "Close of the window", window: true,
		revoke:       func(g *access) { g.c.must(g.w.Close(g.c.ctx)) },
		prepareAgain: func(g *access) { g.w = g.c.newWindow() }},
}

// grantAccess registers mem and grants access to it that w can revoke.
func (c *conn) grantAccess(w revocation, mem []byte) *access {
	rights, _ := c.grantedRights()
	g := &access{revocation: w, c: c, mem: mem, mr: c.register(mem, rights).mr}
	if w.window {
		g.w = c.newWindow()
	}
	g.grant()
	return g
}

// grant grants the access and tells the peer its descriptor.
func (g *access) grant() {
	const probe = 0x155
	g.d = nd.WindowDescriptor{Address: g.mr.Address(), Length: uint64(len(g.mem)), Token: g.mr.RemoteToken()}
	if g.window {
		_, rights := g.c.grantedRights()
		g.c.must(g.c.ep.Bind(probe, g.mr, g.w, g.mem, rights))
		g.c.wantResult(nd.Success, probe)
		g.d = g.w.Descriptor()
	}
	if g.request != nil {
		g.c.must(g.c.ep.Receive(inbox, nd.SGL{}))
	}
	g.c.tell(g.d)
}

// requestIfPeer starts the revocation if the peer starts it.
func (w *revocation) requestIfPeer(c *conn, d nd.WindowDescriptor) {
	if w.request != nil {
		w.request(c, d)
	}
}
