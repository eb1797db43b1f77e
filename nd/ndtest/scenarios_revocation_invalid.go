package ndtest

import "github.com/softnd/softnd/nd"

// Taking away what is not there to be taken.

func neverGranted(w way) (active, passive func(*side)) {
	asked := w.ask != nil
	return func(s *side) {
			c := s.pair(shape{})
			offender := c.another()
			switch {
			case asked:
				offender.revokesInVain(hear[nd.Token](s), 0)
			case w.name == "Invalidate":
				offender.isOver()
			default:
				offender.alive()
			}
			c.writes(nd.Success, 0, 100, c.far, 0)
			c.alive()
		}, func(s *side) {
			c := s.pair(shape{})
			offender := c.another()
			mr := s.emptyRegion()
			g := &grant{way: w, c: offender, mr: mr, w: s.window()}
			switch w.name {
			case "Invalidate":
				offender.cannotInvalidate(g.w)
			case "SendAndInvalidate":
				s.tell(g.w.RemoteToken())
				offender.refusesToRevoke()
			case "Deregister":
				s.want(nd.InvalidDeviceState, mr.Deregister(s.ctx))
				offender.alive()
			default:
				g.take(g)
				offender.alive()
			}
			c.alive()
		}
}

// cannotInvalidate checks that Invalidate fails, and ends the connection.
func (c *conn) cannotInvalidate(w nd.MemoryWindow) {
	c.must(c.ep.Invalidate(1, w, 0))
	c.done(nd.InvalidDeviceRequest, 1)
	c.isOver()
}

// wayOfFailure is not in the list of ways, since it spares no connection.
var wayOfFailure = way{name: "end of the connection", window: true,
	take: func(g *grant) {
		g.c.receivesFlushed(inbox)
		g.c.isOver()
	},
	ask: func(c *conn, d nd.WindowDescriptor) { c.refusedWrite(0, 1, d, grantSize) },
}

// takenAlready takes a grant away in each of the ways that fit, or lets it go with its connection,
// and then once more.
func takenAlready(w way) (active, passive func(*side)) {
	var before []way
	for _, b := range ways {
		if b.window == w.window && b.name != "Close of the region" && (b.name != "Close of the window" || w.ask != nil) {
			before = append(before, b)
		}
	}
	if w.window {
		before = append(before, wayOfFailure)
	}
	return func(s *side) {
			base := s.pair(shape{})
			for _, b := range before {
				c, again := base.another(), base.another()
				d := hear[nd.WindowDescriptor](s)
				b.took(c, d)
				s.meet()
				switch {
				case w.ask != nil:
					again.revokesInVain(d.Token, 0)
				case w.name == "Invalidate":
					again.isOver()
				default:
					again.alive()
				}
			}
			base.alive()
		}, func(s *side) {
			base := s.pair(shape{})
			for _, b := range before {
				c, again := base.another(), base.another()
				g := c.grants(b, base.memory.mem[:grantSize])
				g.take(g)
				s.meet()
				switch w.name {
				case "Invalidate":
					again.cannotInvalidate(g.w)
				case "SendAndInvalidate":
					again.refusesToRevoke()
				case "Deregister":
					s.want(nd.InvalidDeviceState, g.mr.Deregister(s.ctx))
					again.alive()
				default:
					w.take(g)
					again.alive()
				}
				if w.window {
					s.must(g.mr.Deregister(s.ctx)) // no window is bound to it
				}
			}
			base.alive()
		}
}

// ofAnotherAdapter: an adapter's objects and grants are not the affair of another adapter, even
// one of the same provider and over the same memory.
func ofAnotherAdapter(w way) (active, passive func(*side)) {
	return func(s *side) {
			c, other := s.pair(shape{}), s.pair(shape{})
			offender := c.another()
			mine, theirs := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
			other.writes(nd.Success, 0, 100, theirs, 0)
			switch {
			case w.ask != nil:
				offender.revokesInVain(theirs.Token, 0)
			case w.name == "Invalidate":
				s.meet()
			default:
				c.writes(nd.Success, 0, 100, mine, 0)
				s.meet() // it may go
				s.meet()
				offender.refusedWrite(0, 100, mine, 0)
			}
			other.writes(nd.Success, 0, 100, theirs, 0)
			w.took(other, theirs)
			other.alive()
			c.alive()
		}, func(s *side) {
			var other *conn
			var theirs *grant
			c, second := s.pair(shape{}), s.open()
			s.through(second, func() { other = s.pair(shape{}) })
			offender := c.another()
			mine := c.grants(way{window: w.window}, c.memory.mem[:grantSize])
			s.through(second, func() { theirs = other.grants(w, c.memory.mem[:grantSize]) })
			switch {
			case w.ask != nil:
				offender.refusesToRevoke()
				theirs.take(theirs)
			case w.name == "Invalidate":
				s.want(nd.InvalidParameter2, c.ep.Invalidate(1, theirs.w, 0))
				s.empty(c.cq)
				s.meet()
			default:
				s.meet()
				w.take(mine)
				s.meet()
				offender.isOver()
			}
			other.alive()
			c.alive()
		}
}
