package ndtest

import "github.com/softnd/softnd/nd"

// way is a way to take access away.
type way struct {
	name   string
	window bool // what was granted is a window; else it is a region's own token
	// take is what the owner does. When it returns no transfer uses the grant any more.
	take func(*grant)
	// ask is the peer's part, if it is the peer who begins.
	ask func(*conn, nd.WindowDescriptor)
	// renew gets ready what take has used up.
	renew func(*grant)
}

// grant is what an owner has granted, and may grant again.
type grant struct {
	way
	c   *conn
	mem []byte // outlives the region
	mr  nd.MemoryRegion
	w   nd.MemoryWindow // nil where the region's own token is used
	d   nd.WindowDescriptor
}

var ways = []way{
	{name: "Invalidate", window: true,
		take:  func(g *grant) { g.c.invalidate(g.w) },
		renew: func(*grant) {}},
	{name: "SendAndInvalidate", window: true,
		take:  func(g *grant) { g.c.tookBack(0, g.d.Token) },
		ask:   func(c *conn, d nd.WindowDescriptor) { c.takesBack(0, d.Token, 0) },
		renew: func(*grant) {}},
	{name: "Deregister",
		take:  func(g *grant) { g.c.must(g.mr.Deregister(g.c.ctx)) },
		renew: func(g *grant) { g.c.must(g.mr.Register(g.c.ctx, g.mem, allRights)) }},
	{name: "Close of the region",
		take:  func(g *grant) { g.c.must(g.mr.Close()) },
		renew: func(g *grant) { g.mr = g.c.registered(g.mem, allRights).mr }},
	{name: "Close of the window", window: true,
		take:  func(g *grant) { g.c.must(g.w.Close()) },
		renew: func(g *grant) { g.w = g.c.window() }},
}

// grants grants mem such that w can end it.
func (c *conn) grants(w way, mem []byte) *grant {
	g := &grant{way: w, c: c, mem: mem, mr: c.registered(mem, allRights).mr}
	if w.window {
		g.w = c.window()
	}
	g.issue()
	return g
}

// issue makes the grant, and tells the peer.
func (g *grant) issue() {
	const probe = 0x155
	g.d = nd.WindowDescriptor{Address: g.mr.Address(), Length: uint64(len(g.mem)), Token: g.mr.RemoteToken()}
	if g.window {
		g.c.must(g.c.ep.Bind(probe, g.mr, g.w, g.mem, readWrite))
		g.c.done(nd.Success, probe)
		g.d = g.w.Descriptor()
	}
	if g.ask != nil {
		g.c.must(g.c.ep.Receive(inbox, nil))
	}
	g.c.tell(g.d)
}

// took lets the peer begin, if that is the way.
func (w *way) took(c *conn, d nd.WindowDescriptor) {
	if w.ask != nil {
		w.ask(c, d)
	}
}
