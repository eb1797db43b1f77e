package endpoint

// TWIN c/src/endpoint/req_execute.c.

import (
	"github.com/softnd/softnd/nd"
)

// finishReleased finishes a request whose last entry the peer has released.
func (ep *queuePair) finishReleased(r *request) {
	if r.IsAtomic() {
		ep.takeResult(r)
		return
	}
	r.Finish(nd.Success)
}

// completeRequest adds the result of a finished request to the completion queue.
func (ep *queuePair) completeRequest(r *request) {
	if ep.hook != nil {
		ep.hook.Arrived(&r.Request)
	}
	if r.Status == nd.Success && r.Flags.Has(nd.SilentSuccess) {
		ep.sq.slotsTaken-- // a request without a result frees its slot at once
		ep.succeedSilently(r.Kind, int(r.bytesTransferred()))
		return
	}
	if r.Status == nd.Success {
		ep.sq.cq.pushSuccess(ep, r.context, r.Kind, int(r.bytesTransferred()), &ep.sq.slots)
		return
	}
	ep.result = nd.Result{Status: r.Status, RequestContext: r.context, RequestType: r.Kind}
	ep.pushResult(ep.sq.cq, &ep.sq.slots, false)
}

// succeedSilently counts the success of a request that adds no result to the queue.
func (ep *queuePair) succeedSilently(kind nd.RequestType, n int) {
	ep.counters.silent++
	if ep.counters.operations != nil {
		countResult(ep.counters.operations, &nd.Result{RequestType: kind, BytesTransferred: uint32(n)})
	}
}

// completeInvalidate completes an Invalidate whose tokens are drained. For a Read with
// ReadLocalInvalidate, invalidateSink then finds no region to invalidate.
func (ep *queuePair) completeInvalidate(r *request) {
	if r.Kind == nd.RequestRead {
		r.Object = nil
	}
	r.Finish(nd.Success)
}
