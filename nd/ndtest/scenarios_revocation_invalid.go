package ndtest

import "github.com/softnd/softnd/nd"

// Revocation of access that does not exist, or that belongs to another adapter. Each function returns the
// sides of a scenario.

// neverGranted revokes access that was never granted.
func neverGranted(w revocation) (active, passive func(*side)) {
	asked := w.request != nil
	return func(s *side) {
			c := s.pair(connOptions{})
			offender := c.anotherConn()
			switch {
			case asked:
				offender.sendRefusedInvalidate(hear[nd.Token](s), 0)
			case w.name == "Invalidate":
				offender.wantBroken()
			default:
				offender.wantAlive()
			}
			c.writeAndCheck(nd.Success, 0, 100, c.peerRegion, 0)
			c.wantAlive()
		}, func(s *side) {
			c := s.pair(connOptions{})
			offender := c.anotherConn()
			mr := s.emptyRegion()
			g := &access{revocation: w, c: offender, mr: mr, w: s.newWindow()}
			switch w.name {
			case "Invalidate":
				offender.wantInvalidateFails(g.w)
			case "SendAndInvalidate":
				s.tell(g.w.RemoteToken())
				offender.refuseInvalidate()
			case "Deregister":
				s.want(nd.InvalidDeviceState, mr.Deregister(s.ctx))
				offender.wantAlive()
			default:
				g.revoke(g)
				offender.wantAlive()
			}
			c.wantAlive()
		}
}

// wantInvalidateFails checks that Invalidate completes with InvalidDeviceRequest and breaks the connection.
func (c *conn) wantInvalidateFails(w nd.MemoryWindow) {
	c.must(c.ep.Invalidate(1, w, 0))
	c.wantResult(nd.InvalidDeviceRequest, 1)
	c.wantBroken()
}

// byConnectionEnd revokes access by breaking the connection. It is not in the list revocations, because
// their scenarios need the connection later.
var byConnectionEnd = revocation{name: "end of the connection", window: true,
	revoke: func(g *access) {
		g.c.wantReceivesFlushed(inbox)
		g.c.wantBroken()
	},
	request: func(c *conn, d nd.WindowDescriptor) { c.wantWriteRefused(0, 1, d, accessSize) },
}

// alreadyRevoked revokes access in each suitable way, and then again with w.
func alreadyRevoked(w revocation) (active, passive func(*side)) {
	var before []revocation
	for _, b := range revocations {
		if b.window == w.window && b.name != "Close of the region" && (b.name != "Close of the window" || w.request != nil) {
			before = append(before, b)
		}
	}
	if w.window {
		before = append(before, byConnectionEnd)
	}
	return func(s *side) {
			base := s.pair(connOptions{})
			for _, b := range before {
				c, again := base.anotherConn(), base.anotherConn()
				d := hear[nd.WindowDescriptor](s)
				b.requestIfPeer(c, d)
				s.barrier()
				switch {
				case w.request != nil:
					again.sendRefusedInvalidate(d.Token, 0)
				case w.name == "Invalidate":
					again.wantBroken()
				default:
					again.wantAlive()
				}
			}
			base.wantAlive()
		}, func(s *side) {
			base := s.pair(connOptions{})
			for _, b := range before {
				c, again := base.anotherConn(), base.anotherConn()
				g := c.grantAccess(b, base.memory.mem[:accessSize])
				g.revoke(g)
				s.barrier()
				switch w.name {
				case "Invalidate":
					again.wantInvalidateFails(g.w)
				case "SendAndInvalidate":
					again.refuseInvalidate()
				case "Deregister":
					s.want(nd.InvalidDeviceState, g.mr.Deregister(s.ctx))
					again.wantAlive()
				default:
					w.revoke(g)
					again.wantAlive()
				}
				if w.window {
					s.must(g.mr.Deregister(s.ctx)) // no window is bound to the region
				}
			}
			base.wantAlive()
		}
}

// ofOtherAdapter checks that a revocation has no effect on access of another adapter handle. The two
// handles belong to one provider, and both accesses are to the same memory.
func ofOtherAdapter(w revocation) (active, passive func(*side)) {
	return func(s *side) {
			c, other := s.pair(connOptions{}), s.pair(connOptions{})
			offender := c.anotherConn()
			mine, theirs := hear[nd.WindowDescriptor](s), hear[nd.WindowDescriptor](s)
			other.writeAndCheck(nd.Success, 0, 100, theirs, 0)
			switch {
			case w.request != nil:
				offender.sendRefusedInvalidate(theirs.Token, 0)
			case w.name == "Invalidate":
				s.barrier()
			default:
				c.writeAndCheck(nd.Success, 0, 100, mine, 0)
				s.barrier() // the owner may revoke now
				s.barrier()
				offender.wantWriteRefused(0, 100, mine, 0)
			}
			other.writeAndCheck(nd.Success, 0, 100, theirs, 0)
			w.requestIfPeer(other, theirs)
			other.wantAlive()
			c.wantAlive()
		}, func(s *side) {
			var other *conn
			var theirs *access
			c, second := s.pair(connOptions{}), s.openAdapter()
			s.withAdapter(second, func() { other = s.pair(connOptions{}) })
			offender := c.anotherConn()
			mine := c.grantAccess(revocation{window: w.window}, c.memory.mem[:accessSize])
			s.withAdapter(second, func() { theirs = other.grantAccess(w, c.memory.mem[:accessSize]) })
			switch {
			case w.request != nil:
				offender.refuseInvalidate()
				theirs.revoke(theirs)
			case w.name == "Invalidate":
				s.want(nd.InvalidParameter, c.ep.Invalidate(1, theirs.w, 0))
				s.wantEmpty(c.cq)
				s.barrier()
			default:
				s.barrier()
				w.revoke(mine)
				s.barrier()
				offender.wantBroken()
			}
			other.wantAlive()
			c.wantAlive()
		}
}
