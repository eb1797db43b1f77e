package endpoint

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Most requests are small, ask for nothing special, and find nothing before
// them. Those run within the post, and never take a place in the queue. What
// they do is what the queue would do with them; whatever is unusual, a mistake
// of the program for instance, is left to the queue.

// transferNow runs a Read or a Write; false means that it has done nothing.
func (ep *Endpoint) transferNow(k nd.RequestType, reqCtx uint64, sge []nd.SGE, remoteAddr uint64, remote nd.Token, flags nd.OpFlags) (done bool) {
	if flags != 0 || len(sge) != 1 || uint(len(sge[0].Buffer))-1 >= smallTransfer || !ep.initiates {
		return false
	}
	me := asym.Current()
	ep.mu.LockBy(me)
	if ep.undisturbed() && !ep.conn.pending() && (k == nd.RequestWrite || ep.readLimit > 0) {
		var sinkFault, sourceFault window.Fault
		if k == nd.RequestWrite {
			sinkFault, sourceFault = ep.guard.Put(&ep.conn.ref, remote, remoteAddr, sge[0].Token, sge[0].Buffer)
		} else {
			sinkFault, sourceFault = ep.guard.Get(&ep.conn.ref, remote, remoteAddr, sge[0].Token, sge[0].Buffer)
		}
		if done = sinkFault|sourceFault == window.NoFault; done {
			ep.succeedNow(me, k, reqCtx, len(sge[0].Buffer))
		}
	}
	ep.mu.Unlock()
	return done
}

// undisturbed tells whether a request may run now: there is a connection,
// everything before it is done, and there is a slot for its result.
func (ep *Endpoint) undisturbed() bool {
	return ep.state() == connected && ep.done == ep.tail && !ep.batching && ep.hasSlot()
}

// succeedNow completes a request that has had no place in the queue.
func (ep *Endpoint) succeedNow(me asym.Goroutine, k nd.RequestType, reqCtx uint64, n int) {
	ep.tail++
	ep.ready, ep.next, ep.done = ep.tail, ep.tail, ep.tail
	ep.result = nd.Result{BytesTransferred: uint32(n), EndpointContext: ep.context, RequestContext: reqCtx, RequestType: k}
	ep.initiatorCQ.push(me, &ep.result, &ep.taken, false)
}
