package window

// TWIN c/src/window/fastreg.c.

import "github.com/softnd/softnd/nd"

// registration is a fast registration that has its tokens; see Prepared.
type registration struct {
	region        *Region
	flags         nd.RegionFlags
	endpoint      uint64 // on which it was posted
	local, remote permissions
	ended         func()
}

// InitializeFastRegister prepares the region for fast registration. [Region.Register] fails from
// now on.
//
// Errors: [nd.InvalidDeviceState] if the region is registered.
func (r *Region) InitializeFastRegister() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isInUse() {
		return nd.InvalidDeviceState
	}
	r.fastRegister = true
	return nil
}

// PrepareFastRegister makes the tokens of a fast registration of mem, which [Region.Tokens] returns
// from now on. Peers use address for the first byte. The owner's requests use the address of mem.
// The request is posted on endpoint. The region calls ended when the registration has ended and no
// executor accesses mem through it. ended must not use the region.
func (r *Region) PrepareFastRegister(mem []byte, address uint64, flags nd.RegionFlags, endpoint uint64, ended func()) Prepared {
	r.mu.Lock()
	defer r.mu.Unlock()
	local, remote := r.prepare(mem, address, flags)
	local.invalidates, remote.invalidates = &r.Invalidatable, &r.Invalidatable
	return &registration{region: r, flags: flags, endpoint: endpoint, local: local, remote: remote, ended: ended}
}

// Apply registers the region, and reports whether it did. It fails if the region is still
// registered, or is retired.
func (p *registration) Apply() bool {
	r := p.region
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isInUse() || r.retired {
		p.ended()
		return false
	}
	r.boundOn, r.ended = p.endpoint, p.ended
	r.apply(&p.local, &p.remote, p.flags)
	return true
}

// Cancel gives the registration up.
func (p *registration) Cancel() { p.ended() }

// Retire keeps the region from being registered by a fast registration: prepared ones fail. From
// now on windowsClosed is called whenever the invalidation of the last window that is bound to the region
// has ended. It must not use the region or the window.
func (r *Region) Retire(windowsClosed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired = true
	r.windowsClosed = windowsClosed
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
