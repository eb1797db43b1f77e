package traffic

import (
	"context"
	"fmt"
	"time"

	"github.com/softnd/softnd/nd"
)

// trap is memory whose access ends while the peer uses it.
type trap struct {
	open     bool      // the peer has access
	revoking bool      // an Invalidate runs
	sealed   bool      // no peer has access: the memory is poisoned, and must stay so
	region   bool      // access is by the region's own token
	gone     bool      // the region is not registered
	fire     bool      // the peer was told to go on without a pause
	fired    bool      // the same, also of an earlier access
	burns    bool      // the peer does so
	until    time.Time // the access ends then, so that its end has nothing to do with the peer's messages
}

// useTrap grants access to the guarded memory, or ends it.
func (s *session) useTrap() {
	t := &s.trap
	switch {
	case t.revoking || t.burns && !t.open: // the next transfer of the peer ends the connection
	case t.open:
		if !t.fire || t.burns && time.Now().After(t.until) {
			s.revokeTrap()
		}
	default:
		s.checkTrap()
		fire := s.endsAccess || s.IntN(6) == 0
		t.sealed = false
		if t.gone {
			s.fail(s.guard.Register(context.Background(), s.guard0, anything))
			t.gone = false
		}
		setAll(s.guard.Bytes(), guarded)
		desc := nd.DescriptorOf(s.guard)
		if t.region = s.IntN(3) == 0; !t.region {
			flags := readWrite | nd.AllowAtomic
			if s.IntN(2) == 0 {
				flags |= nd.ThisEndpointOnly
			}
			if !s.post(request{kind: nd.RequestBind, done: func(bool) {}}, flags, func(x uint64, f nd.OpFlags) error {
				return s.ep.Bind(x, s.guard, s.guardWindow, s.guard.Bytes(), f)
			}) {
				return
			}
			s.count(Binds)
			desc = s.guardWindow.Descriptor()
		}
		t.open, t.fire, t.fired = true, fire, t.fired || fire
		s.say(mTrap, trapMessage{Fire: fire, Desc: encode(desc)}, 0)
	}
}

// revokeTrap ends the access.
func (s *session) revokeTrap() {
	ended := func() {
		s.trap.open, s.trap.revoking, s.trap.sealed = false, false, true
		setAll(s.guard0, poison)
		s.count(Revocations)
	}
	if s.trap.region {
		ctx, cancel := context.WithTimeout(context.Background(), stalled)
		defer cancel()
		s.fail(s.guard.Deregister(ctx))
		s.trap.gone = true
		ended()
		return
	}
	s.trap.revoking = s.post(request{kind: nd.RequestInvalidate, loud: true, done: func(ok bool) {
		if ok {
			ended()
		}
	}}, 0, func(x uint64, f nd.OpFlags) error { return s.ep.Invalidate(x, s.guardWindow, f) })
	for range 1000 { // a copy that is still under way must meet the poison
		if !s.trap.revoking {
			break
		}
		s.take(s.cq.Poll(s.results[:1]))
	}
}

// checkTrap checks that no byte has changed since the access ended.
func (s *session) checkTrap() {
	if s.trap.sealed && !s.Wild && !isAll(s.guard0, poison) {
		s.fail(fmt.Errorf("a byte has changed after the end of the access to it"))
	}
}
