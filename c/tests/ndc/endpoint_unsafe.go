package ndc

/*
#include "softnd/softnd.h"
static snd_status e_receive(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n) { return snd_endpoint_receive(e, context, (const snd_sge *)sge, n); }
static snd_status e_send(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint32_t flags) { return snd_endpoint_send(e, context, (const snd_sge *)sge, n, flags); }
static snd_status e_send_invalidate(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint32_t token, uint32_t flags) { return snd_endpoint_send_and_invalidate(e, context, (const snd_sge *)sge, n, token, flags); }
static snd_status e_write(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint64_t at, uint32_t token, uint32_t flags) { return snd_endpoint_write(e, context, (const snd_sge *)sge, n, at, token, flags); }
static snd_status e_read(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint64_t at, uint32_t token, uint32_t flags) { return snd_endpoint_read(e, context, (const snd_sge *)sge, n, at, token, flags); }
static snd_status e_send_immediate(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint32_t immediate, uint32_t flags) { return snd_endpoint_send_immediate(e, context, (const snd_sge *)sge, n, immediate, flags); }
static snd_status e_write_immediate(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint64_t at, uint32_t token, uint32_t immediate, uint32_t flags) { return snd_endpoint_write_immediate(e, context, (const snd_sge *)sge, n, at, token, immediate, flags); }
static snd_status e_add(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint64_t at, uint32_t token, uint64_t add, uint32_t flags) { return snd_endpoint_fetch_and_add(e, context, (const snd_sge *)sge, n, at, token, add, flags); }
static snd_status e_compare(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint64_t at, uint32_t token, uint64_t compare, uint64_t swap, uint32_t flags) { return snd_endpoint_compare_and_swap(e, context, (const snd_sge *)sge, n, at, token, compare, swap, flags); }
static snd_status e_swap(snd_endpoint *e, uint64_t context, uintptr_t sge, uint32_t n, uint64_t at, uint32_t token, uint64_t value, uint32_t flags) { return snd_endpoint_swap(e, context, (const snd_sge *)sge, n, at, token, value, flags); }
static snd_status e_bind(snd_endpoint *e, uint64_t context, snd_mr *mr, snd_window *w, uintptr_t buffer, uint64_t n, uint32_t flags) { return snd_endpoint_bind(e, context, mr, w, (void *)buffer, n, flags); }
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

type endpoint struct {
	nd.UnsupportedEndpoint
	adapter *adapter
	inline  int

	mu        sync.Mutex
	c         *C.snd_endpoint
	closed    bool
	cause     error // after Close
	done      chan struct{}
	connector *connector
}

// call calls f unless the endpoint is closed.
func (e *endpoint) call(op string, f func() C.snd_status) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return refuse(op, nd.ConnectionInvalid, "the endpoint is closed")
	}
	return status(op, f)
}

func (e *endpoint) Send(ctx uint64, sge nd.SGL, flags nd.OpFlags) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("send", func() C.snd_status {
		return C.e_send(e.c, C.uint64_t(ctx), at, n, C.uint32_t(flags))
	})
}

func (e *endpoint) SendAndInvalidate(ctx uint64, sge nd.SGL, token nd.Token, flags nd.OpFlags) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("send and invalidate", func() C.snd_status {
		return C.e_send_invalidate(e.c, C.uint64_t(ctx), at, n, C.uint32_t(token), C.uint32_t(flags))
	})
}

func (e *endpoint) Receive(ctx uint64, sge nd.SGL) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("receive", func() C.snd_status { return C.e_receive(e.c, C.uint64_t(ctx), at, n) })
}

func (e *endpoint) Write(ctx uint64, sge nd.SGL, address uint64, token nd.Token, flags nd.OpFlags) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("write", func() C.snd_status {
		return C.e_write(e.c, C.uint64_t(ctx), at, n, C.uint64_t(address), C.uint32_t(token), C.uint32_t(flags))
	})
}

func (e *endpoint) Read(ctx uint64, sge nd.SGL, address uint64, token nd.Token, flags nd.OpFlags) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("read", func() C.snd_status {
		return C.e_read(e.c, C.uint64_t(ctx), at, n, C.uint64_t(address), C.uint32_t(token), C.uint32_t(flags))
	})
}

func (e *endpoint) SendImmediate(ctx uint64, sge nd.SGL, immediate uint32, flags nd.OpFlags) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("send immediate", func() C.snd_status {
		return C.e_send_immediate(e.c, C.uint64_t(ctx), at, n, C.uint32_t(immediate), C.uint32_t(flags))
	})
}

func (e *endpoint) WriteImmediate(ctx uint64, sge nd.SGL, address uint64, token nd.Token, immediate uint32, flags nd.OpFlags) error {
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return e.call("write immediate", func() C.snd_status {
		return C.e_write_immediate(e.c, C.uint64_t(ctx), at, n, C.uint64_t(address), C.uint32_t(token), C.uint32_t(immediate), C.uint32_t(flags))
	})
}

// atomic calls f, which posts an atomic.
func (e *endpoint) atomic(op string, old nd.SGE, f func(list C.uintptr_t, n C.uint32_t) C.snd_status) error {
	list, at, n := elements(nd.One(old))
	defer runtime.KeepAlive(list)
	return e.call(op, func() C.snd_status { return f(at, n) })
}

func (e *endpoint) FetchAndAdd(ctx uint64, old nd.SGE, address uint64, token nd.Token, add uint64, flags nd.OpFlags) error {
	return e.atomic("fetch and add", old, func(list C.uintptr_t, n C.uint32_t) C.snd_status {
		return C.e_add(e.c, C.uint64_t(ctx), list, n, C.uint64_t(address), C.uint32_t(token), C.uint64_t(add), C.uint32_t(flags))
	})
}

func (e *endpoint) CompareAndSwap(ctx uint64, old nd.SGE, address uint64, token nd.Token, compare, swap uint64, flags nd.OpFlags) error {
	return e.atomic("compare and swap", old, func(list C.uintptr_t, n C.uint32_t) C.snd_status {
		return C.e_compare(e.c, C.uint64_t(ctx), list, n, C.uint64_t(address), C.uint32_t(token), C.uint64_t(compare), C.uint64_t(swap), C.uint32_t(flags))
	})
}

func (e *endpoint) Swap(ctx uint64, old nd.SGE, address uint64, token nd.Token, value uint64, flags nd.OpFlags) error {
	return e.atomic("swap", old, func(list C.uintptr_t, n C.uint32_t) C.snd_status {
		return C.e_swap(e.c, C.uint64_t(ctx), list, n, C.uint64_t(address), C.uint32_t(token), C.uint64_t(value), C.uint32_t(flags))
	})
}

func (e *endpoint) Bind(ctx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	const op = "bind"
	r, ok := mr.(*region)
	if !ok || r == nil || r.adapter != e.adapter {
		return refuse(op, nd.InvalidParameter, "the region is not of this adapter")
	}
	w, ok := mw.(*window)
	if !ok || w == nil || w.adapter != e.adapter {
		return refuse(op, nd.InvalidParameter, "the window is not of this adapter")
	}
	if r.closed || w.closed {
		return refuse(op, nd.InvalidHandle, "the region or the window is closed")
	}
	if r.c == nil && flags&^nd.RequestBind.AllowedFlags() == 0 {
		return refuse(op, nd.AccessViolation, "the region is not registered")
	}
	at := C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	return e.call(op, func() C.snd_status {
		return C.e_bind(e.c, C.uint64_t(ctx), r.c, w.c, at, C.uint64_t(len(buf)), C.uint32_t(flags))
	})
}

func (e *endpoint) Invalidate(ctx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	const op = "invalidate"
	w, ok := mw.(*window)
	if !ok || w == nil || w.adapter != e.adapter {
		return refuse(op, nd.InvalidParameter, "the window is not of this adapter")
	}
	if w.closed {
		return refuse(op, nd.InvalidHandle, "the window is closed")
	}
	return e.call(op, func() C.snd_status {
		return C.snd_endpoint_invalidate(e.c, C.uint64_t(ctx), w.c, C.uint32_t(flags))
	})
}

func (e *endpoint) WaitSlot(ctx context.Context) error {
	const op = "wait slot"
	if e.isClosed() {
		return refuse(op, nd.ConnectionInvalid, "the endpoint is closed")
	}
	return repeat(ctx, op, func(timeout C.int64_t) C.snd_status { return C.snd_endpoint_wait_slot(e.c, timeout) })
}

func (e *endpoint) Flush(ctx context.Context) error {
	if e.isClosed() {
		return nil
	}
	return repeat(ctx, "flush", func(timeout C.int64_t) C.snd_status { return C.snd_endpoint_flush(e.c, timeout) })
}

func (e *endpoint) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *endpoint) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err()
}

func (e *endpoint) err() error {
	if e.closed {
		return e.cause
	}
	return status("endpoint", func() C.snd_status { return C.snd_endpoint_error(e.c) })
}

func (e *endpoint) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		go func() {
			for e.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			close(e.done)
		}()
	}
	return e.done
}

func (e *endpoint) Connector() nd.Connector {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.connector == nil {
		return nil
	}
	return e.connector
}

func (e *endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.cause = e.err()
	if e.cause == nil {
		e.cause = refuse("close", nd.Canceled, "the endpoint was closed")
	}
	e.closed = true
	return status("close", func() C.snd_status { return C.snd_endpoint_close(e.c) })
}
