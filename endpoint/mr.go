package endpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// MemoryRegion is registered memory of one adapter.
type MemoryRegion struct {
	adapter *Adapter
	region  *window.Region
	offset  shm.Offset // arena memory that goes with the region; 0 = none
	size    uint64     // bytes of it

	mu      sync.Mutex
	pages   int  // at most in one fast registration
	remote  bool // fast registrations may carry remote rights
	closed  atomic.Bool
	drained chan struct{} // closed at the end of the latest deregistration
	held    bool          // Close waits for a window or a mapping
	gone    bool          // Close is done
}

// Register makes buf usable by the adapter's endpoints, and by peers as flags
// say.
func (r *MemoryRegion) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) error {
	const op = "register"
	switch {
	case buf == nil:
		return r.fail(op, nd.InvalidParameter, "no buffer", "pass the memory to register")
	case len(buf) == 0:
		return r.fail(op, nd.InvalidBufferSize, "an empty buffer", "register at least 1 byte")
	case len(buf) > maxRegistration:
		return r.fail(op, nd.InvalidParameter, fmt.Sprintf("%d bytes, at most %d", len(buf), maxRegistration), "use several regions")
	case flags&^nd.AllRegionFlags != 0:
		return r.fail(op, nd.InvalidParameter3, "unknown flags "+flags.String(), "use the nd.RegionFlags constants")
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "memory region")
	}
	if !r.adapter.provider.sleep.begin() {
		return r.fail(op, nd.InvalidHandle, "the provider is closed", "")
	}
	defer r.adapter.provider.sleep.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return r.fail(op, nd.InvalidHandle, "the region is closed", "create another")
	}
	if err := r.region.Register(buf, flags); err != nil {
		return r.fail(op, nd.StatusOf(err), "the region is registered already, or set up for fast registration", "deregister it first, or use another region")
	}
	return nil
}

// Deregister ends the registration. When it returns nil, nobody uses the
// memory through this region any more. If ctx ends while a peer is still
// copying, the tokens are invalid all the same, and the drain goes on.
func (r *MemoryRegion) Deregister(ctx context.Context) error {
	const op = "deregister"
	p := r.adapter.provider
	if !p.sleep.begin() {
		return r.fail(op, nd.InvalidHandle, "the provider is closed", "")
	}
	defer p.sleep.end()
	p.settleDeliveries(r.adapter)
	p.doChores() // one may unbind a window
	r.mu.Lock()
	if r.closed.Load() {
		r.mu.Unlock()
		return r.fail(op, nd.InvalidHandle, "the region is closed", "")
	}
	if r.region.Fast() {
		r.mu.Unlock()
		return r.fail(op, nd.InvalidDeviceState, "the region is set up for fast registration", "use Endpoint.InvalidateRegion")
	}
	drained, err := r.revoke()
	r.mu.Unlock()
	switch {
	case errors.Is(err, nd.DeviceBusy):
		return r.fail(op, nd.DeviceBusy, "a window is bound to the region", "invalidate the window first")
	case err != nil:
		return r.fail(op, nd.StatusOf(err), "the region is not registered", "")
	}
	if err := p.wait(ctx, testimony.Call{Op: op, Object: "memory region"}, p.doChores, func() bool { return isClosed(drained) }); err != nil {
		return canceled(ctx, err, op, "memory region")
	}
	return nil
}

// revoke starts a deregistration, or finds one under way. The caller holds r.mu.
func (r *MemoryRegion) revoke() (drained <-chan struct{}, err error) {
	if r.drained != nil && !isClosed(r.drained) {
		return r.drained, nil
	}
	local, remote, err := r.region.Revoke()
	if err != nil {
		return nil, err
	}
	p, space, done := r.adapter.provider, r.adapter.space, make(chan struct{})
	r.drained = done
	p.later(func() bool {
		if !space.Drained(local) || !space.Drained(remote) {
			return false
		}
		r.region.Release()
		close(done)
		p.sleep.wake()
		return true
	})
	return done, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// LocalToken returns the token for scatter/gather entries.
func (r *MemoryRegion) LocalToken() nd.Token { t, _ := r.region.Tokens(); return t }

// RemoteToken returns the token for peers.
func (r *MemoryRegion) RemoteToken() nd.Token { _, t := r.region.Tokens(); return t }

// Bytes returns the registered memory, unless it is pages that lie apart: where
// those are side by side, they are no longer after the registration. It returns nil
// when the provider is closed, as the memory may be another process's then.
func (r *MemoryRegion) Bytes() []byte {
	if r.adapter.provider.over.Load() {
		return nil
	}
	b := r.region.Bytes()
	if _, ok := r.adapter.provider.arena.Locate(b); !ok && r.region.Fast() {
		return nil
	}
	return b
}

// Address returns the address by which peers name the first byte. Unless the
// region was registered by FastRegister it is this process's virtual address,
// and to peers only a number to count from.
func (r *MemoryRegion) Address() uint64 { return r.region.Address() }

// Close is CloseContext without a limit.
func (r *MemoryRegion) Close() error { return r.CloseContext(context.Background()) }

// CloseContext releases the region. A registered one is deregistered first; while a
// window is bound to it, that happens when the window is gone. Memory that came
// with the region outlives the mappings of it. If ctx ends while a peer is still
// copying, the tokens are invalid all the same, the drain continues, and the memory
// is released at its end. In a goroutine that panics it is postponed, see [Endpoint.Close].
func (r *MemoryRegion) CloseContext(ctx context.Context) error {
	const op, object = "close", "memory region"
	if err := r.adapter.provider.postponed(object, r.Close); err != nil {
		return err
	}
	r.mu.Lock()
	again := r.closed.Swap(true) // with the lock: who has found it open goes on first
	r.mu.Unlock()
	p := r.adapter.provider
	if !p.sleep.begin() {
		return nil // the member's departure returns all that it owned
	}
	defer p.sleep.end()
	r.region.Retire(func() { p.postpone(r.vanish) })
	p.settleDeliveries(r.adapter)
	p.doChores() // one may unbind a window
	if !again {
		p.later(r.vanish)
	}
	err := p.wait(ctx, testimony.Call{Op: op, Object: object}, p.doChores, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.gone || r.held
	})
	return drainError(ctx, err, op, object)
}

// vanish is the chore of Close. It ends while a window or a mapping holds the region, and is
// postponed again when the last one has gone: the engine need not poll for that.
func (r *MemoryRegion) vanish() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return true
	}
	wasHeld := r.held
	defer func() {
		if r.gone || r.held && !wasHeld {
			r.adapter.provider.sleep.wake() // Close waits for it
		}
	}()
	drained, err := r.revoke()
	if r.held = errors.Is(err, nd.DeviceBusy); r.held {
		return true // until the region is unbound
	}
	if err == nil && !isClosed(drained) {
		return false
	}
	if r.region.Bound() { // who has invalidated it has yet to release it
		return false
	}
	mappings := &r.adapter.provider.mappings
	mappings.mu.Lock() // so that nobody maps what is being freed
	defer mappings.mu.Unlock()
	if r.held = r.offset != 0 && mappings.use(r.offset, r.size); r.held {
		mappings.blocked = append(mappings.blocked, r.vanish)
		return true
	}
	r.region.Free()
	if r.offset != 0 {
		// The offset is ours and allocated. Where Free fails all the same, the pages
		// are not given back yet, or a peer has made them another member's.
		_ = r.adapter.provider.member.Heap().Free(r.offset)
	}
	r.gone = true
	return true
}

// usable tells whether windows may be bound to the region.
func (r *MemoryRegion) usable() bool { return !r.closed.Load() }

func (r *MemoryRegion) fail(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "memory region", Status: s, Detail: detail, Next: next}
}

// MemoryWindow grants peers a part of a region.
type MemoryWindow struct {
	adapter *Adapter
	window  *window.Window

	closed atomic.Bool
	gone   chan struct{} // closed when Close is done
}

// RemoteToken returns the token of the latest bind.
func (w *MemoryWindow) RemoteToken() nd.Token { return w.window.Descriptor().Token }

// Descriptor returns address, length and token of the latest bind.
func (w *MemoryWindow) Descriptor() nd.WindowDescriptor { return w.window.Descriptor() }

// Close is CloseContext without a limit.
func (w *MemoryWindow) Close() error { return w.CloseContext(context.Background()) }

// CloseContext releases the window. A bound one is invalidated first. When it returns
// nil, no transfer uses the window. If ctx ends first, the token is invalid all the
// same, and the drain continues. In a goroutine that panics it is postponed, see
// [Endpoint.Close].
func (w *MemoryWindow) CloseContext(ctx context.Context) error {
	const op, object = "close", "memory window"
	if err := w.adapter.provider.postponed(object, w.Close); err != nil {
		return err
	}
	again := w.closed.Swap(true)
	p := w.adapter.provider
	if !p.sleep.begin() {
		return nil // the member's departure returns all that it owned
	}
	defer p.sleep.end()
	if !again {
		w.vanish()
	}
	err := p.wait(ctx, testimony.Call{Op: op, Object: object}, p.doChores, func() bool { return isClosed(w.gone) })
	return drainError(ctx, err, op, object)
}

// vanish invalidates and frees the window, now or as a chore.
func (w *MemoryWindow) vanish() {
	p, space, token := w.adapter.provider, w.adapter.space, w.window.Retire()
	p.later(func() bool {
		switch {
		case !space.Drained(token):
			return false
		case token != 0:
			w.window.Release()
		case w.window.Bound(): // who has invalidated it has yet to release it
			return false
		}
		w.window.Free()
		close(w.gone)
		p.sleep.wake()
		return true
	})
}

// usable tells whether the window may be bound and invalidated.
func (w *MemoryWindow) usable() bool { return !w.closed.Load() }
