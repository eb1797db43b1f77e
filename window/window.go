package window

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// Window is a memory window: it lets peers access a part of a region, from a bind to an invalidation. It starts invalid.
// Safe for concurrent use. Binds and invalidations take effect in the order of the calls to Apply and Invalidate.
//
// Source: IND2MemoryWindow, NDK_MW.
type Window struct {
	domain *Domain
	entry  *ownEntry

	mu      asym.BiasedMutex
	bound   *binding // in effect, or waiting for Release; nil = the window can be bound
	spare   *binding // one that has ended, so that the next bind does not allocate
	retired bool     // it must not be bound again
	latest  nd.WindowDescriptor
}

// binding is a bind that has its token; see Prepared.
type binding struct {
	window      *Window
	region      *Region
	permissions permissions
}

// NewWindow returns an invalid window. It takes one entry of the window table.
//
// Errors: [shm.ErrFull], [shm.NoMemoryError].
func (d *Domain) NewWindow() (*Window, error) {
	e, err := d.table.take()
	if err != nil {
		return nil, err
	}
	return &Window{domain: d, entry: e}, nil
}

// Prepare checks a bind of the window to mem, a part of r, and makes its token. [Window.Descriptor] returns that token from
// now on. endpoint is the one on which the bind is posted. If only is true, only that endpoint's peer may use the window.
// The region cannot be deregistered until the bind is canceled, or invalidated and released.
//
// Errors: [nd.AccessViolation] if mem is empty or not within the region, or the region does not allow the rights.
func (w *Window) Prepare(r *Region, mem []byte, rights Rights, endpoint uint64, only bool) (Prepared, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.prepare(r, mem, rights, endpoint)
	if b == nil {
		return nil, nd.AccessViolation
	}
	if only {
		b.permissions.scope = endpoint
	}
	return b, nil
}

// Bind is Prepare and Apply in one step, for any peer. If it returns false, nothing has changed, and the caller must call
// Prepare and Apply, which succeed or say what is wrong.
func (w *Window) Bind(r *Region, mem []byte, rights Rights, endpoint uint64) (ok bool) {
	if !w.mu.LockBiased() {
		w.mu.Lock()
	}
	if w.bound == nil && !w.retired {
		if b := w.prepare(r, mem, rights, endpoint); b != nil {
			w.bound = b
			w.entry.bind(&b.permissions)
			ok = true
		}
	}
	w.mu.Unlock()
	return ok
}

// prepare makes the token of a bind; it returns nil if the region does not allow the bind. The caller holds w.mu.
func (w *Window) prepare(r *Region, mem []byte, rights Rights, endpoint uint64) *binding {
	b := w.spare
	if b == nil {
		b = &binding{window: w, permissions: permissions{adapter: w.domain.Adapter, invalidates: w}}
	}
	p := &b.permissions
	if !r.attach(p, mem, rights&Write != 0) {
		return nil
	}
	b.region, w.spare = r, nil
	p.token, p.bindNumber = w.entry.nextToken()
	p.rights, p.boundOn, p.scope = rights&(Read|Write)|Remote, endpoint, 0
	w.latest = nd.WindowDescriptor{Address: p.base, Length: uint64(len(mem)), Token: p.token}
	return b
}

func (w *Window) isBoundOn(endpoint uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound != nil && w.bound.permissions.boundOn == endpoint
}

// Apply binds the window, and reports whether it did. It fails if the window is bound, or is retired.
func (b *binding) Apply() bool {
	w := b.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != nil || w.retired {
		b.region.detach()
		return false
	}
	w.bound = b
	w.entry.bind(&b.permissions)
	return true
}

// Cancel gives the bind up.
func (b *binding) Cancel() { b.region.detach() }

// Invalidate makes the window's token invalid and returns it. When the token is drained, the caller calls Release. endpoint
// is the one on which the request is posted; 0 is the owner itself. It returns false if the window is not bound, is bound
// on another endpoint, or is already being invalidated. force changes nothing for a window.
func (w *Window) Invalidate(endpoint uint64, _ bool) (token nd.Token, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.invalidate(endpoint)
}

// InvalidateAndRelease is Invalidate and, if the token is drained already, Release.
func (w *Window) InvalidateAndRelease(endpoint uint64) (token nd.Token, drained, ok bool) {
	if !w.mu.LockBiased() {
		w.mu.Lock()
	}
	if token, ok = w.invalidate(endpoint); ok && w.domain.Drained(token) {
		w.release()
		drained = true
	}
	w.mu.Unlock()
	return token, drained, ok
}

// invalidate is Invalidate. The caller holds w.mu.
func (w *Window) invalidate(endpoint uint64) (token nd.Token, ok bool) {
	if w.bound == nil || endpoint != 0 && w.bound.permissions.boundOn != endpoint {
		return 0, false
	}
	token = w.entry.revoke()
	return token, token != 0
}

// Retire keeps the window from being bound again, and invalidates it if it is bound. If the token that it returns is not 0,
// the caller waits until it is drained and calls Release. If it is 0 and the window is [Window.Bound], another caller has
// invalidated it and will call Release.
func (w *Window) Retire() (token nd.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	if w.bound == nil {
		return 0
	}
	return w.entry.revoke()
}

// Drained reports whether no executor uses an invalid token of the window.
func (w *Window) Drained(token nd.Token) bool { return w.domain.Drained(token) }

// Bound reports whether a bind is in effect or waits for Release.
func (w *Window) Bound() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound != nil
}

// Release ends an invalidation whose token is drained. Only then can the window be bound again and the region be
// deregistered: until the drain, an executor may use what it has read from the entry.
func (w *Window) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release()
}

// release is Release. The caller holds w.mu.
func (w *Window) release() {
	b := w.bound
	b.region.detach()
	b.region, b.permissions.mem = nil, nil
	w.bound, w.spare = nil, b
}

// Descriptor returns address, length and token of the latest bind; zero
// before the first.
func (w *Window) Descriptor() nd.WindowDescriptor {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// Free gives the entry of the window table back. The window must be invalid and drained, and must not be used afterwards.
func (w *Window) Free() { w.domain.table.giveBack(w.entry) }
