package window

import "github.com/softnd/softnd/nd"

// fastState is what a region needs for fast registration. Its region's lock
// guards it.
type fastState struct {
	is      bool     // set up for it, for good
	retired bool     // cannot be registered any more
	bound   uint64   // endpoint of the registration
	stale   nd.Token // local token that is being drained
	ended   func()   // called when the registration has ended
}

// Registration is a fast registration that has been checked and has its
// tokens, but may not have taken effect yet.
type Registration struct {
	region        *Region
	flags         nd.RegionFlags
	local, remote terms
	ended         func()
}

// InitializeFast sets the region up for fast registration; [Region.Register]
// cannot be used any more.
//
// Errors: [nd.InvalidDeviceState] if the region is registered.
func (r *Region) InitializeFast() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() != nil || r.draining {
		return nd.InvalidDeviceState
	}
	r.fast.is = true
	return nil
}

// Fast tells whether the region is set up for fast registration.
func (r *Region) Fast() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fast.is
}

// Prepare gives a fast registration of mem its tokens, which [Region.Tokens]
// returns from now on. Peers name the first byte by address; the owner's
// requests name the memory by where it is. ended is called when nobody uses
// the memory through this registration any more, and must not use the region.
func (r *Region) Prepare(mem []byte, address uint64, flags nd.RegionFlags, endpoint uint64, ended func()) *Registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	local, remote := r.draft(mem, address, flags)
	local.loan, local.bound = r, endpoint
	remote.loan, remote.bound = r, endpoint
	return &Registration{region: r, flags: flags, local: local, remote: remote, ended: ended}
}

// Run puts the registration into effect. It tells whether it could: a region
// that is still registered cannot be registered again, and a retired one never.
func (g *Registration) Run() bool {
	r := g.region
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() != nil || r.draining || r.fast.retired {
		g.ended()
		return false
	}
	r.flags = g.flags
	r.show(g.local.mem, g.remote.base)
	r.fast.bound, r.fast.ended = g.local.bound, g.ended
	r.local.publish(&g.local)
	r.remote.publish(&g.remote)
	return true
}

// Abandon gives up a registration that was not run.
func (g *Registration) Abandon() { g.ended() }

// Invalidate ends a fast registration; see [Loan]. It cannot while a window is
// bound to the region.
func (r *Region) Invalidate(endpoint uint64) (token nd.Token, ok bool) {
	return r.invalidate(endpoint, false)
}

// TakeBack ends a fast registration and, if nobody uses it, releases it; see [Loan].
func (r *Region) TakeBack(endpoint uint64) (token nd.Token, drained, ok bool) {
	if token, ok = r.Invalidate(endpoint); ok && r.Drained(token) {
		r.Release()
		drained = true
	}
	return token, drained, ok
}

// Expire ends a fast registration; see [Loan]. The windows bound to it stay,
// and with them the region stays occupied.
func (r *Region) Expire(endpoint uint64) (token nd.Token, ok bool) {
	return r.invalidate(endpoint, true)
}

func (r *Region) invalidate(endpoint uint64, force bool) (token nd.Token, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() == nil || !r.fast.is || endpoint != 0 && r.fast.bound != endpoint || r.windows > 0 && !force {
		return 0, false
	}
	r.fast.stale, token = r.revoke()
	return token, true
}

// Drained tells whether nobody uses the region any more under the tokens of the
// registration that Invalidate has ended.
func (r *Region) Drained(token nd.Token) bool {
	r.mu.Lock()
	stale := r.fast.stale
	r.mu.Unlock()
	return r.space.Drained(token) && r.space.Drained(stale)
}

func (r *Region) madeOn(endpoint uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fast.bound == endpoint
}

func (r *Region) hasWindows() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.windows > 0
}

// Bound tells whether a registration is in effect or has not ended yet.
func (r *Region) Bound() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Bytes() != nil || r.draining
}

// Retire keeps the region from being registered fast again: prepared
// registrations fail. From now on unbound is called whenever the last window bound to the
// region has gone. It must not use the region or the window.
func (r *Region) Retire(unbound func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fast.retired = true
	r.unbound = unbound
}

// Name returns a token that stands for no memory, and never will.
//
// Errors: as for [Space.NewRegion].
func (s *Space) Name() (nd.Token, error) {
	g, err := s.table.take()
	if err != nil {
		return 0, err
	}
	token, _ := g.next()
	return token, nil
}
