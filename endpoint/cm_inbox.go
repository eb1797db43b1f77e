package endpoint

// TWIN c/src/endpoint/cm_connection.c, c/src/endpoint/cm_listener.c.

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/shm"
)

// pollInbox handles the connection requests that peers have sent.
func (p *Provider) pollInbox() progressResult {
	if !p.member.HasMail() {
		return noProgress
	}
	if !p.inboxMu.TryLock() {
		return contended // the holder may have taken the list before the last request was in it, and does not check again
	}
	defer p.inboxMu.Unlock()
	return progressIf(p.readInbox())
}

// readInbox handles all connection requests. The caller holds p.inboxMu.
func (p *Provider) readInbox() bool {
	records := make(map[shm.Offset]*wire.ConnectionRecord)
	list, _ := p.member.TakeMail(func(off shm.Offset) (*atomic.Uint64, error) { // requests of a damaged list are handled, too
		r, err := shm.At[wire.ConnectionRecord](p.arena, off)
		if err != nil {
			return nil, err
		}
		if records[off] != nil {
			return nil, fmt.Errorf("list of connection requests that leads back to offset %#x: %w", uint64(off), shm.ErrDamaged)
		}
		records[off] = r
		return &r.Link, nil
	})
	for _, off := range list {
		p.handleRequest(records[off], off)
	}
	return len(list) > 0
}

// handleRequest handles one connection request. Every word of it was written by a peer.
func (p *Provider) handleRequest(r *wire.ConnectionRecord, off shm.Offset) {
	peer, err := p.arena.Peer(shm.MemberID(r.Member[cm.Active]))
	if err != nil || peer.Gone() || !peer.Owns(off, wire.ConnectionRecordSize) || shm.MemberID(r.Member[cm.Passive]) != p.member.ID() {
		return // no correct peer sends this, or no peer is left to answer
	}
	if p.hasRequest(requestKey{peer.ID(), off}) {
		return // sent twice, which no correct peer does
	}
	c := &connection{provider: p, record: cm.Record{Peer: peer, Shared: r, Offset: off, Side: cm.Passive}, requested: addressOf(r.Address[cm.Passive], r.Port[cm.Passive])}
	c.source = p.sourceOf(c)
	if !p.options.Forward && p.isOfOtherHost(c.source.Addr()) {
		c.remote = c.source.Addr()
	}
	p.track(c)
	l := p.listenerFor(c.requested)
	if l == nil || r.Port[cm.Passive]&wire.ByNumber != 0 || p.calls != nil && p.calls.Refuses(p.arena.RankOf(c.record.Peer.ID())) || !l.enqueue(c) {
		c.refuse()
	}
	p.waiters.Wake()
}

// sourceOf returns the address that has requested a connection: that of the process that sent the request. The relay
// names another one, because it acts for processes of other hosts.
func (p *Provider) sourceOf(c *connection) netip.AddrPort {
	r := c.record.Shared
	named := addressOf(r.Address[cm.Active], r.Port[cm.Active])
	if relay, err := p.arena.Relay(); err == nil && relay.ID() == c.record.Peer.ID() && p.isOfOtherHost(named.Addr()) {
		return named
	}
	return netip.AddrPortFrom(Address(p.arena.Host(), c.record.Peer.ID()), named.Port())
}

// listenerFor returns the listener for an address, or nil.
func (p *Provider) listenerFor(to netip.AddrPort) *listener {
	switch {
	case to.Addr() == p.address():
		return p.ports.Listener(to.Port())
	case p.options.Forward && p.isOfOtherHost(to.Addr()):
		return p.ports.OtherHosts()
	}
	return nil // no correct peer sends this
}

// hasRequest reports whether a peer's request is being handled already.
func (p *Provider) hasRequest(r requestKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.requests[r]
	return known
}
