package cm

// TWIN c/src/endpoint/cm_ports.c.

import (
	"maps"
	"slices"
	"sync"

	"github.com/softnd/softnd/nd"
)

// Ports manages the member's own port numbers, of which some have a listener, an L. They are unrelated to the host's ports.
// Safe for concurrent use.
type Ports[L any] struct {
	mu        sync.Mutex
	used      map[uint16]bool
	listeners map[uint16]*L
	next      uint16
	others    *L // gets the requests for addresses of other hosts; nil = none
}

// Init makes all ports free.
func (p *Ports[L]) Init() {
	p.used, p.listeners = make(map[uint16]bool), make(map[uint16]*L)
	p.next = nd.EphemeralPortFirst
}

// Reserve takes a port; 0 means any free port of the ephemeral range.
func (p *Ports[L]) Reserve(port uint16) (uint16, nd.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port != 0 {
		if p.used[port] {
			return 0, nd.SharingViolation
		}
		p.used[port] = true
		return port, nd.Success
	}
	for range int(nd.EphemeralPortLast) - int(nd.EphemeralPortFirst) + 1 {
		port = p.next
		if p.next == nd.EphemeralPortLast {
			p.next = nd.EphemeralPortFirst
		} else {
			p.next++
		}
		if !p.used[port] {
			p.used[port] = true
			return port, nd.Success
		}
	}
	return 0, nd.TooManyAddresses
}

// Release frees a port, and removes its listener.
func (p *Ports[L]) Release(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, port)
	delete(p.listeners, port)
}

// InUse returns how many ports are in use, for tests.
func (p *Ports[L]) InUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.used)
}

// SetOtherHosts makes l the listener for addresses of other hosts, unless there is one. nil removes it.
func (p *Ports[L]) SetOtherHosts(l *L) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil && p.others != nil {
		return false
	}
	p.others = l
	return true
}

// OtherHosts returns the listener for addresses of other hosts, or nil.
func (p *Ports[L]) OtherHosts() *L {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.others
}

// SetListener gives a port its listener; nil takes it away.
func (p *Ports[L]) SetListener(port uint16, l *L) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l == nil {
		delete(p.listeners, port)
		return
	}
	p.listeners[port] = l
}

// Listeners returns all listeners.
func (p *Ports[L]) Listeners() []*L {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Collect(maps.Values(p.listeners))
	if p.others != nil {
		list = append(list, p.others)
	}
	return list
}

// Listener returns the listener of a port, or nil.
func (p *Ports[L]) Listener(port uint16) *L {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listeners[port]
}
