package endpoint

// TWIN c/src/endpoint/qp_post.c.

import (
	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// newRequest returns the next request of the initiator queue, reset. The request is posted only
// when enqueue is called. The caller holds ep.mu.
func (ep *queuePair) newRequest(op string, kind nd.RequestType, flags nd.OpFlags, reqCtx uint64) (*request, error) {
	switch ep.state() {
	case cm.QPConnected, cm.QPPeerDisconnected, cm.QPFailed: // after an end that this side has not asked for, requests are canceled
		if ep.hasOverrun() {
			return nil, ep.overrunError(op)
		}
	default:
		return nil, ep.notConnectedError(op)
	}
	if !ep.hasQueueSlot() {
		ep.counters.postsRefused++
		return nil, ep.errInitiatorFull
	}
	r := ep.requestAt(ep.sq.posted)
	r.reset(kind, flags, reqCtx)
	r.Number, r.PostedAfterEnd = ep.sq.posted, ep.state() != cm.QPConnected
	return r, nil
}

// notConnectedError returns the error of a post on an endpoint that is not connected yet, was
// disconnected, or was closed.
func (ep *queuePair) notConnectedError(op string) error {
	detail, next := "the endpoint is not connected yet", "post when Connect and CompleteConnect, or Accept, have returned"
	switch s := ep.state(); {
	case ep.life.closeCalled:
		detail, next = "the endpoint was closed", "connect a new endpoint"
	case s == cm.QPDisconnecting || s == cm.QPClosed:
		detail, next = "the endpoint has been disconnected", "connect a new endpoint"
	}
	return ep.opError(op, nd.ConnectionInvalid, detail, next)
}

// post asks the hook about the request that newRequest returned, and posts it.
func (ep *queuePair) post(r *request) error {
	if ep.hook != nil {
		if err := ep.hook.Post(&r.Request); err != nil {
			r.cancelBinding()
			return err
		}
		r.PostedAfterEnd = ep.state() != cm.QPConnected
	}
	ep.enqueue(r)
	return nil
}

// enqueue queues a request. Unless that request is deferred, enqueue
// submits it together with the requests deferred before it.
func (ep *queuePair) enqueue(r *request) {
	ep.sq.posted++
	ep.sq.slotsTaken++
	asym.StoreRelease32(&ep.uncompleted, uint32(ep.sq.posted-ep.sq.completed)) // for pollers without the lock
	if r.Flags.Has(nd.Defer) && ep.state() == cm.QPConnected {
		return
	}
	ep.submit()
}

// submit lets all posted requests run. They run within this call if no earlier request waits and the
// last of them is small.
func (ep *queuePair) submit() {
	if ep.req.submitted == ep.sq.posted {
		return
	}
	waiting := ep.req.next != ep.req.submitted // a request submitted before is not executed yet
	ep.req.submitted = ep.sq.posted
	if waiting && ep.state() == cm.QPConnected {
		return // polls and the progress engine run them in turn
	}
	if last := ep.requestAt(ep.sq.posted - 1); last.Total > smallTransfer && ep.state() == cm.QPConnected {
		ep.provider.wakeProgress() // the engine runs it
		return
	}
	budget := uint64(quantum) // bytes to transfer before other endpoints get a turn
	ep.runRequests(&budget)
	if ep.req.next != ep.sq.posted || ep.waitsForHook() {
		ep.provider.wakeProgress() // a request waits, perhaps for a time-out that no ring announces
	}
}

// submitOnError returns err, the result of a post. If the post failed, submitOnError submits the
// deferred requests: the program may never post again.
func (ep *queuePair) submitOnError(err error) error {
	if err != nil {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		ep.submit()
	}
	return err
}
