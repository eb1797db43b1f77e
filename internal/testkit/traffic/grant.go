package traffic

import (
	"fmt"

	"github.com/softnd/softnd/nd"
)

// grantKind is how a session grants the peer access to its shared memory.
type grantKind uint32

const (
	grantRegion grantKind = iota // the region's own token
	grantWindow
	grantFast // a fast registration
	grantKinds
)

// grant is the access that the peer has to shared memory. The peer stops before it ends, so that the connection
// survives its end.
type grant struct {
	live   bool // the peer may use it
	asked  bool // the peer was asked to stop
	ending bool // an Invalidate runs
	number uint32
	kind   grantKind
	token  nd.Token
	seal   uint64 // hash of the slots while the peer has no access
}

// useGrant grants access, or asks the peer to stop its use.
func (s *session) useGrant() {
	g := &s.grant
	switch {
	case g.ending || g.asked:
	case g.live && s.Errs && g.kind != grantRegion && s.IntN(2) == 0: // requests of the peer may come too late
		s.invalidateGrant()
	case g.live:
		if s.IntN(3) == 0 {
			g.asked = true
			if s.Wild { // the peer hears descriptors only, so that it does not answer
				s.endGrant(g.number)
				return
			}
			s.say(mRevoke, revokeMessage{g.number}, 0)
		}
	default:
		s.issueGrant()
	}
}

// issueGrant grants access in one of several ways.
func (s *session) issueGrant() {
	g := &s.grant
	s.checkGrant()
	rights := []nd.OpFlags{nd.AllowRead, nd.AllowWrite, readWrite}[s.IntN(3)] | []nd.OpFlags{0, nd.AllowAtomic}[s.IntN(2)]
	if s.Wild { // the peer learns the descriptor alone
		rights = readWrite | nd.AllowAtomic
	}
	desc := nd.DescriptorOf(s.shared)
	switch g.kind = grantKind(s.IntN(int(grantKinds))); {
	case g.kind == grantRegion || g.kind == grantFast && s.pages == nil:
		g.kind = grantRegion
	case g.kind == grantWindow:
		scope := nd.OpFlags(0)
		if s.IntN(2) == 0 {
			scope = nd.ThisEndpointOnly
		}
		if !s.post(request{kind: nd.RequestBind, done: func(bool) {}}, rights|scope, func(x uint64, f nd.OpFlags) error {
			return s.ep.Bind(x, s.shared, s.window, s.shared.Bytes(), f)
		}) {
			return
		}
		s.count(Binds)
		desc = s.window.Descriptor()
	default:
		const base = 1 << 40
		var remote nd.RegionFlags
		if rights.Has(nd.AllowRead) {
			remote |= nd.AllowRemoteRead
		}
		if rights.Has(nd.AllowWrite) {
			remote |= nd.AllowRemoteWrite
		}
		if rights.Has(nd.AllowAtomic) {
			remote |= nd.AllowRemoteAtomic
		}
		if !s.post(request{kind: nd.RequestFastRegister, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error {
			return s.ep.FastRegister(x, nd.FastRegistration{Region: s.fast, Pages: s.pages.Pages(), Offset: s.pages.Offset(), Length: sharedSize, BaseAddress: base, Rights: remote}, f)
		}) {
			return
		}
		s.count(Registrations)
		desc = nd.WindowDescriptor{Address: base, Length: sharedSize, Token: s.fast.RemoteToken()}
	}
	g.number++
	g.live, g.token = true, desc.Token
	s.say(mGrant, grantMessage{g.number, g.kind, uint32(rights), encode(desc)}, 0)
}

// endGrant ends the access, after the peer has stopped its use.
func (s *session) endGrant(number uint32) {
	g := &s.grant
	if number != g.number || !g.asked {
		s.fail(fmt.Errorf("the peer has stopped the use of grant %d, and grant %d has the state %+v", number, g.number, *g))
	}
	if g.kind == grantRegion {
		s.grantEnded()
		return
	}
	s.invalidateGrant()
}

// invalidateGrant ends the access of a window or of a fast registration.
func (s *session) invalidateGrant() {
	g := &s.grant
	call := func(x uint64, f nd.OpFlags) error { return s.ep.Invalidate(x, s.window, f) }
	if g.kind == grantFast {
		call = func(x uint64, f nd.OpFlags) error { return s.ep.InvalidateRegion(x, s.fast, f) }
	}
	g.ending = s.post(request{kind: nd.RequestInvalidate, done: func(ok bool) {
		if ok {
			s.grantEnded()
		}
	}}, 0, call)
	s.count(Invalidates)
}

// grantTaken handles the end of the access by the peer's SendAndInvalidate.
func (s *session) grantTaken(token nd.Token) {
	if g := &s.grant; !g.live || token != g.token {
		s.fail(fmt.Errorf("the peer has invalidated %v, and the grant is %+v", token, *g))
	}
	s.count(PeerRevocations)
	s.grantEnded()
}

// grantEnded notes that the peer has no access.
func (s *session) grantEnded() {
	g := &s.grant
	g.live, g.asked, g.ending = false, false, false
	s.count(Revocations)
	g.seal = sealOf(s.shared.Bytes())
}

// checkGrant checks that no byte of a slot has changed since the peer's access ended.
func (s *session) checkGrant() {
	if g := &s.grant; s.guard0 != nil && !g.live && !s.Wild && g.seal != sealOf(s.shared.Bytes()) {
		s.fail(fmt.Errorf("a byte of a slot has changed after the end of grant %d", g.number))
	}
}
