package endpoint

// TWIN c/src/endpoint/qp.c, c/src/endpoint/cm_teardown.c.

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// hasNoMoreResults reports whether the endpoint has left the connected state and adds no further result to
// its queues. After the peer's disconnect, the receives and requests that wait for the peer get none until
// this side ends the connection, too. The caller does not hold ep.mu.
func (ep *queuePair) hasNoMoreResults() bool {
	if ep.state() < cm.QPPeerDisconnected {
		return false
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state() == cm.QPPeerDisconnected && ep.progressLocked() {
		ep.provider.waiters.Wake() // the caller checks again instead of sleeping
		return false
	}
	switch {
	case ep.state() != cm.QPPeerDisconnected:
		return ep.life.teardown == flushed
	case ep.serving && ep.rq.completed != ep.rq.posted: // a message
		return false
	}
	return ep.req.next == ep.req.submitted || ep.requestAt(ep.req.next).State != mode.Draining
}

// Flush cancels everything outstanding; the endpoint is in the failed state then. It
// blocks until a copy of the peer that is in progress has ended. If ctx ends first, the endpoint
// has failed all the same, and the results follow when the copy has ended.
func (ep *queuePair) Flush(ctx context.Context) error {
	const op = "flush"
	ep.mu.Lock()
	if ep.state() != cm.QPDisconnecting { // otherwise a graceful disconnect flushes it already
		ep.terminate(ep.opError(op, nd.Canceled, "the endpoint was flushed", ""))
	}
	ep.mu.Unlock()
	p := ep.provider
	err := p.wait(ctx, statuspage.Call{Op: op, Object: ep.String()}, p.deferred.Run, func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		return ep.life.teardown == flushed
	})
	return drainError(ctx, err, op, ep.String())
}

// Close releases the endpoint, and the port of its connector. It aborts an established
// connection. In a goroutine that panics, Close returns [nd.Pending] and takes effect a second
// later. The peer then does not fail before the panic is printed. If the process ends before
// that, the peer sees its death.
func (ep *queuePair) Close() error {
	if err := ep.provider.postponed(ep.String(), ep.Close); err != nil {
		return err
	}
	if !ep.provider.waiters.BeginCall() {
		return nil // the provider has closed it
	}
	defer ep.provider.waiters.EndCall()
	ep.close()
	return nil
}

// closeCause returns the cause of the end of a connection that the program closes. Its text says whether
// requests were outstanding; see connection.closedInOrder.
func (ep *queuePair) closeCause(s nd.Status, what string) error {
	const op = "close"
	if ep.sq.completed != ep.sq.posted {
		ep.progressLocked() // they may be complete
	}
	if n := ep.sq.posted - ep.sq.completed; n != 0 {
		what = fmt.Sprintf("requests were outstanding (%d) when %s", n, what)
	}
	return ep.opError(op, s, what, "")
}

func (ep *queuePair) close() {
	ep.mu.Lock()
	if ep.life.closeCalled {
		ep.mu.Unlock()
		return
	}
	ep.life.closeCalled = true
	ep.terminate(ep.closeCause(nd.Canceled, "the endpoint was closed"))
	ep.on(cm.Closes)
	connector := ep.life.connector
	ep.mu.Unlock()
	if connector != nil {
		connector.endpointClosed()
	}
	ep.rq.cq.detach(ep)
	ep.sq.cq.detach(ep)
	ep.adapter.disown(kindEndpoint, ep)
	ep.provider.removeEndpoint(ep)
	ep.provider.runOrDefer(ep.free)
}

// free frees the endpoint's memory after the peer has stopped using it. It reports whether it has.
func (ep *queuePair) free() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.localQPOffset == 0 {
		return true
	}
	ep.clearForgedHazard() // the housekeeper does not check a closed endpoint
	if c := ep.conn; c != nil && !c.record.IsReleased() || ep.sq.completed != ep.sq.posted {
		return false
	}
	heap := ep.provider.member
	if s := &ep.req.bounce; s.region != nil {
		_ = s.region.Deregister() // fails if an earlier call has done it
		if !s.region.EndInvalidation() {
			return false
		}
		s.region.Free()
		_ = heap.Free(s.offset)
		s.region = nil
	}
	ep.guard.Close()
	_ = heap.Free(ep.localQPOffset)
	ep.localQPOffset = 0
	ep.provider.countFreed(ep)
	return true
}

// Done returns a channel that is closed when the endpoint has left the connected state permanently. The
// program need not poll for that: the progress engine closes the channel.
func (ep *queuePair) Done() <-chan struct{} { return ep.life.done }

// Connector returns the connector that connected the endpoint, or nil if it never was connected.
func (ep *queuePair) Connector() nd.Connector {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.life.wasConnected {
		return nil
	}
	return ep.life.connector
}

// Err returns why the endpoint left the connected state, or nil if it has not.
func (ep *queuePair) Err() error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.hasOverrun() {
		ep.progressLocked()
	}
	if ep.state() == cm.QPConnected {
		return nil // a request may have failed, but the requests before it complete first
	}
	return ep.life.cause
}
