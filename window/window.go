package window

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// Window grants peers a part of a region, from a bind to an invalidation.
// It starts invalid. Safe for concurrent use; the order in which binds and
// invalidations take effect is that of the calls to Run and Invalidate.
//
// Source: IND2MemoryWindow, NDK_MW.
type Window struct {
	space *Space
	grant *grant

	mu      asym.Mutex
	bound   *Binding // what is in effect; nil = invalid
	spare   *Binding // one that has ended: binding again is no reason to allocate
	retired bool     // cannot be bound any more
	latest  nd.WindowDescriptor
}

// Binding is a bind that has been checked and has its token, but may not have
// taken effect yet.
type Binding struct {
	window *Window
	region *Region
	terms  terms
}

// NewWindow returns an invalid window. It takes one entry of the table.
//
// Errors: [shm.ErrFull], [shm.ErrShortage].
func (s *Space) NewWindow() (*Window, error) {
	g, err := s.table.take()
	if err != nil {
		return nil, err
	}
	return &Window{space: s, grant: g}, nil
}

// Prepare checks a bind of mem, a part of r, and gives it its token, which
// [Window.Descriptor] returns from now on. endpoint is the one on which the
// bind is posted; only restricts the window to that endpoint's peer.
// The region cannot be deregistered until the binding has ended: each
// Binding must see either Run or Abandon.
//
// Errors: [nd.AccessViolation] when mem is not within the region, or empty, or
// the region does not allow the right.
func (w *Window) Prepare(r *Region, mem []byte, rights Rights, endpoint uint64, only bool) (*Binding, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.draft(r, mem, rights, endpoint)
	if b == nil {
		return nil, nd.AccessViolation
	}
	if only {
		b.terms.scope = endpoint
	}
	return b, nil
}

// Bind is Prepare and Run at once, without a restriction. false means that those
// have to say what is wrong, if anything is; nothing has changed then.
func (w *Window) Bind(r *Region, mem []byte, rights Rights, endpoint uint64) (ok bool) {
	if !w.mu.Enter() {
		w.mu.Lock()
	}
	if w.bound == nil && !w.retired {
		if b := w.draft(r, mem, rights, endpoint); b != nil {
			w.bound = b
			w.grant.publish(&b.terms)
			ok = true
		}
	}
	w.mu.Unlock()
	return ok
}

// draft gives a bind its token, if the region agrees. The caller holds w.mu.
func (w *Window) draft(r *Region, mem []byte, rights Rights, endpoint uint64) *Binding {
	b := w.spare
	if b == nil {
		b = &Binding{window: w, terms: terms{owner: w.space.owner, loan: w}}
	}
	t := &b.terms
	if !r.attach(t, mem, rights&Write != 0) {
		return nil
	}
	b.region, w.spare = r, nil
	t.token, t.bind = w.grant.next()
	t.rights, t.bound, t.scope = rights&(Read|Write)|Remote, endpoint, 0
	w.latest = nd.WindowDescriptor{Address: t.base, Length: uint64(len(mem)), Token: t.token}
	return b
}

func (w *Window) madeOn(endpoint uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound != nil && w.bound.terms.bound == endpoint
}

// Run puts the binding into effect. It tells whether it could: a window that
// is still bound cannot be bound again, and a retired one never.
func (b *Binding) Run() bool {
	w := b.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != nil || w.retired {
		b.region.detach()
		return false
	}
	w.bound = b
	w.grant.publish(&b.terms)
	return true
}

// Abandon gives up a binding that was not run.
func (b *Binding) Abandon() { b.region.detach() }

// Invalidate ends the access through the window and returns the token to be
// drained; when it is, the caller calls Release. endpoint is the one that
// asks, 0 for the window's owner itself. ok is false when the window is not
// bound, bound on another endpoint, or being invalidated already.
func (w *Window) Invalidate(endpoint uint64) (token nd.Token, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.invalidate(endpoint)
}

// TakeBack is Invalidate and, if the token is drained by then, Release.
func (w *Window) TakeBack(endpoint uint64) (token nd.Token, drained, ok bool) {
	if !w.mu.Enter() {
		w.mu.Lock()
	}
	if token, ok = w.invalidate(endpoint); ok && w.space.Drained(token) {
		w.release()
		drained = true
	}
	w.mu.Unlock()
	return token, drained, ok
}

// invalidate is Invalidate with the lock held.
func (w *Window) invalidate(endpoint uint64) (token nd.Token, ok bool) {
	if w.bound == nil || endpoint != 0 && w.bound.terms.bound != endpoint {
		return 0, false
	}
	token = w.grant.revoke()
	return token, token != 0
}

// Retire invalidates the window, if it is bound, and keeps it from being bound
// again. A token other than 0 is to be drained by the caller, who then calls
// Release; a window that is [Window.Bound] all the same is being invalidated by
// somebody else already.
func (w *Window) Retire() (token nd.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	if w.bound == nil {
		return 0
	}
	return w.grant.revoke()
}

// Expire is Invalidate when the endpoint has ended.
func (w *Window) Expire(endpoint uint64) (token nd.Token, ok bool) { return w.Invalidate(endpoint) }

// Drained tells whether nobody uses the window any more under an invalid token.
func (w *Window) Drained(token nd.Token) bool { return w.space.Drained(token) }

// Bound tells whether a binding is in effect or has yet to be released.
func (w *Window) Bound() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound != nil
}

// Release ends an invalidation whose token is drained. Only now the window can
// be bound again and the region deregistered: a late executor may still hold
// the fields of the old binding until then.
func (w *Window) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release()
}

// release is Release with the lock held.
func (w *Window) release() {
	b := w.bound
	b.region.detach()
	b.region, b.terms.mem = nil, nil
	w.bound, w.spare = nil, b
}

// Descriptor returns address, length and token of the latest bind; zero
// before the first.
func (w *Window) Descriptor() nd.WindowDescriptor {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// Free returns the table entry. The window must be invalid and drained, and is
// not usable afterwards.
func (w *Window) Free() { w.space.table.giveBack(w.grant) }
