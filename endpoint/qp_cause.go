package endpoint

import (
	"errors"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
)

// Only the side at which a connection fails knows why, but the user may read the other side's error.
// So that side stores the reason as text in its shared queue-pair state before it ends the connection.
// The peer includes the text in its own error. No decision depends on text that a peer wrote, except for
// the level of an event and for advice.

// publishReason stores the reason for which this side is about to end the connection. The caller
// holds ep.mu.
func (ep *queuePair) publishReason(reason error) {
	var why *nd.OpError
	if errors.As(reason, &why) {
		n := copy(ep.localQP.Reason[:], why.Op+": "+why.Detail)
		ep.localQP.ReasonLength.Store(uint32(n)) // ORDER reason: before the swap in Record.Move; pairs with the load in connection.reason
		failpoint.Reach(failpoint.ReasonStored)
	}
}

// peerError is the peer's text about the end of a connection.
type peerError string

func (e peerError) Error() string { return string(e) }

// requestAtFault returns the request that failed at the peer, or nil.
func (ep *queuePair) requestAtFault() *request {
	for i := ep.sq.completed; i != ep.sq.posted; i++ {
		r := ep.requestAt(i)
		if r.State != mode.Finished && ep.conn.fault().blames(r) {
			return r
		}
	}
	return nil
}

// setCauseFromPeer sets the cause of the end of a connection that the peer has ended, or that has ended
// because the peer died. The caller holds ep.mu.
func (ep *queuePair) setCauseFromPeer() {
	c := ep.conn
	why, peer := c.reason(), "the peer ("+c.peerName+")"
	e := &nd.OpError{Op: "serve", Object: ep.String(), Status: nd.ConnectionAborted, Next: "connect a new endpoint"}
	if why != "" {
		e.Err = peerError(why)
	}
	r, failed := ep.requestAtFault(), nd.Status(c.peerQP.ReceiveStatus.Load()) // ORDER reason: as ReasonLength
	switch {
	case c.provider.member.Gone():
		e.Detail, e.Err = "this live process is marked dead in the arena", nil
		e.Next = "a process of the job writes outside its memory: find it and restart the job"
	case r != nil:
		ep.life.cause = nil // it would be of a later request, which failed at this side
		e.Op, e.Status, e.Detail = r.OpName(), c.fault().status, ep.describeRequest(r)+": refused by "+peer
	case failed == nd.BufferOverflow || failed == nd.AccessViolation:
		e.Op, e.Status, e.Detail = "receive", failed, peer+" could not deliver a message"
	case why == "" && c.record.IsPeerGone():
		e.Detail = c.lost(peer)
	default:
		e.Detail = peer + " ended the connection"
	}
	if c.nextStep() == startAgain {
		e.Next = startAgain
	}
	ep.setCause(e)
}
