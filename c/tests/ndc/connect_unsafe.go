package ndc

/*
#include <stdlib.h>
#include "softnd/softnd.h"
*/
import "C"

import (
	"context"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/softnd/softnd/nd"
)

type connector struct {
	nd.UnsupportedConnector
	adapter *adapter

	mu     sync.Mutex
	c      *C.snd_connector
	closed bool
	used   bool // it holds a request, or has tried to connect

	pending *endpoint // of a Connect that was accepted
}

func (c *connector) handle(op string) (*C.snd_connector, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, refuse(op, nd.InvalidHandle, "the connector is closed")
	}
	return c.c, nil
}

func (c *connector) Bind(addr netip.AddrPort) error {
	const op = "bind"
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	if !addr.Addr().IsUnspecified() && addr.Addr() != c.adapter.provider.addr {
		return refuse(op, nd.InvalidAddress, addr.String())
	}
	return status(op, func() C.snd_status { return C.snd_connector_bind(h, cAddress(addr)) })
}

// blocking runs a call that has effects when it times out: it is cancelled when ctx ends.
func (c *connector) blocking(ctx context.Context, op string, h *C.snd_connector, f func() C.snd_status) error {
	stop := context.AfterFunc(ctx, func() { C.snd_connector_cancel(h) })
	defer stop()
	err := status(op, f)
	if ctx.Err() != nil && nd.StatusOf(err) == nd.Canceled {
		return nd.CanceledError(ctx, op, "connector")
	}
	return err
}

// params makes the parameters in C; free frees them.
func params(p nd.ConnectParams) (c *C.snd_connect_params, free func()) {
	c = (*C.snd_connect_params)(C.calloc(1, C.sizeof_snd_connect_params))
	data := C.CBytes(append(p.PrivateData, 0))
	c.private_data, c.private_data_length = data, C.uint32_t(len(p.PrivateData))
	c.inbound_reads, c.outbound_reads = C.uint32_t(max(p.InboundReadLimit, 0)), C.uint32_t(max(p.OutboundReadLimit, 0))
	return c, func() { C.free(data); C.free(unsafe.Pointer(c)) }
}

func (c *connector) endpoint(op string, ep nd.Endpoint) (*endpoint, error) {
	e, ok := ep.(*endpoint)
	if !ok || e == nil || e.adapter != c.adapter {
		return nil, refuse(op, nd.InvalidParameter, "the endpoint is not of this adapter")
	}
	if e.isClosed() {
		return nil, refuse(op, nd.ConnectionActive, "the endpoint is closed")
	}
	return e, nil
}

func (c *connector) Connect(ctx context.Context, ep nd.Endpoint, addr netip.AddrPort, p nd.ConnectParams) error {
	const op = "connect"
	e, err := c.endpoint(op, ep)
	if err != nil {
		return err
	}
	if addr.Addr().IsUnspecified() || !addr.IsValid() {
		return refuse(op, nd.BadNetworkName, addr.String())
	}
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, "connector")
	}
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	cp, free := params(p)
	defer free()
	at := cAddress(addr)
	if !addr.Addr().Is4() {
		at.host = 1
	}
	c.used = true
	err = c.blocking(ctx, op, h, func() C.snd_status {
		return C.snd_connector_connect(C.sizeof_snd_connect_params, h, e.c, at, cp, C.SND_FOREVER)
	})
	if err == nil {
		c.pending = e
	}
	return err
}

func (c *connector) CompleteConnect(ctx context.Context) error {
	const op = "complete connect"
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, "connector")
	}
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	err = status(op, func() C.snd_status { return C.snd_connector_complete(h) })
	if err == nil && c.pending != nil {
		c.pending.mu.Lock()
		c.pending.connector = c
		c.pending.mu.Unlock()
	}
	return err
}

func (c *connector) Accept(ctx context.Context, ep nd.Endpoint, p nd.ConnectParams) error {
	const op = "accept"
	e, err := c.endpoint(op, ep)
	if err != nil {
		return err
	}
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	cp, free := params(p)
	defer free()
	err = c.blocking(ctx, op, h, func() C.snd_status {
		return C.snd_connector_accept(C.sizeof_snd_connect_params, h, e.c, cp, C.SND_FOREVER)
	})
	if err == nil {
		e.mu.Lock()
		e.connector = c
		e.mu.Unlock()
	}
	return err
}

func (c *connector) Reject(private []byte) error {
	const op = "reject"
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	data := C.CBytes(append(private, 0))
	defer C.free(data)
	return status(op, func() C.snd_status { return C.snd_connector_reject(h, data, C.uint32_t(len(private))) })
}

func (c *connector) ReadLimits() (int, int, error) {
	const op = "get read limits"
	h, err := c.handle(op)
	if err != nil {
		return 0, 0, err
	}
	var in, out C.uint32_t
	err = status(op, func() C.snd_status { return C.snd_connector_read_limits(h, &in, &out) })
	return int(in), int(out), err
}

func (c *connector) GetPrivateData(buf []byte) (int, error) {
	const op = "get private data"
	h, err := c.handle(op)
	if err != nil {
		return 0, err
	}
	var n C.uint32_t
	err = status(op, func() C.snd_status {
		return C.snd_connector_private_data(h, unsafe.Pointer(unsafe.SliceData(buf)), C.uint32_t(len(buf)), &n)
	})
	return int(n), err
}

func (c *connector) LocalAddress() (netip.AddrPort, error) {
	const op = "get local address"
	h, err := c.handle(op)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var a C.snd_address
	if err := status(op, func() C.snd_status { return C.snd_connector_local_address(h, &a) }); err != nil {
		return netip.AddrPort{}, err
	}
	return addressOf(a), nil
}

func (c *connector) PeerAddress() (netip.AddrPort, error) {
	const op = "get peer address"
	h, err := c.handle(op)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var a C.snd_address
	if err := status(op, func() C.snd_status { return C.snd_connector_peer_address(h, &a) }); err != nil {
		return netip.AddrPort{}, err
	}
	return addressOf(a), nil
}

func (c *connector) NotifyDisconnect(ctx context.Context) error {
	const op = "notify disconnect"
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	err = repeat(ctx, op, func(timeout C.int64_t) C.snd_status { return C.snd_connector_wait_disconnect(h, timeout) })
	if nd.StatusOf(err) == nd.InvalidHandle {
		return refuse(op, nd.Canceled, "the connector was closed")
	}
	return err
}

func (c *connector) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	h, err := c.handle(op)
	if err != nil {
		return err
	}
	return c.blocking(ctx, op, h, func() C.snd_status { return C.snd_connector_disconnect(h, C.SND_FOREVER) })
}

func (c *connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return status("close", func() C.snd_status { return C.snd_connector_close(c.c) })
}

type listener struct {
	nd.UnsupportedListener
	adapter *adapter
	turn    chan struct{} // held by the call that asks for a request, so that calls are served in order

	mu     sync.Mutex
	c      *C.snd_listener
	closed bool
	state  int // 0 new, 1 bound, 2 listening
}

func (l *listener) handle(op string) (*C.snd_listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, refuse(op, nd.InvalidHandle, "the listener is closed")
	}
	return l.c, nil
}

func (l *listener) Bind(addr netip.AddrPort) error {
	const op = "bind"
	h, err := l.handle(op)
	if err != nil {
		return err
	}
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()
	if state == 0 && !addr.Addr().IsUnspecified() && addr.Addr() != l.adapter.provider.addr {
		return refuse(op, nd.InvalidAddress, addr.String())
	}
	err = status(op, func() C.snd_status { return C.snd_listener_bind(h, cAddress(addr)) })
	if err == nil {
		l.mu.Lock()
		l.state = 1
		l.mu.Unlock()
	}
	return err
}

func (l *listener) Listen(backlog int) error {
	const op = "listen"
	h, err := l.handle(op)
	if err != nil {
		return refuse(op, nd.InvalidDeviceState, "the listener is closed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == 1 && backlog < 0 {
		return refuse(op, nd.InvalidParameter, "negative backlog")
	}
	err = status(op, func() C.snd_status { return C.snd_listener_listen(h, C.uint32_t(backlog)) })
	if err == nil {
		l.state = 2
	}
	return err
}

func (l *listener) LocalAddress() (netip.AddrPort, error) {
	const op = "get local address"
	h, err := l.handle(op)
	if err != nil {
		return netip.AddrPort{}, refuse(op, nd.InvalidDeviceState, "the listener is closed")
	}
	var a C.snd_address
	if err := status(op, func() C.snd_status { return C.snd_listener_address(h, &a) }); err != nil {
		return netip.AddrPort{}, err
	}
	return addressOf(a), nil
}

func (l *listener) GetConnectionRequest(ctx context.Context, nc nd.Connector) error {
	const op = "get connection request"
	c, ok := nc.(*connector)
	if !ok || c == nil || c.adapter != l.adapter || c.used || c.closed {
		return refuse(op, nd.InvalidParameter, "no new connector of this adapter")
	}
	h, err := l.handle(op)
	l.mu.Lock()
	listening := l.state == 2
	l.mu.Unlock()
	if err != nil || !listening {
		return refuse(op, nd.InvalidDeviceState, "the listener is not listening")
	}
	select {
	case l.turn <- struct{}{}:
	default:
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return nd.CanceledError(ctx, op, "listener")
		}
	}
	defer func() { <-l.turn }()
	var got *C.snd_connector
	err = repeat(ctx, op, func(timeout C.int64_t) C.snd_status { return C.snd_listener_request(h, timeout, &got) })
	if nd.StatusOf(err) == nd.InvalidHandle {
		return refuse(op, nd.Canceled, "the listener was closed")
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used || c.closed {
		C.snd_connector_close(got)
		return refuse(op, nd.InvalidParameter, "the connector was used by another call")
	}
	C.snd_connector_close(c.c)
	c.c, c.used = got, true
	return nil
}

func (l *listener) PauseEvents(pause bool) error {
	const op = "pause events"
	h, err := l.handle(op)
	if err != nil {
		return refuse(op, nd.InvalidDeviceState, "the listener is closed")
	}
	p := C.int(0)
	if pause {
		p = 1
	}
	return status(op, func() C.snd_status { return C.snd_listener_pause(h, p) })
}

func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	return status("close", func() C.snd_status { return C.snd_listener_close(l.c) })
}
