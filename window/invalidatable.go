package window

import "github.com/softnd/softnd/nd"

// Invalidatable is access to memory that one request of an endpoint gives to peers and another ends: a bound [Window], or
// a [Region] registered by [Region.PrepareFastRegister].
type Invalidatable interface {
	// Invalidate makes the remote token invalid and returns it. When the token is
	// Drained, the caller calls Release. The access must have been given on that
	// endpoint; 0 means any. ok is false, and nothing has changed, if there is no
	// such access. Windows that are bound to a region prevent it, unless force is
	// true, as for an endpoint that has ended.
	Invalidate(endpoint uint64, force bool) (token nd.Token, ok bool)
	// InvalidateAndRelease is Invalidate without force and, if the token is drained already,
	// Release.
	InvalidateAndRelease(endpoint uint64) (token nd.Token, drained, ok bool)
	// Drained reports whether no executor uses the token.
	Drained(token nd.Token) bool
	// Release ends an invalidation whose token is drained.
	Release()
	// Bound reports whether the access is in effect or waits for Release.
	Bound() bool
	// isBoundOn reports whether the access was given on an endpoint and is in effect.
	isBoundOn(endpoint uint64) bool
}

// Prepared is a bind or a fast registration that has been checked and has its token, but is not in effect. The caller must
// call either Apply or Cancel.
type Prepared interface {
	// Apply puts it into effect, and reports whether it did.
	Apply() bool
	// Cancel gives it up.
	Cancel()
}

// Find returns what an Invalidate of a token on an endpoint ends. That is the window that was bound, or the region that was
// registered, on that endpoint. kind is [Remote], or [Local] for the local token of a fast registration. Find returns nil if
// there is none, or if windows are bound to the region.
func (d *Domain) Find(token nd.Token, kind Rights, endpoint uint64) Invalidatable {
	_, p, word := d.table.lookup(token)
	if p == nil || p.adapter != d.Adapter || word.rights()&kind == 0 || p.invalidates == nil || !p.invalidates.isBoundOn(endpoint) {
		return nil
	}
	if r, ok := p.invalidates.(*Region); ok && r.hasWindows() {
		return nil
	}
	return p.invalidates
}
