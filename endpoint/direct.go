package endpoint

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// Most requests are small, ask for nothing special, and find nothing before
// them. Those run within the post, and never take a place in the queue. What
// they do is what the queue would do with them; whatever is unusual, a mistake
// of the program for instance, is left to the queue.

// undisturbed tells whether a request may run now, and here: there is a
// connection, everything before it is done, and there is a slot for its result.
func (ep *Endpoint) undisturbed() bool {
	return ep.now.Load() == uint32(connected) && ep.done == ep.tail && !ep.batching && (ep.tail-ep.returned < ep.initiatorDepth || ep.hasSlot())
}

// succeedNow completes a request that has had no place in the queue.
func (ep *Endpoint) succeedNow(me asym.Goroutine, k nd.RequestType, reqCtx uint64, n int) {
	ep.tail++
	ep.ready, ep.next, ep.done = ep.tail, ep.tail, ep.tail
	ep.initiatorCQ.succeed(me, ep.context, reqCtx, k, n, &ep.taken)
}
