package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// describeAccess describes the range that a transfer asked for, its token, and the access that the token
// permits. The text contains only a part of the token; see [nd.Token].
func (ep *queuePair) describeAccess(ref *window.Operand, n uint64) string {
	return fmt.Sprintf("%d bytes at %#x with %v, which grants %s", n, ref.Address, ref.Token, ep.guard.DescribeAccess(ref))
}

// describeLocal is describeAccess for a scatter/gather entry of this side.
func (ep *queuePair) describeLocal(e wire.SGE) string {
	ref := window.Operand{Token: e.Token, Rights: window.Local, Address: e.Address}
	return ep.describeAccess(&ref, uint64(e.Length))
}

// describeReceive says what may be wrong with a receive that the sender could not fill.
func (ep *queuePair) describeReceive(r *receive) string {
	for _, e := range r.sges() {
		mode.SetLocalOperand(&ep.sink, e, window.Write)
		if f := ep.guard.Check(&ep.sink, uint64(e.Length)); f != window.NoFault {
			return fmt.Sprintf("an entry of %s: %v", ep.describeLocal(e), f)
		}
	}
	return fmt.Sprintf("a receive of %d", r.capacity)
}

// tooLong is the detail of an error about a message that is longer than its receive.
const tooLong = "a message of %d bytes for a receive of %d"

// describeRequest says what a request asks of the peer.
func (ep *queuePair) describeRequest(r *request) string {
	switch {
	case r.Invalidate:
		return fmt.Sprintf("a message of %d bytes that invalidates %v", r.Total, r.RemoteToken)
	case r.Kind == nd.RequestSend:
		return fmt.Sprintf("a message of %d bytes", r.Total)
	}
	ref := window.Operand{Token: r.RemoteToken, Rights: window.Remote, Address: r.RemoteAddress, Far: &ep.conn.far}
	return ep.describeAccess(&ref, r.Total)
}

// readOrWrite names the peer's one-sided request.
func readOrWrite(k wire.Kind) string {
	switch k {
	case wire.ReadFragment:
		return "read"
	case wire.Atomic:
		return "change"
	}
	return "write"
}

// overrunError returns the error of an operation after a completion queue of the endpoint has
// overrun. The caller holds ep.mu.
func (ep *queuePair) overrunError(op string) error {
	name, q := "initiator", ep.sq.cq
	if q.failure(op) == nil {
		name, q = "receive", ep.rq.cq
	}
	return ep.opError(op, nd.InternalError, fmt.Sprintf("the %s completion queue overran and lost results (it holds %d)", name, q.capacity()),
		"create a deeper queue or poll more often, and connect a new endpoint")
}

// reject finishes a request with status s. The message becomes the endpoint's cause, if it has none yet.
func (ep *queuePair) reject(r *request, s nd.Status, format string, args ...any) outcome {
	r.Finish(s)
	if ep.life.cause == nil {
		ep.life.cause = ep.opError(r.OpName(), s, fmt.Sprintf(format, args...), "the connection has ended; connect a new endpoint")
	}
	return executed
}

// rejectRemote rejects r because of an access to the peer's memory, rejectLocal because it has refused
// the local entry e.
func (ep *queuePair) rejectRemote(r *request, why any) outcome {
	ep.counters.accessRefused++
	return ep.reject(r, nd.AccessViolation, "%s: %v", ep.describeRequest(r), why)
}

func (ep *queuePair) rejectLocal(r *request, e wire.SGE, f window.Fault) outcome {
	ep.counters.accessRefused++
	return ep.reject(r, nd.AccessViolation, "scatter/gather entry of %s: %v", ep.describeLocal(e), f)
}

// rejectSink rejects a Read with ReadLocalInvalidate whose sink is not in a region that a request on this
// endpoint has registered. A request cannot invalidate any other region.
func (ep *queuePair) rejectSink(r *request) outcome {
	e := r.SGEs[0]
	mode.SetLocalOperand(&ep.sink, e, window.Write)
	if f := ep.guard.Check(&ep.sink, uint64(e.Length)); f != window.NoFault {
		return ep.rejectLocal(r, e, f)
	}
	return ep.reject(r, nd.InvalidDeviceRequest, "local %v does not belong to a region fast-registered on this endpoint", e.Token)
}
