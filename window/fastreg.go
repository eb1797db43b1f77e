package window

import "github.com/softnd/softnd/nd"

// fastState is the part of a region that is for fast registration. The region's lock guards it.
type fastState struct {
	enabled bool     // the region is for fast registration; never changes back
	retired bool     // it must not be registered again
	boundOn uint64   // the endpoint of the registration
	stale   nd.Token // the local token that is being drained
	ended   func()   // called when the registration has ended
}

// registration is a fast registration that has its tokens; see Prepared.
type registration struct {
	region        *Region
	flags         nd.RegionFlags
	local, remote permissions
	ended         func()
}

// InitializeFastRegister prepares the region for fast registration. [Region.Register] fails from now on.
//
// Errors: [nd.InvalidDeviceState] if the region is registered.
func (r *Region) InitializeFastRegister() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() != nil || r.draining {
		return nd.InvalidDeviceState
	}
	r.fast.enabled = true
	return nil
}

// IsFastRegister reports whether the region is for fast registration.
func (r *Region) IsFastRegister() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fast.enabled
}

// PrepareFastRegister makes the tokens of a fast registration of mem, which [Region.Tokens] returns from now on. Peers use
// address for the first byte. The owner's requests use the address of mem. The request is posted on endpoint. The region
// calls ended when the registration has ended and no executor accesses mem through it. ended must not use the region.
func (r *Region) PrepareFastRegister(mem []byte, address uint64, flags nd.RegionFlags, endpoint uint64, ended func()) Prepared {
	r.mu.Lock()
	defer r.mu.Unlock()
	local, remote := r.prepare(mem, address, flags)
	local.invalidates, local.boundOn = r, endpoint
	remote.invalidates, remote.boundOn = r, endpoint
	return &registration{region: r, flags: flags, local: local, remote: remote, ended: ended}
}

// Apply registers the region, and reports whether it did. It fails if the region is still registered, or is retired.
func (g *registration) Apply() bool {
	r := g.region
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() != nil || r.draining || r.fast.retired {
		g.ended()
		return false
	}
	r.flags = g.flags
	r.setMemory(g.local.mem, g.remote.base)
	r.fast.boundOn, r.fast.ended = g.local.boundOn, g.ended
	r.local.bind(&g.local)
	r.remote.bind(&g.remote)
	return true
}

// Cancel gives the registration up.
func (g *registration) Cancel() { g.ended() }

// Invalidate makes the tokens of a fast registration invalid and returns the remote one; see [Invalidatable]. It fails
// while a window is bound to the region, unless force is true. Then the windows remain valid, and the region stays in use
// until they are invalidated.
func (r *Region) Invalidate(endpoint uint64, force bool) (token nd.Token, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() == nil || !r.fast.enabled || endpoint != 0 && r.fast.boundOn != endpoint || r.windows > 0 && !force {
		return 0, false
	}
	r.fast.stale, token = r.revoke()
	return token, true
}

// InvalidateAndRelease is Invalidate and, if both tokens are drained already, Release.
func (r *Region) InvalidateAndRelease(endpoint uint64) (token nd.Token, drained, ok bool) {
	if token, ok = r.Invalidate(endpoint, false); ok && r.Drained(token) {
		r.Release()
		drained = true
	}
	return token, drained, ok
}

// Drained reports whether no executor uses the remote token that Invalidate has returned, or the local token that became
// invalid with it.
func (r *Region) Drained(token nd.Token) bool {
	r.mu.Lock()
	stale := r.fast.stale
	r.mu.Unlock()
	return r.domain.Drained(token) && r.domain.Drained(stale)
}

func (r *Region) isBoundOn(endpoint uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fast.boundOn == endpoint
}

func (r *Region) hasWindows() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.windows > 0
}

// Bound reports whether a registration is in effect or has not ended yet.
func (r *Region) Bound() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Bytes() != nil || r.draining
}

// Retire keeps the region from being registered by a fast registration: prepared ones fail. From now on unbound is called
// whenever the last window that is bound to the region has been released. It must not use the region or the window.
func (r *Region) Retire(unbound func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fast.retired = true
	r.unbound = unbound
}

// ReserveToken returns a token that will never be valid. Its entry is not used for anything else.
//
// Errors: as for [Domain.NewRegion].
func (d *Domain) ReserveToken() (nd.Token, error) {
	e, err := d.table.take()
	if err != nil {
		return 0, err
	}
	token, _ := e.nextToken()
	return token, nil
}
