package endpoint

// TWIN c/src/endpoint/req_execute.c.

import (
	"slices"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// runRequests executes submitted requests in order, and completes those that are done. It transfers
// at most *budget bytes, which it subtracts.
func (ep *queuePair) runRequests(budget *uint64) (progressed bool) {
	for {
		progressed = ep.completeRequests() || progressed
		if ep.hasAside() {
			progressed = ep.runAside(budget) || progressed
			if ep.hasBegunAside() {
				return progressed
			}
		}
		if ep.req.next == ep.req.submitted || ep.req.hasFailed {
			return progressed
		}
		r := ep.requestAt(ep.req.next) // next is the number of the oldest request that is not executed
		if r.PostedAfterEnd {
			r.cancel()
			ep.req.next++
			continue
		}
		// An Invalidate that has begun (draining) continues even if the peer has disconnected.
		if ep.state() != cm.QPConnected && !(r.State == mode.Draining && ep.state() == cm.QPPeerDisconnected) || *budget == 0 {
			return progressed
		}
		before := r.Transferred
		out, handled := ep.beforeExecute(r)
		if !handled {
			out = ep.execute(r, budget)
		}
		if r.Flags.Has(nd.ReadLocalInvalidate) && out == executed {
			out = ep.invalidateSink(r)
		}
		switch out {
		case blocked:
			ep.counters.retries++
			return progressed || r.Transferred != before
		case partial:
			asym.StoreRelease32(&ep.req.chunks, ep.req.chunks.Load()+1) // progress, for the status page
			return true
		}
		// After a failed request no other runs. It completes after the requests before it.
		if r.State == mode.Waiting {
			r.State = mode.Sent
		}
		ep.req.hasFailed = r.State == mode.Finished && r.Status != nd.Success
		ep.req.next++
		progressed = true
	}
}

// beforeExecute makes request r, the next to run, wait for earlier Reads, and asks the hook. If it reports true, out
// replaces the outcome of execute.
func (ep *queuePair) beforeExecute(r *request) (out outcome, handled bool) {
	if r.Flags.Has(nd.ReadFence) && (ep.conn.hasReadsInFlight(1) || ep.conn.awaitsResults() || ep.hasAside()) {
		return ep.stall(r, stallOrder), true
	}
	return ep.askHook(r)
}

// askHook asks the hook about a request that would run now. If it reports true, out replaces the outcome of execute.
func (ep *queuePair) askHook(r *request) (out outcome, handled bool) {
	if ep.hook == nil || r.bounceIndex >= 0 { // a part of a Read is on its way into a bounce buffer
		return executed, false
	}
	a := ep.hook.BeforeRun(&r.Request)
	switch {
	case a == mode.Aside && ep.setAside(r):
		return executed, true
	case a == mode.Run && r.takesReceive() && r.Transferred == 0 && ep.hasAside() && ep.conn.peerHasSRQ:
		return blocked, true // such a Send waits in the ring, without limit; no Read may get behind it
	}
	return handle(a)
}

// completeRequests completes executed requests in the order of posting.
func (ep *queuePair) completeRequests() (progressed bool) {
	for ep.sq.completed != ep.req.next {
		r := ep.requestAt(ep.sq.completed)
		if r.State != mode.Finished {
			// Executed but not finished: the request completes when the peer has released its last entry.
			if ep.life.teardown != usesPeerState || r.State == mode.SetAside || !ep.conn.out.IsReleased(r.EndEntry) {
				return progressed
			}
			ep.finishReleased(r)
		}
		if ep.hook != nil && !ep.mayComplete(r) {
			return progressed
		}
		ep.sq.completed++
		ep.completeRequest(r)
		progressed = true
		if r.Status != nd.Success && !r.PostedAfterEnd {
			ep.life.requestFailed = true
			ep.terminate(ep.life.cause)
			return true
		}
	}
	return progressed
}

// mayComplete reports whether the hook lets a finished request complete.
func (ep *queuePair) mayComplete(r *request) bool {
	ep.hook.Arrived(&r.Request)
	return ep.hook.BeforeCompletion(&r.Request)
}

// runAside runs the Reads that are set aside when the hook lets them, in any order. It transfers at most *budget bytes.
func (ep *queuePair) runAside(budget *uint64) (progressed bool) {
	if ep.state() != cm.QPConnected {
		return false
	}
	if ep.req.next != ep.req.submitted {
		if r := ep.requestAt(ep.req.next); r.Transferred > 0 && (r.Transferred < r.Total || r.bounceIndex >= 0) {
			return false // the entries of a message are consecutive, and a bounce buffer with data is not used again
		} // a Read with all its bytes may wait to invalidate its sink, and that waits for the Reads
	}
	for at := 0; at < len(ep.req.aside) && *budget > 0; {
		number := ep.req.aside[at]
		r := ep.requestAt(number)
		before := r.Transferred
		out, handled := ep.askHook(r)
		if !handled {
			out = ep.execute(r, budget)
		}
		progressed = progressed || out != blocked || r.Transferred != before
		switch {
		case out == executed:
			if r.State == mode.SetAside {
				r.State = mode.Sent
			}
			ep.req.aside = slices.Delete(ep.req.aside, at, at+1)
			ep.req.hasFailed = ep.req.hasFailed || r.State == mode.Finished && r.Status != nd.Success
			at = 0
		case r.Transferred > 0:
			ep.req.aside = slices.Insert(slices.Delete(ep.req.aside, at, at+1), 0, number)
			return progressed
		default:
			at++
		}
	}
	return progressed
}
