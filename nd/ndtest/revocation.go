package ndtest

import "github.com/softnd/softnd/nd"

// revocation is a way to take access away.
type revocation struct {
	name   string
	window bool // what was granted is a window; else it is a region's own token
	// take is what the owner does. When it returns no transfer uses the grant any more.
	revoke func(*access)
	// ask is the peer's part, if it is the peer who begins.
	request func(*conn, nd.WindowDescriptor)
	// renew gets ready what take has used up.
	prepareAgain func(*access)
}

// access is what an owner has granted, and may grant again.
type access struct {
	revocation
	c   *conn
	mem []byte // outlives the region
	mr  nd.MemoryRegion
	w   nd.MemoryWindow // nil where the region's own token is used
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
		revoke:       func(g *access) { g.c.must(g.mr.Close()) },
		prepareAgain: func(g *access) { g.mr = g.c.register(g.mem, allRights).mr }},
	{name: "Close of the window", window: true,
		revoke:       func(g *access) { g.c.must(g.w.Close()) },
		prepareAgain: func(g *access) { g.w = g.c.newWindow() }},
}

// grantAccess grants mem such that w can end it.
func (c *conn) grantAccess(w revocation, mem []byte) *access {
	g := &access{revocation: w, c: c, mem: mem, mr: c.register(mem, allRights).mr}
	if w.window {
		g.w = c.newWindow()
	}
	g.grant()
	return g
}

// grant makes the grant, and tells the peer.
func (g *access) grant() {
	const probe = 0x155
	g.d = nd.WindowDescriptor{Address: g.mr.Address(), Length: uint64(len(g.mem)), Token: g.mr.RemoteToken()}
	if g.window {
		g.c.must(g.c.ep.Bind(probe, g.mr, g.w, g.mem, readWrite))
		g.c.wantResult(nd.Success, probe)
		g.d = g.w.Descriptor()
	}
	if g.request != nil {
		g.c.must(g.c.ep.Receive(inbox, nil))
	}
	g.c.tell(g.d)
}

// requestIfPeer lets the peer begin, if that is the way.
func (w *revocation) requestIfPeer(c *conn, d nd.WindowDescriptor) {
	if w.request != nil {
		w.request(c, d)
	}
}
