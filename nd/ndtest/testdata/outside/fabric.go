// Package tiny implements the NetworkDirect model in a few hundred lines. All adapters are in this
// process. One lock protects them, and a request runs while it is posted. It is not fast. It shows
// that the conformance suite needs only package nd, and the least that a provider must implement.
//
// Optional parts are absent: shared receive queues, fast registration, interrupt moderation and event
// descriptors.
package tiny

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/softnd/softnd/nd"
)

// Fabric connects the adapters of all providers that were opened on it.
type Fabric struct {
	// ReceiveTimeout limits how long a Send waits for a Receive, DisconnectTimeout how long a
	// Disconnect waits for that of the peer. Set them before Open; 0 means 2 s.
	ReceiveTimeout, DisconnectTimeout time.Duration

	mu        sync.Mutex
	changed   sync.Cond              // signalled when a field below or any object changes
	ports     map[netip.AddrPort]any // the connector or listener that is bound there
	nextPort  uint16
	nextToken nd.Token
	adapters  int

	keepWindows bool // set by a test of the suite: Invalidate does nothing
}

// NewFabric returns a fabric without adapters.
func NewFabric() *Fabric {
	f := &Fabric{ports: make(map[netip.AddrPort]any), nextPort: nd.EphemeralPortFirst, nextToken: 0x1000}
	f.changed.L = &f.mu
	return f
}

// lock acquires the lock. The returned function wakes all waiting calls, which check their conditions
// again, and releases the lock.
func (f *Fabric) lock() (unlock func()) {
	f.mu.Lock()
	return func() {
		f.changed.Broadcast()
		f.mu.Unlock()
	}
}

// wait releases the lock until done returns true. It returns false if ctx ended first.
func (f *Fabric) wait(ctx context.Context, done func() bool) bool {
	stop := context.AfterFunc(ctx, func() { f.lock()() })
	defer stop()
	f.changed.Broadcast() // the caller may have changed objects
	for !done() {
		if ctx.Err() != nil {
			return false
		}
		f.changed.Wait()
	}
	return true
}

// token returns a value that no region and no window has had.
func (f *Fabric) token() nd.Token {
	f.nextToken++
	return f.nextToken
}

// take assigns addr to owner. It replaces port 0 by a free port.
func (f *Fabric) take(addr netip.AddrPort, owner any) (netip.AddrPort, nd.Status) {
	if addr.Port() != 0 {
		if f.ports[addr] != nil {
			return addr, nd.SharingViolation
		}
		f.ports[addr] = owner
		return addr, nd.Success
	}
	for range nd.EphemeralPortLast - nd.EphemeralPortFirst + 1 {
		free := netip.AddrPortFrom(addr.Addr(), f.nextPort)
		if f.nextPort++; f.nextPort == 0 {
			f.nextPort = nd.EphemeralPortFirst
		}
		if f.ports[free] == nil {
			f.ports[free] = owner
			return free, nd.Success
		}
	}
	return addr, nd.TooManyAddresses
}

// freeAddress frees addr if owner has it.
func (f *Fabric) freeAddress(addr netip.AddrPort, owner any) {
	if f.ports[addr] == owner {
		delete(f.ports, addr)
	}
}

// line is a queue of calls that wait for the same event, the oldest first.
type line []*call

type call struct{ served bool }

func (l *line) join() *call {
	c := new(call)
	*l = append(*l, c)
	return c
}

func (l *line) leave(c *call) {
	*l = slices.DeleteFunc(*l, func(other *call) bool { return other == c })
}

// orDefault replaces a time-out of 0 by the default.
func orDefault(d time.Duration) time.Duration {
	if d == 0 {
		return 2 * time.Second
	}
	return d
}

func refuse(op string, status nd.Status, detail string) error {
	if status == nd.Success {
		return nil
	}
	return &nd.OpError{Op: op, Status: status, Detail: detail}
}
