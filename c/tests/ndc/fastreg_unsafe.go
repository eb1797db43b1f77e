package ndc

/*
#include <stdlib.h>
#include "softnd/softnd.h"
static snd_status f_map(snd_mr *mr, uintptr_t buffer, uint64_t n, snd_mapping **mapping) { return snd_mapping_create(mr, (void *)buffer, n, mapping); }
*/
import "C"

import (
	"context"
	"sync"
	"unsafe"

	"github.com/softnd/softnd/nd"
)

// InitializeFastRegister makes the handle in C. Later calls only change the limits: C cannot change those of a handle.
func (r *region) InitializeFastRegister(ctx context.Context, pages int, remote bool) error {
	const op = "initialize fast register"
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return refuse(op, nd.InvalidHandle, "the region is closed")
	case pages < 1:
		return refuse(op, nd.InvalidParameter, "no pages")
	case r.c != nil:
		return refuse(op, nd.InvalidDeviceState, "the region is registered, or set up already")
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "")
	}
	allow := C.int(0)
	if remote {
		allow = 1
	}
	err := status(op, func() C.snd_status { return C.snd_mr_create_fast(r.adapter.c, C.uint32_t(pages), allow, &r.c) })
	if nd.StatusOf(err) == nd.InvalidParameter {
		return refuse(op, nd.ImplementationLimit, err.Error())
	}
	r.fast = err == nil
	return err
}

func (e *endpoint) FastRegister(ctx uint64, f nd.FastRegistration, flags nd.OpFlags) error {
	const op = "fast register"
	r, ok := f.Region.(*region)
	if !ok || r == nil || r.adapter != e.adapter || !r.fast {
		return refuse(op, nd.InvalidParameter, "the region is not for fast registration with this adapter")
	}
	if r.closed {
		return refuse(op, nd.InvalidHandle, "the region is closed")
	}
	list := (*C.uint64_t)(C.calloc(C.size_t(len(f.Pages)+1), 8))
	defer C.free(unsafe.Pointer(list))
	for i, page := range f.Pages {
		unsafe.Slice(list, len(f.Pages))[i] = C.uint64_t(page)
	}
	p := (*C.snd_fast_registration)(C.calloc(1, C.sizeof_snd_fast_registration))
	defer C.free(unsafe.Pointer(p))
	*p = C.snd_fast_registration{pages: list, page_count: C.uint32_t(len(f.Pages)), offset: C.uint32_t(f.Offset), length: C.uint64_t(f.Length),
		address: C.uint64_t(f.BaseAddress), rights: C.uint32_t(f.Rights)}
	err := e.call(op, func() C.snd_status {
		return C.snd_endpoint_fast_register(e.c, C.uint64_t(ctx), r.c, p, C.uint32_t(flags))
	})
	if err == nil {
		r.mu.Lock()
		r.tokens()
		r.mu.Unlock()
	}
	return err
}

func (e *endpoint) InvalidateRegion(ctx uint64, mr nd.MemoryRegion, flags nd.OpFlags) error {
	const op = "invalidate region"
	r, ok := mr.(*region)
	if !ok || r == nil || r.adapter != e.adapter {
		return refuse(op, nd.InvalidParameter, "the region is not of this adapter")
	}
	if r.closed || r.c == nil {
		return refuse(op, nd.InvalidDeviceRequest, "the region is not for fast registration")
	}
	return e.call(op, func() C.snd_status {
		return C.snd_endpoint_invalidate_mr(e.c, C.uint64_t(ctx), r.c, C.uint32_t(flags))
	})
}

type mapping struct {
	nd.UnsupportedLogicalMapping
	c      *C.snd_mapping
	pages  []nd.LogicalPage
	offset int
	mu     sync.Mutex
	closed bool
}

func (a *adapter) BuildLogicalAddressMapping(ctx context.Context, buf []byte) (nd.LogicalMapping, error) {
	const op = "build logical address mapping"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	at := C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	m, err := new(mapping), refuse(op, nd.InvalidParameter, "no region of Allocate contains the buffer")
	a.allocated.Range(func(key, _ any) bool {
		r := key.(*region)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.c != nil {
			err = status(op, func() C.snd_status { return C.f_map(r.c, at, C.uint64_t(len(buf)), &m.c) })
		}
		return err != nil
	})
	if err != nil {
		return nil, err
	}
	m.pages = make([]nd.LogicalPage, C.snd_mapping_pages(m.c, nil, 0))
	C.snd_mapping_pages(m.c, (*C.uint64_t)(unsafe.Pointer(&m.pages[0])), C.uint32_t(len(m.pages)))
	m.offset = int(C.snd_mapping_offset(m.c))
	return m, nil
}

func (m *mapping) Pages() []nd.LogicalPage { return m.pages }
func (m *mapping) PageSize() int           { return C.SND_PAGE_SIZE }
func (m *mapping) Offset() int             { return m.offset }

func (m *mapping) Close(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	err := repeat(ctx, "close", func(timeout C.int64_t) C.snd_status { return C.snd_mapping_close(m.c, timeout) })
	m.closed = err == nil
	return err
}

func (a *adapter) PrivilegedToken() (nd.Token, error) {
	var token C.uint32_t
	err := status("privileged token", func() C.snd_status { return C.snd_adapter_privileged_token(a.c, &token) })
	return nd.Token(token), err
}
