package endpoint

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/softnd/softnd/nd"
)

// The side at which a connection fails knows why, but it may be the other side whose
// error a user reads. So it leaves the reason in its half, in words, before it ends
// the connection, and the other side includes them in its error. No decision depends on
// words that a peer wrote.

// leaveReason tells the peer why this side is about to end the connection. The caller
// holds ep.mu.
func (ep *Endpoint) leaveReason() {
	var why *nd.OpError
	if errors.As(ep.cause, &why) {
		n := copy(ep.half.reason[:], why.Op+": "+why.Detail)
		ep.half.reasonLength.Store(uint32(n)) // ORDER reason: before the swap in move; pairs with the load in connection.reason
	}
}

// reason returns why the peer has ended the connection, "" if it has left no reason.
func (c *connection) reason() string {
	n := c.peerState.reasonLength.Load() // ORDER reason: after the load in state; pairs with the store in leaveReason
	text := c.peerState.reason           // a copy: the peer may write it again
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, string(text[:min(n, uint32(len(text)))]))
}

// peerError is what the peer has said about the end of a connection.
type peerError string

func (e peerError) Error() string { return string(e) }

// fault is what the peer says of the message that ended the connection there.
type fault struct {
	read   bool
	number uint64 // of the message, plus one; 0 = none
	status nd.Status
}

// fault returns what the peer says when the connection has ended. It reads that once: the
// request that is blamed, its status, and the endpoint's error must agree.
func (c *connection) fault() *fault {
	f := &c.peerFault
	if f.read {
		return f
	}
	*f = fault{true, c.peerState.fault.Load(), nd.Status(c.peerState.faultStatus.Load())} // ORDER fault: after the abort, before which it was stored
	if f.status != nd.RemoteError && f.status != nd.AccessViolation {
		f.status = nd.InternalError // no sound peer says that
	}
	return f
}

// blames reports whether r is the request that failed at the peer.
func (f *fault) blames(r *request) bool {
	return f.number != 0 && r.end != 0 && f.number-1-r.first < r.end-r.first
}

// blamed returns the request that the peer blames, nil if it blames none.
func (ep *Endpoint) blamed() *request {
	for i := ep.done; i != ep.tail; i++ {
		r := &ep.requests[i&uint64(len(ep.requests)-1)]
		if !r.finished && ep.conn.fault().blames(r) {
			return r
		}
	}
	return nil
}

// endedByPeer notes why a connection has ended that the peer has ended, or that has
// ended with the peer. The caller holds ep.mu.
func (ep *Endpoint) endedByPeer() {
	c := ep.conn
	why, peer := c.reason(), "the peer ("+c.peerName+")"
	e := &nd.OpError{Op: "serve", Object: ep.String(), Status: nd.ConnectionAborted, Next: "connect a new endpoint"}
	if why != "" {
		e.Err = peerError(why)
	}
	r, failed := ep.blamed(), nd.Status(c.peerState.receiveStatus.Load()) // ORDER reason: as reasonLength
	switch {
	case c.provider.member.MarkedDead():
		e.Detail, e.Err = "a process has written into the arena that this one is dead", nil
		e.Next = "find the process of the job that writes beyond its memory, and start the job again"
	case r != nil:
		ep.cause = nil // of a later request that failed here
		e.Op, e.Status, e.Detail = opName(r), c.fault().status, ep.asked(r)+": refused by "+peer
	case failed == nd.BufferOverflow || failed == nd.AccessViolation:
		e.Op, e.Status, e.Detail = "receive", failed, peer+" could not deliver a message"
	case why == "" && c.isPeerGone():
		e.Detail = peer + " has died or left"
	default:
		e.Detail = peer + " ended the connection"
	}
	ep.setCause(e)
}
