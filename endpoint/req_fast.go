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
func (ep *Endpoint) succeedNow(k nd.RequestType, reqCtx uint64, n int) {
	ep.apart++
	ep.initiatorCQ.pushSuccess(ep, reqCtx, k, n, &ep.taken)
}

// bindNow binds a window. See executeBind.
func (ep *Endpoint) bindNow(reqCtx uint64, r *window.Region, w *window.Window, buf []byte, rights window.Rights) bool {
	if !ep.undisturbed() || !w.Bind(r, buf, rights, ep.number) {
		return false
	}
	ep.bound.add(w)
	ep.succeedNow(nd.RequestBind, reqCtx, 0)
	return true
}

// takeBackNow ends a loan that nobody uses. See executeInvalidate.
func (ep *Endpoint) takeBackNow(reqCtx uint64, l window.Invalidatable) bool {
	if !ep.undisturbed() {
		return false
	}
	token, drained, ok := l.InvalidateAndRelease(ep.number)
	if !ok {
		return false
	}
	ep.bound.remove(l)
	if drained {
		ep.succeedNow(nd.RequestInvalidate, reqCtx, 0)
		return true
	}
	// Only now it is a request, and one that has begun.
	r := &ep.requests[ep.tail&uint64(len(ep.requests)-1)]
	r.reset(nd.RequestInvalidate, 0, reqCtx)
	r.loan, r.draining, r.drain = l, true, token
	ep.enqueue(r)
	return true
}

// describe posts a receive of one entry. What is mostly as it was for the receive
// before it in the same place is not stored again.
func (ep *Endpoint) describe(reqCtx uint64, sge *nd.SGE) {
	address, n, token := shm.AddressOf(sge.Buffer), uint64(len(sge.Buffer)), sge.Token
	r := &ep.receives[ep.posted&uint64(len(ep.receives)-1)]
	r.context = reqCtx
	if r.capacity != n {
		r.capacity = n
	}
	if !r.single {
		r.single = true
	}
	r.one[0] = entry{address, uint32(n), token}
	ep.posted++
	d := ep.descriptor()
	if d[0] != n {
		d[0] = n
	}
	if d[1] != 1 {
		d[1] = 1
	}
	d[2], d[3] = address, n|uint64(token)<<32
	room := min(n, inlinePayload)
	if !ep.guard.CanScatter(token, address, n) {
		room = 0
	}
	ep.show(room)
}

// awaitNow makes a request of the message that is in the ring already, as the last.
func (ep *Endpoint) awaitNow(k nd.RequestType, reqCtx uint64) *request {
	r := &ep.requests[ep.tail&uint64(len(ep.requests)-1)]
	r.reset(k, 0, reqCtx)
	r.end, r.awaited = ep.conn.out.Pushed(), true
	r.first = r.end - 1
	ep.conn.credit.awaited = r.end
	ep.tail++
	ep.ready, ep.next = ep.tail, ep.tail
	asym.StoreRelease32(&ep.open, uint32(ep.tail-ep.done))
	return r
}

// passWrite lets the peer write into its memory, if there is room. See writeSmall.
func (ep *Endpoint) passWrite(reqCtx uint64, sge *nd.SGE, address uint64, remote nd.Token) (done bool) {
	c := ep.conn
	n := len(sge.Buffer)
	if n > inlineWritePayload || c.out.FreeSlots() == 0 || !c.ref.Connected() {
		return false
	}
	slot := c.out.NextSlot()
	if !ep.guard.Gather(slot.Bytes(2), sge.Token, sge.Buffer) {
		return false
	}
	c.credit.endRow(c.out.Pushed())
	slot[0], slot[1] = smallWrite|uint64(n)<<16|uint64(remote)<<32, address
	c.out.Publish()
	c.out.PrefetchForWrite()
	c.credit.add(c.out.Pushed())
	if !c.peer.Unarmed() {
		c.peer.Ring()
	}
	ep.unstall()
	r := ep.awaitNow(nd.RequestWrite, reqCtx)
	r.total, r.remote, r.token = uint64(n), address, remote
	return true
}

// Word 0 of messages that have nothing special about them, but for their length
// and, of a Write, their token.
const (
	plainSend  = uint64(sendInline) | uint64(flagFirst|flagLast)<<8
	smallWrite = uint64(writeInline) | uint64(flagFirst|flagLast|flagAwaited)<<8
)

// takeRow takes messages of the peer from the one in slot on, as long as there is nothing
// special about them, nor about their receives. It returns how many; the caller releases
// them, and counts the results as taken when they are. See serveSend.
func (ep *Endpoint) takeRow(slot *shm.Slot, results []nd.Result) (n int) {
	in := ep.conn.in
	for n < len(results) {
		if n > 0 {
			slot = in.Front()
		}
		if slot == nil || ep.delivered == ep.posted || ep.shared != nil {
			break
		}
		word := atomic.LoadUint64(&slot[0]) // once: the peer may scribble
		size := word >> 16 & 0xffff
		r := &ep.receives[ep.delivered&uint64(len(ep.receives)-1)]
		e := &r.one[0]
		if word&^(0xffff<<16) != plainSend || size-1 >= inlinePayload || !r.single || size > uint64(e.length) {
			break
		}
		if !ep.guard.Scatter(e.token, e.address, slot.Bytes(1)[:size]) {
			break
		}
		ep.delivered++
		setSuccess(&results[n], nd.RequestReceive, size, ep.receivesTaken.context, r.context)
		if index := in.Advance(); n > 0 { // as in a stream
			in.PrefetchForRead(index)
		}
		n++
	}
	return n
}

// takeOne is takeRow for one message, whose result goes into the queue.
func (ep *Endpoint) takeOne(slot *shm.Slot) bool {
	if ep.takeRow(slot, ep.one[:]) == 0 {
		return false
	}
	r := &ep.one[0]
	ep.receiveCQ.pushSuccess(ep, r.RequestContext, nd.RequestReceive, int(r.BytesTransferred), &ep.receivesTaken)
	c := ep.conn
	if c.in.Unreleased() >= c.in.Size()/4 {
		ep.release(false)
	}
	return true
}

// landNow is takeOne for a Write whose data came within its slot. See serveWrite. The
// memory is ours, so it does no harm that the look at the link comes before the hazard.
func (ep *Endpoint) landNow(slot *shm.Slot) bool {
	c := ep.conn
	word, address := atomic.LoadUint64(&slot[0]), atomic.LoadUint64(&slot[1]) // once: the peer may scribble
	n := word >> 16 & 0xffff
	if word&0xffff != smallWrite || n-1 >= inlineWritePayload || !c.ref.Connected() || !ep.guard.DeliverWrite(nd.Token(word>>32), address, slot.Bytes(2)[:n], ep.number) {
		return false
	}
	c.in.Advance()
	ep.release(true)
	return true
}
