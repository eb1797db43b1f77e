package endpoint

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// Most requests are small, ask for nothing special, and find nothing before
// them. Those run within the post, and never take a place in the queue. What
// they do is what the queue would do with them; whatever is unusual, a mistake
// of the program for instance, is left to the queue.

// undisturbed tells whether a request may run now, and here: there is a
// connection, everything before it is done, and there is a slot for its result.
func (ep *Endpoint) undisturbed() bool {
	return ep.now.Load() == uint32(connected) && ep.done == ep.tail && !ep.batching && ep.hasSlot()
}

// succeedNow completes a request that has had no place in the queue.
func (ep *Endpoint) succeedNow(me asym.Goroutine, k nd.RequestType, reqCtx uint64, n int) {
	ep.tail++
	ep.ready, ep.next, ep.done = ep.tail, ep.tail, ep.tail
	ep.initiatorCQ.succeed(me, ep.context, reqCtx, k, n, &ep.taken)
}

// bindNow binds a window. See executeBind.
func (ep *Endpoint) bindNow(reqCtx uint64, r *window.Region, w *window.Window, buf []byte, rights window.Rights) bool {
	if !ep.undisturbed() {
		return false
	}
	b, err := w.Prepare(r, buf, rights, ep.number, false)
	if err != nil || !b.Run() {
		return false
	}
	ep.bound.add(w)
	ep.succeedNow(asym.Current(), nd.RequestBind, reqCtx, 0)
	return true
}

// takeBackNow ends a loan that nobody uses. See executeInvalidate.
func (ep *Endpoint) takeBackNow(reqCtx uint64, l window.Loan) bool {
	if !ep.undisturbed() {
		return false
	}
	token, ok := l.Invalidate(ep.number)
	if !ok {
		return false
	}
	ep.bound.remove(l)
	if l.Drained(token) {
		l.Release()
		ep.succeedNow(asym.Current(), nd.RequestInvalidate, reqCtx, 0)
		return true
	}
	// Only now it is a request, and one that has begun.
	r := &ep.requests[ep.tail&uint64(len(ep.requests)-1)]
	r.reset(nd.RequestInvalidate, 0, reqCtx)
	r.loan, r.draining, r.drain = l, true, token
	ep.enqueue(r)
	return true
}

// receiveNow posts a receive of one entry.
func (ep *Endpoint) receiveNow(reqCtx uint64, sge *nd.SGE) (done bool) {
	n := uint64(len(sge.Buffer))
	if n-1 >= maxTransfer || ep.shared != nil {
		return false
	}
	ep.mu.Lock()
	done = ep.describe(reqCtx, sge, n)
	ep.mu.Unlock()
	return done
}

func (ep *Endpoint) describe(reqCtx uint64, sge *nd.SGE, n uint64) bool {
	if ep.now.Load() != uint32(connected) || ep.posted-ep.receivesTaken.taken.Load() >= ep.receiveDepth || ep.adapter.privileged.Load() != 0 {
		return false
	}
	e := entry{shm.AddressOf(sge.Buffer), uint32(n), sge.Token}
	r := &ep.receives[ep.posted&uint64(len(ep.receives)-1)]
	r.entries = r.entries[:1]
	r.context, r.entries[0], r.capacity = reqCtx, e, n
	ep.posted++
	d := ep.descriptor()
	d[0], d[1], d[2], d[3] = n, 1, e.address, n|uint64(e.token)<<32
	room := min(n, inlinePayload)
	if !ep.guard.CanFill(e.token, e.address, n) {
		room = 0
	}
	ep.show(room)
	return true
}

// sendNow puts a message into a slot if the peer is sure to take it: a receive
// is posted that has room for any small message. See executeSend and sendSmall.
func (ep *Endpoint) sendNow(me asym.Goroutine, reqCtx uint64, sge *nd.SGE) (done bool) {
	c := ep.conn
	if c.shared || !c.credit() || !c.fits(uint64(len(sge.Buffer))) {
		return false
	}
	slot := c.out.Next()
	if slot == nil || !ep.guard.Take(slot.Bytes(1), sge.Token, sge.Buffer) {
		return false
	}
	slot[0] = head(sendInline, flagFirst|flagLast, len(sge.Buffer), 0)
	index := c.out.Publish()
	c.unplaced = index + 1
	c.taken++
	c.peer.Ring()
	ep.unstall()
	if c.ref.Link.IsOpen() { // ORDER conn-state: after the push; see published
		ep.succeedNow(me, nd.RequestSend, reqCtx, len(sge.Buffer))
		return true
	}
	// The connection is ending, and only the peer knows whether it has taken this.
	r := &ep.requests[ep.tail&uint64(len(ep.requests)-1)]
	r.reset(nd.RequestSend, 0, reqCtx)
	r.total, r.first, r.end, r.awaited = uint64(len(sge.Buffer)), index, index+1, true
	c.end = r.end
	ep.tail++
	ep.ready, ep.next = ep.tail, ep.tail
	asym.Store32(&ep.open, uint32(ep.tail-ep.done))
	return true
}

// plainSend is word 0 of a message that has nothing special about it, but for its length.
var plainSend = head(sendInline, flagFirst|flagLast, 0, 0)

// takeNow takes the peer's oldest message if it has nothing special about it,
// and the receive neither. See serveSend.
func (ep *Endpoint) takeNow(slot *shm.Slot) bool {
	c := ep.conn
	word := atomic.LoadUint64(&slot[0]) // once: the peer may scribble
	n := word >> 16 & 0xffff
	if word&^(0xffff<<16) != plainSend || n-1 >= inlinePayload || ep.delivered == ep.posted || ep.shared != nil {
		return false
	}
	r := &ep.receives[ep.delivered&uint64(len(ep.receives)-1)]
	if len(r.entries) != 1 || n > uint64(r.entries[0].length) || !ep.guard.Fill(r.entries[0].token, r.entries[0].address, slot.Bytes(1)[:n]) {
		return false
	}
	ep.delivered++
	if len(ep.room) > 0 && ep.receiveCQ.passes() {
		ep.room[0] = nd.Result{BytesTransferred: uint32(n), EndpointContext: ep.context, RequestContext: r.context, RequestType: nd.RequestReceive}
		ep.room = ep.room[1:]
		ep.receivesTaken.add(1)
	} else {
		ep.receiveCQ.succeed(asym.Current(), ep.context, r.context, nd.RequestReceive, int(n), &ep.receivesTaken)
	}
	c.in.Advance()
	if c.in.Unreleased() >= c.in.Size()/4 {
		ep.release(false)
	}
	return true
}
