package shm

import (
	"fmt"

	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// maxHost is the highest number of a host. The second byte of an address holds it, counted from 77.
const maxHost = 178

// Host returns the number of the arena's host in the job.
func (a *Arena) Host() int { return a.host }

// Relay returns the member that carries connections to other hosts.
//
// Errors: one that says that there is none, or that it has ended.
func (a *Arena) Relay() (*Peer, error) {
	id := MemberID(a.header().relay.Load()) // ORDER relay-named: pairs with the swap in BecomeRelay
	if id == 0 {
		return nil, errNoRelay
	}
	p, err := a.Peer(id)
	if err != nil {
		return nil, err
	}
	if p.Gone() {
		return nil, fmt.Errorf("%v has ended: %w", p, errGone)
	}
	return p, nil
}

// BecomeRelay makes the member the one that carries connections to other hosts, until it leaves or dies.
//
// Errors: [ErrTaken] if another live member is.
func (m *Member) BecomeRelay() error {
	word := &m.arena.header().relay
	for {
		old := MemberID(word.Load())
		if peer, err := m.arena.Peer(old); err == nil && old != m.id && m.checkAlive(peer) {
			return fmt.Errorf("shm: become relay: %v is the relay: %w", peer, ErrTaken)
		}
		if word.CompareAndSwap(uint64(old), uint64(m.id)) { // ORDER relay-named: pairs with the load in Relay
			failpoint.Reach(failpoint.RelayNamed)
			return nil
		}
	}
}
