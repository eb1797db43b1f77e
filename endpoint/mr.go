package endpoint

// TWIN c/src/endpoint/mr.c, c/src/endpoint/mw.c.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/memory"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// memoryRegion is registered memory of one adapter.
type memoryRegion struct {
	nd.UnsupportedMemoryRegion
	adapter    *adapter
	region     *window.Region
	allocation *memory.Allocation // arena memory that Allocate made for the region; nil = none

	mu            sync.Mutex
	placement     nd.RegionFlags // see Placement
	maxPages      int            // limit of one fast registration
	remoteAllowed bool           // fast registrations may have remote rights
	closed        atomic.Bool
	drained       chan struct{} // closed when the latest deregistration has ended
	closeBlocked  bool          // Close waits until a window is gone
	closeDone     bool          // Close is complete
}

// Register makes buf usable by the adapter's endpoints, and by peers as far as flags allow.
func (r *memoryRegion) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) error {
	if err := r.adapter.beforeCall(ctx, "register", uint64(len(buf)), 0); err != nil {
		return err
	}
	return r.register(ctx, buf, flags)
}

// register is Register for a caller that has asked the hook.
func (r *memoryRegion) register(ctx context.Context, buf []byte, flags nd.RegionFlags) error {
	const op = "register"
	switch {
	case buf == nil:
		return argument("buf", r.opError(op, nd.InvalidParameter, "no buffer", "pass the memory to register"))
	case len(buf) == 0:
		return r.opError(op, nd.InvalidBufferSize, "an empty buffer", "register at least 1 byte")
	case len(buf) > maxRegistration:
		return argument("buf", r.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes, at most %d", len(buf), maxRegistration), "use several regions"))
	case flags&^registerFlags != 0:
		return argument("flags", r.opError(op, nd.InvalidParameter, unknownFlags(flags&^registerFlags), useRegionFlags+"; HugePages and OnNode are for Allocate"))
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "memory region")
	}
	if !r.adapter.provider.waiters.BeginCall() {
		return r.opError(op, nd.InvalidHandle, "the provider is closed", "")
	}
	defer r.adapter.provider.waiters.EndCall()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return r.opError(op, nd.InvalidHandle, "the region is closed", "create another")
	}
	release, err := r.hold(buf, flags)
	if err != nil {
		return err
	}
	prefaulted := nd.RegionFlags(0)
	if flags.Has(nd.Prefault) {
		lacks := linux.Prefault(buf, release != nil || allowsWrites(flags)) // allocated memory can always be written
		if lacks == nil {
			prefaulted = nd.Prefault
		}
		err = r.placed(op, flags, lacks)
	}
	if err == nil {
		if err = r.region.Register(buf, flags&regionFlags, release); err != nil {
			err = r.opError(op, nd.StatusOf(err), "the region is already registered, or set up for fast registration", "deregister it first, or use another region")
		}
	}
	if err != nil {
		if release != nil {
			release()
		}
		return err
	}
	r.placement = prefaulted
	return nil
}

// placed fails with the reason why the memory lacks a part of its placement, if flags require all of it.
func (r *memoryRegion) placed(op string, flags nd.RegionFlags, lacks error) error {
	if lacks == nil || !flags.Has(nd.RequirePlacement) {
		return nil
	}
	return &nd.OpError{Op: op, Object: "memory region", Status: nd.NotSupported, Err: lacks, Next: "leave out RequirePlacement, or change the machine: ndinfo says what it gives"}
}

// Placement returns those of HugePages, Prefault and OnNode that the memory was given.
func (r *memoryRegion) Placement() nd.RegionFlags {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.placement
}

func allowsWrites(flags nd.RegionFlags) bool {
	return flags.LocalWrite() || flags.RemoteWrite() || flags.RemoteAtomic()
}

// hold checks that the process may access buf as flags say. It keeps allocated memory in place until release is called;
// release is nil for other memory.
func (r *memoryRegion) hold(buf []byte, flags nd.RegionFlags) (release func(), err error) {
	const op = "register"
	p, n := r.adapter.provider, uint64(len(buf))
	held, release := memory.Hold(p.member, buf)
	if release != nil {
		return release, nil
	}
	if held > 0 || memory.MeetsArena(buf) {
		return nil, r.opError(op, nd.AccessViolation, fmt.Sprintf("%d of %d bytes at %#x are allocated memory of open regions", held, n, shm.AddressOf(buf)),
			"register a part of MemoryRegion.Bytes while its region is open")
	}
	want := linux.Read
	if allowsWrites(flags) {
		want |= linux.Write
	}
	f, err := linux.CheckAccess(shm.AddressOf(buf), n, want)
	switch {
	case err != nil && linux.Prefault(buf, want&linux.Write != 0) == nil:
		return nil, nil // the kernel has accessed it all
	case err != nil:
		return nil, &nd.OpError{Op: op, Object: "memory region", Status: nd.InsufficientResources, Err: err, Next: "registering this memory needs a mounted /proc and a free descriptor"}
	case f != nil:
		at := f.Start - shm.AddressOf(buf)
		return nil, r.opError(op, nd.AccessViolation, fmt.Sprintf("bytes %d to %d of %d (%#x-%#x) are %s", at, at+f.End-f.Start-1, n, f.Start, f.End, f.Reason),
			"register memory that the process itself can access in this way, or ask for fewer rights")
	}
	return nil, nil
}

const useRegionFlags = "use the nd.RegionFlags constants"

// unknownFlags names bits that are not flags of the call.
func unknownFlags(flags nd.RegionFlags) string { return "unknown flags " + flags.String() }

// Deregister ends the registration. When it returns nil, no transfer uses the memory through
// this region. If ctx ends while a peer is still copying, the tokens are invalid all the same,
// and the drain continues.
func (r *memoryRegion) Deregister(ctx context.Context) error {
	const op = "deregister"
	p := r.adapter.provider
	if !p.waiters.BeginCall() {
		return r.opError(op, nd.InvalidHandle, "the provider is closed", "")
	}
	defer p.waiters.EndCall()
	p.settleDeliveries(r.adapter)
	p.deferred.Run() // it may end the invalidation of a window
	r.mu.Lock()
	if r.closed.Load() {
		r.mu.Unlock()
		return r.opError(op, nd.InvalidHandle, "the region is closed", "")
	}
	if r.maxPages != 0 {
		r.mu.Unlock()
		return r.opError(op, nd.InvalidDeviceState, "the region is set up for fast registration", "use Endpoint.InvalidateRegion")
	}
	drained, err := r.revoke()
	r.mu.Unlock()
	switch {
	case errors.Is(err, nd.DeviceBusy):
		return r.opError(op, nd.DeviceBusy, "a window is bound to the region", "invalidate the window first")
	case err != nil:
		return r.opError(op, nd.StatusOf(err), "the region is not registered", "")
	}
	if err := p.wait(ctx, statuspage.Call{Op: op, Object: "memory region"}, p.deferred.Run, func() bool { return isClosed(drained) }); err != nil {
		return Canceled(ctx, err, op, "memory region")
	}
	return nil
}

// revoke starts a deregistration, or returns the one in progress. The caller holds r.mu.
func (r *memoryRegion) revoke() (drained <-chan struct{}, err error) {
	if r.drained != nil && !isClosed(r.drained) {
		return r.drained, nil
	}
	if err := r.region.Deregister(); err != nil {
		return nil, err
	}
	p, done := r.adapter.provider, make(chan struct{})
	r.drained = done
	p.runOrDefer(func() bool {
		if !r.region.EndInvalidation() {
			return false
		}
		close(done)
		p.waiters.Wake()
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
func (r *memoryRegion) LocalToken() nd.Token { t, _ := r.region.Tokens(); return t }

// RemoteToken returns the token for peers.
func (r *memoryRegion) RemoteToken() nd.Token { _, t := r.region.Tokens(); return t }

// Bytes returns the registered memory. It returns nil for a fast registration of pages that are
// not adjacent, because their adjacent mapping ends with the registration. It also returns nil
// when the provider is closed, because the memory may be another process's then.
func (r *memoryRegion) Bytes() []byte {
	if r.adapter.provider.closeDone.Load() {
		return nil
	}
	b := r.region.Bytes()
	if _, ok := r.adapter.provider.arena.Locate(b); !ok {
		if pages, _ := r.fastLimits(); pages != 0 {
			return nil
		}
	}
	return b
}

// Address returns the address by which peers name the first byte. It is FastRegister's base
// address or this process's virtual address, which peers use only as a number.
func (r *memoryRegion) Address() uint64 { return r.region.Address() }

// Close releases the region. It deregisters a registered region first. While a window is
// bound to the region, that is delayed until the window's invalidation has ended. Memory from Allocate is
// kept while another registration or a mapping covers it. If ctx ends while a peer is still
// copying, the tokens are invalid all the same, the drain continues, and the memory is freed at its end. In a goroutine that panics
// it is postponed, see [nd.Endpoint.Close].
func (r *memoryRegion) Close(ctx context.Context) error {
	const op, object = "close", "memory region"
	if err := r.adapter.provider.postponed(object, func() error { return r.Close(context.Background()) }); err != nil {
		return err
	}
	r.mu.Lock()
	again := r.closed.Swap(true) // under the lock: a call that has found the region open completes first
	r.mu.Unlock()
	p := r.adapter.provider
	if !p.waiters.BeginCall() {
		return nil // the member's departure frees all that it owned
	}
	defer p.waiters.EndCall()
	r.region.Retire(func() { p.deferWork(r.finishClose) })
	p.settleDeliveries(r.adapter)
	p.deferred.Run() // it may end the invalidation of a window
	if !again {
		p.runOrDefer(r.finishClose)
	}
	err := p.wait(ctx, statuspage.Call{Op: op, Object: object}, p.deferred.Run, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.closeDone || r.closeBlocked && !r.adapter.closed.Load() // Close of the adapter has closed the windows
	})
	return drainError(ctx, err, op, object)
}

// finishClose is the deferred work of Close. It ends while a window needs the region, and is
// deferred again when the last of them is gone. So the engine need not poll for that.
func (r *memoryRegion) finishClose() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closeDone {
		return true
	}
	wasHeld := r.closeBlocked
	defer func() {
		if r.closeDone || r.closeBlocked && !wasHeld {
			r.adapter.provider.waiters.Wake() // Close waits for this
		}
	}()
	drained, err := r.revoke()
	if r.closeBlocked = errors.Is(err, nd.DeviceBusy); r.closeBlocked {
		return true // until the window's invalidation has ended
	}
	if err == nil && !isClosed(drained) {
		return false
	}
	if !r.region.EndInvalidation() { // an Invalidate waits for the drain too
		return false
	}
	r.region.Free()
	if r.allocation != nil {
		r.allocation.Close()
	}
	r.closeDone = true
	r.adapter.disown(kindRegion, r) // not before: Close of the adapter waits for the regions in its list
	return true
}

// isOpen reports whether windows may be bound to the region.
func (r *memoryRegion) isOpen() bool { return !r.closed.Load() }

func (r *memoryRegion) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "memory region", Status: s, Detail: detail, Next: next}
}

// memoryWindow gives peers access to a part of a region.
type memoryWindow struct {
	nd.UnsupportedMemoryWindow
	adapter *adapter
	window  *window.Window

	closed    atomic.Bool
	closeDone chan struct{} // closed when Close is complete
}

// RemoteToken returns the token of the latest bind.
func (w *memoryWindow) RemoteToken() nd.Token { return w.window.Descriptor().Token }

// Descriptor returns address, length and token of the latest bind.
func (w *memoryWindow) Descriptor() nd.WindowDescriptor { return w.window.Descriptor() }

// Close releases the window. It invalidates a bound window first. When it returns nil, no
// transfer uses the window. If ctx ends first, the token is invalid all the same, and the drain
// continues. In a goroutine that panics it is postponed, see [nd.Endpoint.Close].
func (w *memoryWindow) Close(ctx context.Context) error {
	const op, object = "close", "memory window"
	if err := w.adapter.provider.postponed(object, func() error { return w.Close(context.Background()) }); err != nil {
		return err
	}
	again := w.closed.Swap(true)
	p := w.adapter.provider
	if !p.waiters.BeginCall() {
		return nil // the member's departure frees all that it owned
	}
	defer p.waiters.EndCall()
	if !again {
		w.startClose()
	}
	err := p.wait(ctx, statuspage.Call{Op: op, Object: object}, p.deferred.Run, func() bool { return isClosed(w.closeDone) })
	if err == nil {
		w.adapter.disown(kindWindow, w)
	}
	return drainError(ctx, err, op, object)
}

// startClose invalidates the window, and frees it when it is drained.
func (w *memoryWindow) startClose() {
	w.window.Retire()
	p := w.adapter.provider
	p.runOrDefer(func() bool {
		if !w.window.EndInvalidation() {
			return false
		}
		w.window.Free()
		close(w.closeDone)
		p.waiters.Wake()
		return true
	})
}

// isOpen reports whether the window may be bound and invalidated.
func (w *memoryWindow) isOpen() bool { return !w.closed.Load() }

// fastLimits returns what InitializeFastRegister has set; 0 pages means nothing.
func (r *memoryRegion) fastLimits() (pages int, remote bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxPages, r.remoteAllowed
}
