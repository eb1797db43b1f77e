package endpoint

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Listener takes connection requests for one port. Safe for concurrent use.
type Listener struct {
	adapter *Adapter

	mu      sync.Mutex
	addr    netip.AddrPort
	state   listenerState
	paused  bool
	backlog int           // 0 = no limit
	queue   []*connection // requests that nobody has taken
	takers  []*taker      // calls of GetConnectionRequest, oldest first
}

type listenerState int

const (
	listenerNew listenerState = iota
	listenerBound
	listening
	listenerClosed
)

// taker is one call of GetConnectionRequest.
type taker struct {
	conn   *connection
	closed bool
}

// Bind gives the listener its local address. Port 0 chooses a free one.
func (l *Listener) Bind(addr netip.AddrPort) error {
	const op = "bind"
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case listenerBound, listening:
		return l.fail(op, nd.AddressAlreadyAssociated, "it is bound to "+l.addr.String(), "create another listener")
	case listenerClosed:
		return l.fail(op, nd.InvalidHandle, "the listener is closed", "create another")
	}
	bound, err := l.adapter.bindLocal(op, "listener", addr)
	if err != nil {
		return err
	}
	l.addr, l.state = bound, listenerBound
	return nil
}

// Listen starts taking requests. backlog is how many may wait for a
// GetConnectionRequest; 0 = any number.
func (l *Listener) Listen(backlog int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listenerBound {
		return l.fail("listen", nd.InvalidDeviceState, "the listener is not bound, or is listening already", "call Bind, then Listen, once")
	}
	if backlog < 0 {
		return l.fail("listen", nd.InvalidParameter1, "negative backlog", "pass 0 for no limit")
	}
	l.backlog, l.state = backlog, listening
	l.adapter.provider.ports.listen(l.addr.Port(), l)
	return nil
}

// LocalAddress returns the address that peers connect to.
func (l *Listener) LocalAddress() (netip.AddrPort, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening {
		return netip.AddrPort{}, l.fail("get local address", nd.InvalidDeviceState, "the listener is not listening", "call Listen first")
	}
	return l.addr, nil
}

// GetConnectionRequest waits for a request and puts it into c, a fresh
// connector. Concurrent calls are served in the order in which they were made.
func (l *Listener) GetConnectionRequest(ctx context.Context, c nd.Connector) error {
	const op = "get connection request"
	connector, ok := c.(*Connector)
	if !ok || connector == nil || connector.adapter != l.adapter {
		return l.fail(op, nd.InvalidParameter1, "the connector is not of this adapter", "create it with the listener's adapter")
	}
	if !connector.isFresh() {
		return l.fail(op, nd.InvalidParameter1, "the connector is in use", "pass a fresh connector")
	}
	t := new(taker)
	l.mu.Lock()
	if l.state != listening {
		l.mu.Unlock()
		return l.fail(op, nd.InvalidDeviceState, "the listener is not listening", "call Listen first")
	}
	l.takers = append(l.takers, t)
	l.match()
	l.mu.Unlock()
	err := l.adapter.provider.wait(ctx, testimony.Call{Op: op, Object: "listener"}, nil, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.match()
		return t.conn != nil || t.closed
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.conn != nil:
		return connector.take(t.conn, l.addr)
	case t.closed:
		return l.fail(op, nd.Canceled, "the listener was closed", "")
	}
	for i, other := range l.takers {
		if other == t {
			l.takers = append(l.takers[:i], l.takers[i+1:]...)
			break
		}
	}
	if err != nil {
		return canceled(ctx, err, op, "listener")
	}
	return nil
}

// match gives waiting requests to waiting calls.
func (l *Listener) match() {
	for len(l.takers) > 0 && len(l.queue) > 0 && !l.paused {
		c := l.queue[0]
		l.queue = l.queue[1:]
		if c.gone() || c.state() != connRequested {
			c.detach() // the other side gave up before anybody looked
			continue
		}
		l.takers[0].conn = c
		l.takers = l.takers[1:]
	}
}

// offer takes a request that has arrived; false means that there is no room.
func (l *Listener) offer(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening {
		return false
	}
	if l.full() || len(l.queue) == cap(l.queue) { // not each time: there may be many
		l.forget()
	}
	if l.full() {
		return false
	}
	l.queue = append(l.queue, c)
	l.match()
	return true
}

func (l *Listener) full() bool {
	return l.backlog > 0 && len(l.queue) >= l.backlog
}

// forget drops the requests whose other side has given up.
func (l *Listener) forget() {
	l.queue = slices.DeleteFunc(l.queue, func(c *connection) bool {
		over := c.gone() || c.state() != connRequested
		if over {
			c.detach()
		}
		return over
	})
}

// PauseEvents holds requests back, or lets them through again.
func (l *Listener) PauseEvents(pause bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening {
		return l.fail("pause events", nd.InvalidDeviceState, "the listener is not listening", "call Listen first")
	}
	l.paused = pause
	l.match()
	l.adapter.provider.sleep.wake()
	return nil
}

// Close refuses what waits and what comes, and ends pending calls. Accepted
// connections live on. In a goroutine that panics it is postponed, see [Endpoint.Close].
func (l *Listener) Close() error {
	if err := l.adapter.provider.postponed("listener", l.Close); err != nil {
		return err
	}
	l.close()
	return nil
}

func (l *Listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == listenerBound || l.state == listening {
		l.adapter.provider.ports.giveBack(l.addr.Port())
	}
	l.state = listenerClosed
	for _, c := range l.queue {
		c.refuse()
	}
	for _, t := range l.takers {
		t.closed = true
	}
	l.queue, l.takers = nil, nil
	l.adapter.provider.sleep.wake()
}

func (l *Listener) fail(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "listener", Status: s, Detail: detail, Next: next}
}

// collectMail takes the connection requests that peers have sent.
func (p *Provider) collectMail() bool {
	if !p.mail.TryLock() {
		return false
	}
	defer p.mail.Unlock()
	return p.sortMail()
}

// sortMail handles all mail. The caller holds p.mail.
func (p *Provider) sortMail() bool {
	records := make(map[shm.Offset]*record)
	list, _ := p.member.Collect(func(off shm.Offset) (*atomic.Uint64, error) { // what a damaged list still held is served
		r, err := shm.At[record](p.arena, off)
		if err != nil {
			return nil, err
		}
		if records[off] != nil {
			return nil, fmt.Errorf("mail that leads back to offset %#x: %w", uint64(off), shm.ErrDamaged)
		}
		records[off] = r
		return &r.link, nil
	})
	for _, off := range list {
		p.request(records[off], off)
	}
	return len(list) > 0
}

// recordName names the record of a connection that a peer has asked for.
type recordName struct {
	from shm.MemberID
	at   shm.Offset
}

// request handles one connection request, all of which comes from a peer.
func (p *Provider) request(r *record, off shm.Offset) {
	peer, err := p.arena.Peer(shm.MemberID(r.member[active]))
	if err != nil || peer.Gone() || !peer.Owns(off, recordSize) || shm.MemberID(r.member[passive]) != p.member.ID() {
		return // no sound peer sends that, or there is nobody to answer
	}
	if p.knows(recordName{peer.ID(), off}) {
		return // sent twice, which no sound peer does
	}
	c := &connection{provider: p, record: r, offset: off, side: passive, peer: peer}
	p.track(c)
	l := p.ports.listener(uint16(r.port[passive]))
	if l == nil || !l.offer(c) {
		c.refuse()
	}
	p.sleep.wake()
}

// knows reports whether a peer's record is being handled already.
func (p *Provider) knows(r recordName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.records[r]
	return known
}

// refuse answers a request with no.
func (c *connection) refuse() {
	c.move(connRefused, connRequested)
	c.detach()
}
