package tiny

import (
	"context"
	"reflect"

	"github.com/softnd/softnd/nd"
)

// region is registered memory. Peers use its address in this process.
type region struct {
	nd.UnsupportedMemoryRegion
	adapter       *adapter
	mem           []byte // nil when not registered
	flags         nd.RegionFlags
	local, remote nd.Token
	windows       int // bound to it
	closed        bool
}

// access is the memory that a remote token refers to, and the permissions.
type access struct {
	region      *region
	window      *window   // nil for a region's own token
	endpoint    *endpoint // that the window was bound on
	only        bool      // only the peer of that endpoint may use the token
	base        uint64
	mem         []byte
	read, write bool
}

func address(b []byte) uint64 { return uint64(reflect.ValueOf(b).Pointer()) }

// within reports whether the n bytes at addr are in mem, and returns their offset.
func within(mem []byte, base, addr uint64, n int) (offset int, ok bool) {
	if addr < base || n > len(mem) || addr-base > uint64(len(mem)-n) {
		return 0, false
	}
	return int(addr - base), true
}

func (a *adapter) CreateMemoryRegion(ctx context.Context) (nd.MemoryRegion, error) {
	return &region{adapter: a}, a.usable("create memory region")
}

func (a *adapter) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	r := &region{adapter: a}
	if err := a.usable("register"); err != nil {
		return nil, err
	}
	if err := r.Register(ctx, buf, flags); err != nil {
		return nil, err
	}
	return r, nil
}

func (a *adapter) Allocate(ctx context.Context, size int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	const op = "allocate"
	switch {
	case size == 0:
		return nil, refuse(op, nd.InvalidBufferSize, "no bytes")
	case size < 0 || size > maxBytes:
		return nil, refuse(op, nd.InvalidParameter, "size")
	}
	return a.Register(ctx, make([]byte, size), flags)
}

func (r *region) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) error {
	const op = "register"
	defer r.adapter.lock()()
	switch {
	case r.closed:
		return refuse(op, nd.InvalidHandle, "the region is closed")
	case buf == nil || len(buf) > maxBytes:
		return refuse(op, nd.InvalidParameter, "buffer")
	case len(buf) == 0:
		return refuse(op, nd.InvalidBufferSize, "no bytes")
	case flags&^nd.AllRegionFlags != 0:
		return refuse(op, nd.InvalidParameter, flags.String())
	case r.mem != nil:
		return refuse(op, nd.InvalidDeviceState, "registered already")
	}
	r.mem, r.flags = buf, flags
	r.local, r.remote = r.adapter.token(), r.adapter.token()
	r.adapter.local[r.local] = r
	r.adapter.remote[r.remote] = &access{
		region: r, base: address(buf), mem: buf, read: flags.RemoteRead(), write: flags.RemoteWrite(),
	}
	return nil
}

func (r *region) Deregister(ctx context.Context) error {
	const op = "deregister"
	defer r.adapter.lock()()
	switch {
	case r.closed:
		return refuse(op, nd.InvalidHandle, "the region is closed")
	case r.mem == nil:
		return refuse(op, nd.InvalidDeviceState, "not registered")
	case r.windows > 0:
		return refuse(op, nd.DeviceBusy, "a window is bound to it")
	}
	r.end()
	return nil
}

// end invalidates the tokens of the region. Windows bound to it have an access of their own.
func (r *region) end() {
	delete(r.adapter.local, r.local)
	delete(r.adapter.remote, r.remote)
	r.mem = nil
}

func (r *region) LocalToken() nd.Token {
	defer r.adapter.lock()()
	return r.local
}

func (r *region) RemoteToken() nd.Token {
	defer r.adapter.lock()()
	return r.remote
}

func (r *region) Bytes() []byte {
	defer r.adapter.lock()()
	return r.mem
}

func (r *region) Address() uint64 {
	defer r.adapter.lock()()
	if r.mem == nil {
		return 0
	}
	return address(r.mem)
}

func (r *region) Close(context.Context) error { // it never waits
	defer r.adapter.lock()()
	r.closed = true
	r.end()
	return nil
}

// window gives access to a part of a region while its access is not nil.
type window struct {
	nd.UnsupportedMemoryWindow
	adapter *adapter
	access  *access             // nil if the window is not bound
	last    nd.WindowDescriptor // of the last Bind
	closed  bool
}

func (a *adapter) CreateMemoryWindow(ctx context.Context) (nd.MemoryWindow, error) {
	return &window{adapter: a}, a.usable("create memory window")
}

// bind makes a token valid.
func (w *window) bind(g *access, token nd.Token) {
	w.access = g
	g.region.windows++
	g.endpoint.windows[token] = w
	w.adapter.remote[token] = g
}

// end invalidates the window.
func (w *window) end() {
	if w.access == nil {
		return
	}
	w.access.region.windows--
	for token, bound := range w.access.endpoint.windows {
		if bound == w {
			delete(w.access.endpoint.windows, token)
			if !w.adapter.keepWindows {
				delete(w.adapter.remote, token)
			}
		}
	}
	w.access = nil
}

func (w *window) RemoteToken() nd.Token { return w.Descriptor().Token }

func (w *window) Descriptor() nd.WindowDescriptor {
	defer w.adapter.lock()()
	return w.last
}

func (w *window) Close(context.Context) error { // it never waits
	defer w.adapter.lock()()
	w.closed = true
	w.end()
	return nil
}
