package ndc

/*
#include "softnd/softnd.h"
static snd_status c_register2(snd_adapter *a, uintptr_t buffer, uint64_t n, uint32_t flags, snd_mr **mr) { return snd_mr_register(a, (void *)buffer, n, flags, mr); }
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/softnd/softnd/nd"
)

// region is a memory region. The handle in C exists while it is registered.
type region struct {
	nd.UnsupportedMemoryRegion
	adapter *adapter

	mu            sync.Mutex
	c             *C.snd_mr
	mem           []byte
	local, remote nd.Token
	pin           runtime.Pinner
	closed        bool
	fast          bool // the handle is for fast registration
}

func (a *adapter) CreateMemoryRegion(ctx context.Context) (nd.MemoryRegion, error) {
	if err := a.usable(ctx, "create memory region"); err != nil {
		return nil, err
	}
	return &region{adapter: a}, nil
}

func (a *adapter) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	r := &region{adapter: a}
	if err := a.usable(ctx, "register"); err != nil {
		return nil, err
	}
	if err := r.Register(ctx, buf, flags); err != nil {
		return nil, err
	}
	return r, nil
}

func (a *adapter) Allocate(ctx context.Context, size int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	const op = "allocate"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, refuse(op, nd.InvalidParameter, "negative size")
	}
	r := &region{adapter: a}
	if err := status(op, func() C.snd_status { return C.snd_mr_allocate(a.c, C.uint64_t(size), C.uint32_t(flags), &r.c) }); err != nil {
		return nil, err
	}
	r.mem = unsafe.Slice((*byte)(C.snd_mr_buffer(r.c)), size)
	r.tokens()
	a.allocated.Store(r, nil)
	return r, nil
}

func (r *region) tokens() {
	r.local, r.remote = nd.Token(C.snd_mr_local_token(r.c)), nd.Token(C.snd_mr_remote_token(r.c))
}

func (r *region) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) error {
	const op = "register"
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return refuse(op, nd.InvalidHandle, "the region is closed")
	case r.c != nil:
		return refuse(op, nd.InvalidDeviceState, "the region is registered")
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "")
	}
	if buf != nil {
		r.pin.Pin(unsafe.SliceData(buf))
	}
	at := C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	if err := status(op, func() C.snd_status {
		return C.c_register2(r.adapter.c, at, C.uint64_t(len(buf)), C.uint32_t(flags), &r.c)
	}); err != nil {
		r.pin.Unpin()
		return err
	}
	r.mem = buf
	r.tokens()
	return nil
}

func (r *region) Deregister(ctx context.Context) error {
	const op = "deregister"
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return refuse(op, nd.InvalidHandle, "the region is closed")
	case r.c == nil || r.fast:
		return refuse(op, nd.InvalidDeviceState, "the region is not registered, or for fast registration")
	}
	return r.end(ctx, op)
}

func (r *region) end(ctx context.Context, op string) error {
	err := repeat(ctx, op, func(timeout C.int64_t) C.snd_status { return C.snd_mr_close(r.c, timeout) })
	if err == nil {
		r.adapter.allocated.Delete(r)
		r.c, r.mem = nil, nil
		r.pin.Unpin()
	}
	return err
}

func (r *region) LocalToken() nd.Token  { return r.local }
func (r *region) RemoteToken() nd.Token { return r.remote }
func (r *region) Bytes() []byte         { return r.mem }

func (r *region) Placement() nd.RegionFlags {
	r.mu.Lock()
	defer r.mu.Unlock()
	return nd.RegionFlags(C.snd_mr_placement(r.c))
}

func (r *region) Address() uint64 {
	if r.fast {
		return uint64(C.snd_mr_address(r.c))
	}
	if r.mem == nil {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.mem))))
}

func (r *region) Close(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.c == nil {
		return nil
	}
	if err := r.end(ctx, "close"); nd.StatusOf(err) != nd.DeviceBusy {
		return err
	}
	go func() { // the region is released when its last window is
		for {
			r.mu.Lock()
			if r.c == nil || nd.StatusOf(r.end(context.Background(), "close")) != nd.DeviceBusy {
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
			time.Sleep(firstSlice)
		}
	}()
	return nil
}

// window is a memory window.
type window struct {
	nd.UnsupportedMemoryWindow
	adapter *adapter
	c       *C.snd_window
	mu      sync.Mutex
	latest  nd.WindowDescriptor
	closed  bool
}

func (a *adapter) CreateMemoryWindow(ctx context.Context) (nd.MemoryWindow, error) {
	const op = "create memory window"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	w := &window{adapter: a}
	return w, status(op, func() C.snd_status { return C.snd_window_create(a.c, &w.c) })
}

func (w *window) Descriptor() nd.WindowDescriptor {
	w.mu.Lock()
	defer w.mu.Unlock()
	var d C.snd_window_descriptor
	if !w.closed && C.snd_window_query(w.c, &d) == 0 {
		w.latest = nd.WindowDescriptor{Address: uint64(d.address), Length: uint64(d.length), Token: nd.Token(d.token)}
	}
	return w.latest
}

func (w *window) RemoteToken() nd.Token { return w.Descriptor().Token }

func (w *window) Close(ctx context.Context) error {
	w.Descriptor()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	err := repeat(ctx, "close", func(timeout C.int64_t) C.snd_status { return C.snd_window_close(w.c, timeout) })
	w.closed = err == nil
	return err
}
