package window

// TWIN c/src/window/invalidatable.c.

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
)

// Invalidatable is what an Invalidate request ends: a bound [Window], or a [Region] that a request
// has registered. Both types embed it. Safe for concurrent use.
type Invalidatable struct {
	domain      *Domain
	local       *ownEntry // of a region's local token; nil for a window
	remote      *ownEntry // of the remote token
	invalidated func()    // called, with mu held, when an invalidation has ended

	mu      asym.BiasedMutex
	state   bindState
	retired bool   // requests must not bind or register it again
	boundOn uint64 // the endpoint whose request bound or registered it; 0 = no request can invalidate it
	windows int    // of a region: windows that are bound to it, or prepared

	revokedLocal, revokedRemote nd.Token // while draining
}

// bindState says whether a window is bound, and whether a region is registered.
type bindState uint8

const (
	unbound  bindState = iota
	bound              // the tokens are valid
	draining           // the tokens are invalid, but executors may still access the memory
)

// Invalidate makes the tokens invalid and returns the remote one. If done is false, executors may
// still access the memory, and the caller calls EndInvalidation until that returns true.
//
// It returns ok false, and changes nothing, unless a request on this endpoint has bound the window
// or registered the region. The same holds while windows are bound to the region.
func (i *Invalidatable) Invalidate(endpoint uint64) (token nd.Token, done, ok bool) {
	return i.invalidate(endpoint, false)
}

// InvalidateAtEnd is [Invalidatable.Invalidate] for an endpoint that has ended. It also invalidates
// a region to which windows are bound. The windows remain valid, and the registration ends with the
// invalidation of the last of them.
func (i *Invalidatable) InvalidateAtEnd(endpoint uint64) (token nd.Token, done, ok bool) {
	return i.invalidate(endpoint, true)
}

func (i *Invalidatable) invalidate(endpoint uint64, withWindows bool) (token nd.Token, done, ok bool) {
	if !i.mu.LockBiased() {
		i.mu.Lock()
	}
	if i.isBoundOn(endpoint) && (withWindows || i.windows == 0) {
		token, ok = i.revoke(), true
		done = i.endInvalidation()
	}
	i.mu.Unlock()
	return token, done, ok
}

// EndInvalidation ends an invalidation whose tokens are drained, so that the window can be bound again, or
// the region registered again. It returns false if an executor still uses a token: that executor
// may use the values that it has read from the access entry. Without an invalidation, EndInvalidation
// changes nothing and returns true.
func (i *Invalidatable) EndInvalidation() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.endInvalidation()
}

// Bound reports whether the window is bound, or the region is registered: its tokens are valid.
func (i *Invalidatable) Bound() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state == bound
}

// IsRegion reports whether this is a [Region] and not a [Window].
func (i *Invalidatable) IsRegion() bool { return i.local != nil }

// Free gives the entries of the window table back. The window must be invalid, the region
// deregistered, and the invalidation must have ended. They must not be used afterwards.
func (i *Invalidatable) Free() {
	if i.IsRegion() {
		i.domain.table.giveBack(i.local)
	}
	i.domain.table.giveBack(i.remote)
}

// The caller of the methods below holds i.mu.

func (i *Invalidatable) isBoundOn(endpoint uint64) bool {
	return i.state == bound && i.boundOn == endpoint
}

// isInUse reports whether the window or region cannot be bound or registered now.
func (i *Invalidatable) isInUse() bool { return i.state != unbound || i.windows > 0 }

// revoke makes the tokens invalid and returns the remote one.
func (i *Invalidatable) revoke() nd.Token {
	i.state = draining
	if i.IsRegion() {
		i.revokedLocal = i.local.revoke()
	}
	i.revokedRemote = i.remote.revoke()
	return i.revokedRemote
}

// endInvalidation is EndInvalidation.
func (i *Invalidatable) endInvalidation() bool {
	if i.state != draining {
		return true
	}
	if !i.domain.drained(i.revokedRemote) || i.IsRegion() && !i.domain.drained(i.revokedLocal) {
		return false
	}
	failpoint.Reach(failpoint.EntryDrained)
	i.state = unbound
	i.invalidated()
	return true
}

// Prepared is a bind or a fast registration that has been checked and has its token, but is not in
// effect. The caller must call either Apply or Cancel.
type Prepared interface {
	// Apply puts it into effect, and reports whether it did.
	Apply() bool
	// Cancel gives it up.
	Cancel()
}

// Find returns what an Invalidate of a token on an endpoint ends. That is the window that was
// bound, or the region that was registered, on that endpoint. kind is [Remote], or [Local] for the
// local token of a fast registration. Find returns nil if there is none, or if windows are bound to
// the region.
func (d *Domain) Find(token nd.Token, kind Rights, endpoint uint64) *Invalidatable {
	_, p, word := d.table.lookup(token)
	if p == nil || p.adapter != d.Adapter || word.rights()&kind == 0 || p.invalidates == nil {
		return nil
	}
	i := p.invalidates
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.isBoundOn(endpoint) || i.windows > 0 {
		return nil
	}
	return i
}
