package tiny

import (
	"context"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
)

// listener receives the connection requests for one address.
type listener struct {
	nd.UnsupportedListener
	adapter                   *adapter
	local                     netip.AddrPort
	listening, paused, closed bool
	backlog                   int
	requests                  []*connector // of active sides
	calls                     line         // of GetConnectionRequest
}

func (l *listener) Bind(addr netip.AddrPort) error {
	const op = "bind"
	defer l.adapter.lock()()
	switch {
	case l.closed:
		return refuse(op, nd.InvalidHandle, "the listener is closed")
	case l.local.IsValid():
		return refuse(op, nd.AddressAlreadyAssociated, l.local.String())
	case addr.Addr().Unmap() != l.adapter.addr && !addr.Addr().IsUnspecified():
		return refuse(op, nd.InvalidAddress, addr.String())
	}
	local, status := l.adapter.take(netip.AddrPortFrom(l.adapter.addr, addr.Port()), l)
	if status == nd.Success {
		l.local = local
	}
	return refuse(op, status, addr.String())
}

func (l *listener) Listen(backlog int) error {
	const op = "listen"
	defer l.adapter.lock()()
	switch {
	case l.closed:
		return refuse(op, nd.InvalidHandle, "the listener is closed")
	case !l.local.IsValid() || l.listening:
		return refuse(op, nd.InvalidDeviceState, "not bound, or listening already")
	case backlog < 0:
		return refuse(op, nd.InvalidParameter, "negative backlog")
	}
	l.listening, l.backlog = true, backlog
	return nil
}

func (l *listener) LocalAddress() (netip.AddrPort, error) {
	const op = "local address"
	defer l.adapter.lock()()
	switch {
	case l.closed:
		return netip.AddrPort{}, refuse(op, nd.InvalidHandle, "the listener is closed")
	case !l.listening:
		return netip.AddrPort{}, refuse(op, nd.InvalidDeviceState, "not listening")
	}
	return l.local, nil
}

// offer queues a request. It returns false if the listener refuses the request.
func (l *listener) offer(c *connector) bool {
	waited := !l.paused && len(l.calls) > len(l.requests)
	if !l.listening || !waited && l.backlog > 0 && len(l.requests) >= l.backlog {
		return false
	}
	l.requests = append(l.requests, c)
	c.listener = l
	return true
}

func (l *listener) drop(c *connector) {
	l.requests = slices.DeleteFunc(l.requests, func(r *connector) bool { return r == c })
	c.listener = nil
}

func (l *listener) GetConnectionRequest(ctx context.Context, given nd.Connector) error {
	const op = "get connection request"
	defer l.adapter.lock()()
	c, ok := given.(*connector)
	switch {
	case l.closed:
		return refuse(op, nd.InvalidHandle, "the listener is closed")
	case !l.listening:
		return refuse(op, nd.InvalidDeviceState, "not listening")
	case !ok || c.adapter != l.adapter || c.phase != fresh || c.known || c.closed:
		return refuse(op, nd.InvalidParameter, "the connector is not fresh")
	}
	c.phase = waiting
	t := l.calls.join()
	defer l.calls.leave(t)
	served := l.adapter.wait(ctx, func() bool {
		return l.calls[0] == t && (l.closed || len(l.requests) > 0 && !l.paused) || c.closed
	})
	switch {
	case !served:
		c.phase = fresh
		return nd.CanceledError(ctx, op, "listener")
	case l.closed, c.closed:
		c.phase = fresh
		return refuse(op, nd.Canceled, "the listener or the connector was closed")
	}
	a := l.requests[0]
	l.drop(a)
	c.phase, c.peer, a.peer = asked, a, c
	c.local, c.remote = l.local, a.local
	c.data, c.known = a.data, true
	c.in, c.out = a.out, a.in // each side's inbound limit is the other's outbound one
	return nil
}

func (l *listener) PauseEvents(pause bool) error {
	const op = "pause events"
	defer l.adapter.lock()()
	switch {
	case l.closed:
		return refuse(op, nd.InvalidHandle, "the listener is closed")
	case !l.listening:
		return refuse(op, nd.InvalidDeviceState, "not listening")
	}
	l.paused = pause
	return nil
}

// Close refuses the queued requests.
func (l *listener) Close() error {
	defer l.adapter.lock()()
	if l.closed {
		return nil
	}
	l.closed, l.listening = true, false
	for _, c := range l.requests {
		c.refused(nil)
	}
	l.requests = nil
	l.adapter.freeAddress(l.local, l)
	return nil
}
