package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// What the messages of refused transfers say: the range that was asked for, its
// token (of which nd.Token shows a part only), and what that grants.

func (ep *Endpoint) granting(ref *window.Operand, n uint64) string {
	return fmt.Sprintf("%d bytes at %#x with %v, which grants %s", n, ref.Address, ref.Token, ep.guard.DescribeAccess(ref))
}

// ownEntry words a scatter/gather entry of this side.
func (ep *Endpoint) ownEntry(e entry) string {
	ref := window.Operand{Token: e.token, Rights: window.Local, Address: e.address}
	return ep.granting(&ref, uint64(e.length))
}

// faulty words what may be wrong with a receive that the sender could not fill.
func (ep *Endpoint) faulty(r *receive) string {
	for _, e := range r.entries() {
		own(&ep.sink, e, window.Write)
		if f := ep.guard.Check(&ep.sink, uint64(e.length)); f != window.NoFault {
			return fmt.Sprintf("an entry of %s: %v", ep.ownEntry(e), f)
		}
	}
	return fmt.Sprintf("a receive of %d", r.capacity)
}

// tooLong words what is wrong with a message that is longer than its receive.
const tooLong = "a message of %d bytes for a receive of %d"

// asked words what a request wants of the peer.
func (ep *Endpoint) asked(r *request) string {
	switch {
	case r.invalidate:
		return fmt.Sprintf("a message of %d bytes that invalidates %v", r.total, r.token)
	case r.kind == nd.RequestSend:
		return fmt.Sprintf("a message of %d bytes", r.total)
	}
	ref := window.Operand{Token: r.token, Rights: window.Remote, Address: r.remote, Peer: &ep.conn.ref}
	return ep.granting(&ref, r.total)
}

// verb names what the peer wanted.
func (m *message) verb() string {
	if m.kind == readPiece {
		return "read"
	}
	return "write"
}

// overrunError refuses an operation because a completion queue of the endpoint has
// overrun. The caller holds ep.mu.
func (ep *Endpoint) overrunError(op string) error {
	name, q := "initiator", ep.initiatorCQ
	if q.failure(op) == nil {
		name, q = "receive", ep.receiveCQ
	}
	return ep.fail(op, nd.InternalError, fmt.Sprintf("its %s completion queue overran (%d results fit), and results are lost", name, q.capacity()),
		"create a deeper queue or take results sooner, and connect a new endpoint")
}
