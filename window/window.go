package window

// TWIN c/src/window/window.c.

import "github.com/softnd/softnd/nd"

// Window is a memory window: it lets peers access a part of a region, from a bind to an
// invalidation. It starts invalid. Safe for concurrent use. Binds and invalidations take effect in
// the order of the calls to Apply and Invalidate.
//
// Source: IND2MemoryWindow, NDK_MW.
type Window struct {
	Invalidatable

	binding *binding // the latest that was applied; nil after the invalidation
	spare   *binding // one that has ended, so that the next bind does not allocate
	latest  nd.WindowDescriptor
}

// binding is a bind that has its token; see Prepared.
type binding struct {
	window      *Window
	region      *Region
	endpoint    uint64 // on which the bind was posted
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
	w := &Window{Invalidatable: Invalidatable{domain: d, remote: e}}
	w.invalidated = w.endBind
	return w, nil
}

// Prepare checks a bind of the window to mem, a part of r, and makes its token. [Window.Descriptor]
// returns that token from now on. endpoint is the one on which the bind is posted. If only is true,
// only that endpoint's peer may use the window. The region cannot be deregistered until the bind is
// canceled, or its invalidation has ended.
//
// Errors: [nd.AccessViolation] if mem is empty or not within the region, or the region does not
// allow the rights.
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

// Bind is Prepare and Apply in one step, for any peer. If it returns false, nothing has changed,
// and the caller must call Prepare and Apply, which succeed or say what is wrong.
func (w *Window) Bind(r *Region, mem []byte, rights Rights, endpoint uint64) (ok bool) {
	if !w.mu.LockBiased() {
		w.mu.Lock()
	}
	if w.canBind() {
		if b := w.prepare(r, mem, rights, endpoint); b != nil {
			w.apply(b)
			ok = true
		}
	}
	w.mu.Unlock()
	return ok
}

// Apply binds the window, and reports whether it did. It fails if the window is bound, or is
// retired.
func (b *binding) Apply() bool {
	w := b.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.canBind() {
		b.region.detach()
		return false
	}
	w.apply(b)
	return true
}

// Cancel gives the bind up.
func (b *binding) Cancel() { b.region.detach() }

// Retire invalidates the window if it is bound, and keeps it from being bound again. The caller
// calls EndInvalidation until that returns true.
func (w *Window) Retire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	if w.state == bound {
		w.revoke()
	}
}

// Descriptor returns address, length and token of the latest bind; zero before the first.
func (w *Window) Descriptor() nd.WindowDescriptor {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// The caller of the methods below holds w.mu.

func (w *Window) canBind() bool { return w.state == unbound && !w.retired }

// prepare makes the token of a bind; it returns nil if the region does not allow the bind.
func (w *Window) prepare(r *Region, mem []byte, rights Rights, endpoint uint64) *binding {
	b := w.spare
	if b == nil {
		b = &binding{window: w, permissions: permissions{adapter: w.domain.Adapter, invalidates: &w.Invalidatable}}
	}
	p := &b.permissions
	if !r.attach(p, mem, rights&(Write|Atomic) != 0) {
		return nil
	}
	b.region, b.endpoint, w.spare = r, endpoint, nil
	p.token, p.bindNumber = w.remote.nextToken()
	p.rights, p.scope = rights&(Read|Write|Atomic)|Remote, 0
	w.latest = nd.WindowDescriptor{Address: p.base, Length: uint64(len(mem)), Token: p.token}
	return b
}

// apply binds the window.
func (w *Window) apply(b *binding) {
	w.binding, w.state, w.boundOn = b, bound, b.endpoint
	w.remote.bind(&b.permissions)
}

// endBind is called when an invalidation of the window has ended.
func (w *Window) endBind() {
	b := w.binding
	b.region.detach()
	b.region, b.permissions.mem = nil, nil
	w.binding, w.spare = nil, b
}
