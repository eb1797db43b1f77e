package endpoint

// TWIN c/src/endpoint/cm_connection.c, c/src/endpoint/cm_teardown.c.

import (
	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/shm"
)

// track adds the connection to those that the death of a member can concern.
func (p *Provider) track(c *connection) {
	p.mu.Lock()
	p.conns[c] = struct{}{}
	if c.record.Side == cm.Passive {
		p.requests[requestKey{c.record.Peer.ID(), c.record.Offset}] = struct{}{}
	}
	p.mu.Unlock()
	p.watchPeer(c.record.Peer)
	if c.record.Peer.Gone() || p.member.Gone() {
		c.peerDied()
	}
}

// watchPeer makes the housekeeper learn of a peer's death soon.
func (p *Provider) watchPeer(peer *shm.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.watched[peer.ID()]; ok || p.closed || peer.ID() == p.member.ID() {
		return
	}
	stop := make(chan struct{})
	p.watched[peer.ID()] = stop
	p.member.Watch(peer, stop, p.housekeeper.runNow)
}

// peerDied notes that the other process is dead, which executes nothing from now on, and ends the endpoint's connection.
func (c *connection) peerDied() {
	c.record.PeerDied()
	if ep := c.endpoint.Load(); ep != nil {
		ep.mu.Lock()
		if ep.conn == c { // an endpoint whose Connect has failed may have another connection
			ep.handlePeerDeath()
		}
		ep.mu.Unlock()
	}
}

// handlePeerDeath acts on the peer's death before its memory is reused.
func (ep *queuePair) handlePeerDeath() {
	switch c := ep.conn; ep.state() {
	case cm.QPConnecting, cm.QPAccepted:
		switch {
		case c == nil || !c.attached:
		case c.record.Side == cm.Passive && c.wasEstablished():
			ep.on(cm.Completes) // Accept has not returned yet, and the record may be read for the last time; progressLocked ends the connection
		default:
			ep.peerAborted()
		}
	case cm.QPFailed, cm.QPDisconnecting, cm.QPClosed:
		ep.finishTeardown()
	}
	ep.progressLocked() // ends a connected one: peerAborted
}
