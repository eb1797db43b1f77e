package endpoint

// TWIN c/src/endpoint/cm_ports.c.

import (
	"maps"
	"slices"
	"sync"

	"github.com/softnd/softnd/nd"
)

// ports manages the member's own port numbers. They are unrelated to the host's ports.
type ports struct {
	mu        sync.Mutex
	used      map[uint16]bool
	listeners map[uint16]*listener
	next      uint16
	others    *listener // gets the requests for addresses of other hosts; nil = none
}

func (p *ports) init() {
	p.used, p.listeners = make(map[uint16]bool), make(map[uint16]*listener)
	p.next = nd.EphemeralPortFirst
}

// reserve takes a port; 0 means any free port of the ephemeral range.
func (p *ports) reserve(port uint16) (uint16, nd.Status) {
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

func (p *ports) release(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, port)
	delete(p.listeners, port)
}

// setOtherHosts makes l the listener for addresses of other hosts, unless there is one. nil removes it.
func (p *ports) setOtherHosts(l *listener) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil && p.others != nil {
		return false
	}
	p.others = l
	return true
}

func (p *ports) otherHosts() *listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.others
}

func (p *ports) setListener(port uint16, l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[port] = l
}

func (p *ports) listenerList() []*listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Collect(maps.Values(p.listeners))
	if p.others != nil {
		list = append(list, p.others)
	}
	return list
}

func (p *ports) listener(port uint16) *listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listeners[port]
}
