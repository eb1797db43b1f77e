package endpoint

// TWIN c/src/endpoint/cm_listener.c.

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// maxBacklog limits the requests that wait at any listener: each takes private memory, and peers make them.
const maxBacklog = 4096

// listener accepts connection requests for one port. Safe for concurrent use.
type listener struct {
	nd.UnsupportedListener
	adapter *adapter

	mu      sync.Mutex
	addr    netip.AddrPort // none if it gets the requests for addresses of other hosts
	state   listenerState
	paused  bool
	backlog int
	refused int            // requests that came to a full queue since the last one that found room
	queue   []*connection  // requests that no call has taken
	calls   []*requestCall // pending calls of GetConnectionRequest, oldest first
}

type listenerState int

const (
	listenerNew listenerState = iota
	listenerBound
	listening
	listenerClosed
)

const listenerWasClosed = "the listener was closed"

// requestCall is one call of GetConnectionRequest.
type requestCall struct {
	conn   *connection
	closed bool
}

// Bind gives the listener its local address. Port 0 selects a free port.
func (l *listener) Bind(addr netip.AddrPort) error {
	const op = "bind"
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case listenerBound, listening:
		return l.opError(op, nd.AddressAlreadyAssociated, "the listener is already bound to "+l.addr.String(), "create another listener")
	case listenerClosed:
		return l.opError(op, nd.InvalidHandle, "the listener is closed", "create another")
	}
	bound, err := l.adapter.bindLocal(op, "listener", addr)
	if err != nil {
		return err
	}
	l.addr, l.state = bound, listenerBound
	return nil
}

// Listen starts to accept requests. backlog is how many requests may wait for a
// GetConnectionRequest, maxBacklog if it is 0 or more than that.
func (l *listener) Listen(backlog int) error {
	if err := l.adapter.ask(context.Background(), mode.Call{Op: "listen", Object: "listener", Peer: shm.NoRank}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listenerBound {
		return l.opError("listen", nd.InvalidDeviceState, "the listener is not bound, or is listening already", "call Bind, then Listen, once")
	}
	if backlog < 0 {
		return argument("backlog", l.opError("listen", nd.InvalidParameter, "negative backlog", fmt.Sprintf("pass 0 for the most, which is %d", maxBacklog)))
	}
	if backlog == 0 || backlog > maxBacklog {
		backlog = maxBacklog
	}
	l.backlog, l.state = backlog, listening
	l.adapter.provider.ports.SetListener(l.addr.Port(), l)
	return nil
}

// LocalAddress returns the address that peers connect to.
func (l *listener) LocalAddress() (netip.AddrPort, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening {
		return netip.AddrPort{}, l.opError("get local address", nd.InvalidDeviceState, "the listener is not listening", "call Listen first")
	}
	return l.addr, nil
}

// GetConnectionRequest blocks until there is a request and puts it into c, a new connector.
// Concurrent calls are served in the order in which they were made.
func (l *listener) GetConnectionRequest(ctx context.Context, c nd.Connector) error {
	const op = "get connection request"
	connector, ok := c.(*connector)
	if !ok || connector == nil || connector.adapter != l.adapter {
		return argument("c", l.opError(op, nd.InvalidParameter, "the connector is not of this adapter", "create it with the listener's adapter"))
	}
	if err := connector.checkNew(op); err != nil {
		return err
	}
	t := new(requestCall)
	l.mu.Lock()
	switch l.state {
	case listening:
	case listenerClosed:
		l.mu.Unlock()
		return l.opError(op, nd.Canceled, listenerWasClosed, "")
	default:
		l.mu.Unlock()
		return l.opError(op, nd.InvalidDeviceState, "the listener is not listening", "call Listen first")
	}
	l.calls = append(l.calls, t)
	l.matchRequests()
	l.mu.Unlock()
	err := l.adapter.provider.wait(ctx, statuspage.Call{Op: op, Object: "listener"}, nil, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.matchRequests()
		return t.conn != nil || t.closed
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.conn != nil:
		return connector.takeRequest(t.conn)
	case t.closed:
		return l.opError(op, nd.Canceled, listenerWasClosed, "")
	}
	l.calls = *without(&l.calls, t)
	if err != nil {
		return Canceled(ctx, err, op, "listener")
	}
	return nil
}

// matchRequests gives queued requests to pending calls.
func (l *listener) matchRequests() {
	for len(l.calls) > 0 {
		c := l.nextRequest()
		if c == nil {
			return
		}
		l.calls[0].conn = c
		l.calls = slices.Delete(l.calls, 0, 1)
	}
}

// nextRequest takes the oldest request whose other side waits for an answer. It returns nil if there is none.
func (l *listener) nextRequest() *connection {
	for len(l.queue) > 0 && !l.paused {
		c := l.queue[0]
		l.queue[0] = nil // the array must not keep the connection
		l.queue = l.queue[1:]
		if !c.record.IsPeerGone() && c.state() == cm.ConnRequested {
			return c
		}
		c.detach() // the other side has withdrawn the request or is gone
	}
	return nil
}

// enqueue adds a request. It returns false if the listener is not listening or its backlog is
// full.
func (l *listener) enqueue(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening {
		return false
	}
	search := len(l.queue) == cap(l.queue) // not on each call: the queue may be long
	if l.isFull() {
		search = l.refused%l.backlog == 0
		l.refused++
	}
	if search {
		l.dropAbandoned()
	}
	if l.isFull() {
		return false
	}
	l.refused = 0 // the next request that finds the queue full looks for abandoned ones
	l.queue = append(l.queue, c)
	l.matchRequests()
	return true
}

func (l *listener) isFull() bool {
	return len(l.queue) >= l.backlog
}

// dropAbandoned removes requests whose other side has withdrawn them or is gone.
func (l *listener) dropAbandoned() {
	l.queue = slices.DeleteFunc(l.queue, func(c *connection) bool {
		over := c.record.IsPeerGone() || c.state() != cm.ConnRequested
		if over {
			c.detach()
		}
		return over
	})
}

// PauseEvents holds requests back, or delivers them again.
func (l *listener) PauseEvents(pause bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening {
		return l.opError("pause events", nd.InvalidDeviceState, "the listener is not listening", "call Listen first")
	}
	l.paused = pause
	l.matchRequests()
	l.adapter.provider.waiters.Wake()
	return nil
}

// Close refuses queued and new requests, and ends pending calls. Accepted connections stay
// connected. In a goroutine that panics it is postponed, see [nd.Endpoint.Close].
func (l *listener) Close() error {
	if err := l.adapter.provider.postponed("listener", l.Close); err != nil {
		return err
	}
	l.close()
	return nil
}

func (l *listener) close() {
	l.adapter.disown(kindListener, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state != listenerBound && l.state != listening:
	case l.addr.IsValid():
		l.adapter.provider.ports.Release(l.addr.Port())
	default:
		l.adapter.provider.ports.SetOtherHosts(nil)
	}
	l.state = listenerClosed
	for _, c := range l.queue {
		c.refuse()
	}
	for _, t := range l.calls {
		t.closed = true
	}
	l.queue, l.calls = nil, nil
	l.adapter.provider.waiters.Wake()
}

func (l *listener) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "listener", Status: s, Detail: detail, Next: next}
}
