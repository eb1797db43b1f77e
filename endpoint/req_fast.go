package endpoint

// TWIN c/src/endpoint/qp_post.c, c/src/endpoint/cq.h.

import (
	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// The fast path runs a request within its post. A request takes it if it is small, has no flags but fastFlags (Bind:
// only the rights), and follows only completed requests. Only a request that must still wait for the
// peer (enqueuePushed, invalidateFast), or whose result has lost its memory (changeFast), takes a place in req.requests.
//
// The fast path has the same effects as the slow path. It handles no errors: it returns false, and the caller
// posts the request on the slow path, which reports the error. A Write that fails may have written some bytes.

// fastFlags are the flags of Sends, Writes, Reads and atomics on the fast path. A fence has nothing to wait for there.
const fastFlags = nd.SilentSuccess | nd.ReadFence

// canRunFast reports whether a request may run now, within its post. The endpoint is connected, all earlier
// requests are completed, and the initiator queue has a free slot. The caller holds ep.mu, as for all
// functions of the fast path.
func (ep *queuePair) canRunFast() bool {
	return ep.stateWord.Load() == uint32(cm.QPConnected) && ep.sq.completed == ep.sq.posted && ep.hasQueueSlot()
}

// completeFast completes a request of the fast path with success and a result. n is the number of bytes transferred.
func (ep *queuePair) completeFast(kind nd.RequestType, reqCtx uint64, n int) {
	ep.sq.slotsTaken++
	ep.sq.cq.pushSuccess(ep, reqCtx, kind, n, &ep.sq.slots)
}

// bindFast is executeBind for the fast path. It reports whether it has bound the window.
func (ep *queuePair) bindFast(reqCtx uint64, r *window.Region, w *window.Window, buf []byte, rights window.Rights) bool {
	if !ep.canRunFast() || !w.Bind(r, buf, rights, ep.number) {
		return false
	}
	ep.bound.Add(&w.Invalidatable) // the end of the connection invalidates it
	ep.completeFast(nd.RequestBind, reqCtx, 0)
	return true
}

// invalidateFast is executeInvalidate for the fast path. It reports whether it has invalidated object. If
// a peer still uses the token, it queues a request that completes when the token is drained.
func (ep *queuePair) invalidateFast(reqCtx uint64, object *window.Invalidatable) bool {
	if !ep.canRunFast() {
		return false
	}
	_, done, ok := object.Invalidate(ep.number)
	if !ok {
		return false
	}
	ep.bound.Remove(object)
	if done {
		ep.completeFast(nd.RequestInvalidate, reqCtx, 0)
		return true
	}
	// The token is revoked but still in use: queue a request that waits for the drain.
	r := ep.requestAt(ep.sq.posted)
	r.reset(nd.RequestInvalidate, 0, reqCtx)
	r.Object, r.State = object, mode.Draining
	ep.enqueue(r)
	return true
}

// enqueuePushed queues a request for the entry that the fast path has just pushed into the ring. The
// request completes when the peer has consumed that entry.
func (ep *queuePair) enqueuePushed(kind nd.RequestType, reqCtx uint64, flags nd.OpFlags) *request {
	r := ep.requestAt(ep.sq.posted)
	r.reset(kind, flags, reqCtx)
	r.EndEntry, r.needsAck, r.State = ep.conn.out.Published(), true, mode.Sent
	r.firstEntry = r.EndEntry - 1
	ep.conn.credit.AckRequestEnd = r.EndEntry // later requests must not overtake this one
	ep.sq.posted++
	ep.sq.slotsTaken++
	ep.req.submitted, ep.req.next = ep.sq.posted, ep.sq.posted                 // it is executed, but not completed
	asym.StoreRelease32(&ep.uncompleted, uint32(ep.sq.posted-ep.sq.completed)) // for pollers without the lock
	return r
}

// pushWriteFast is pushWriteInEntry for the fast path. It reports whether it has pushed the Write; it
// does not if the data exceeds MaxWriteInEntry or the ring is full.
func (ep *queuePair) pushWriteFast(reqCtx uint64, sge *nd.SGE, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) (done bool) {
	c := ep.conn
	n := len(sge.Buffer)
	if n > wire.MaxWriteInEntry || c.out.FreeSlots() == 0 || !c.far.IsOpen() {
		return false
	}
	entry := c.out.NextEntry()
	if !ep.guard.CopyToEntry(entry.Bytes(2), sge) { // the payload begins at word 2
		return false
	}
	entry[0], entry[1] = wire.PlainWrite(uint64(n), remoteToken), remoteAddress
	c.out.Publish()
	c.out.PrefetchForWrite()
	// Without CountEntry, an entry counts as a Send of the fast path, which takes a receive of the peer. A Write
	// takes none.
	c.credit.CountEntry(c.out.Published()-1, false)
	if c.record.Peer.HasWaiter() {
		c.record.Peer.Wake()
	}
	ep.cancelWakeup()
	r := ep.enqueuePushed(nd.RequestWrite, reqCtx, flags)
	r.Total, r.RemoteAddress, r.RemoteToken = uint64(n), remoteAddress, remoteToken
	return true
}
