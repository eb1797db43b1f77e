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
	ep.initiatorCQ.succeed(ep, reqCtx, k, n, &ep.taken)
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
func (ep *Endpoint) takeBackNow(reqCtx uint64, l window.Loan) bool {
	if !ep.undisturbed() {
		return false
	}
	token, drained, ok := l.TakeBack(ep.number)
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

// receiveNow posts a receive of one entry.
func (ep *Endpoint) receiveNow(reqCtx uint64, sge *nd.SGE) (done bool) {
	n := uint64(len(sge.Buffer))
	if n-1 >= maxTransfer || ep.shared != nil {
		return false
	}
	if !ep.mu.Enter() {
		ep.mu.Lock()
	}
	done = ep.describe(reqCtx, sge, n)
	ep.mu.Unlock()
	return done
}

func (ep *Endpoint) describe(reqCtx uint64, sge *nd.SGE, n uint64) bool {
	if ep.now.Load() != uint32(connected) || ep.posted-ep.receivesTaken.taken.Load() >= ep.receiveDepth || ep.adapter.privileged.Load() != 0 {
		return false
	}
	address, token := shm.AddressOf(sge.Buffer), sge.Token
	r := &ep.receives[ep.posted&uint64(len(ep.receives)-1)]
	r.context, r.capacity, r.entries = reqCtx, n, r.entries[:1]
	r.one.address, r.one.length, r.one.token = address, uint32(n), token
	e := &r.entries[0]
	e.address, e.length, e.token = address, uint32(n), token
	ep.posted++
	d := ep.descriptor()
	d[0], d[1], d[2], d[3] = n, 1, address, n|uint64(token)<<32
	room := min(n, inlinePayload)
	if !ep.guard.CanFill(token, address, n) {
		room = 0
	}
	ep.show(room)
	return true
}

// sendNow puts a message into a slot if the peer is sure to take it: a receive
// is posted that has room for any small message. See executeSend and sendSmall.
func (ep *Endpoint) sendNow(reqCtx uint64, sge *nd.SGE) (done bool) {
	c := ep.conn
	if c.allowance == 0 && !c.look() || uint64(len(sge.Buffer)) > c.reach {
		return false
	}
	slot := c.out.Next()
	if !ep.guard.Take(slot.Bytes(1), sge.Token, sge.Buffer) {
		return false
	}
	slot[0] = head(sendInline, flagFirst|flagLast, len(sge.Buffer), 0)
	index := c.out.Publish()
	c.unplaced = index + 1
	c.taken++
	c.allowance--
	if !c.peer.Quiet() {
		c.peer.Ring()
	}
	ep.unstall()
	if c.ref.Link.IsOpen() { // ORDER conn-state: after the push; see published
		ep.succeedNow(nd.RequestSend, reqCtx, len(sge.Buffer))
		return true
	}
	// The connection is ending, and only the peer knows whether it has taken this.
	r := ep.awaitNow(nd.RequestSend, reqCtx, index)
	r.total = uint64(len(sge.Buffer))
	return true
}

// awaitNow makes a request of a message that is in the ring already.
func (ep *Endpoint) awaitNow(k nd.RequestType, reqCtx, index uint64) *request {
	r := &ep.requests[ep.tail&uint64(len(ep.requests)-1)]
	r.reset(k, 0, reqCtx)
	r.first, r.end, r.awaited = index, index+1, true
	ep.conn.end = r.end
	ep.tail++
	ep.ready, ep.next = ep.tail, ep.tail
	asym.Store32(&ep.open, uint32(ep.tail-ep.done))
	return r
}

// passWrite lets the peer write into its memory, if there is room. See writeSmall.
func (ep *Endpoint) passWrite(reqCtx uint64, sge *nd.SGE, address uint64, remote nd.Token) (done bool) {
	c := ep.conn
	n := len(sge.Buffer)
	if n > inlineWritePayload || c.out.Room() == 0 || !c.ref.Link.IsOpen() {
		return false
	}
	slot := c.out.Next()
	if !ep.guard.Take(slot.Bytes(2), sge.Token, sge.Buffer) {
		return false
	}
	slot[0], slot[1] = smallWrite|uint64(n)<<16|uint64(remote)<<32, address
	index := c.out.Publish()
	c.allowance = 0 // there is less room
	if !c.peer.Quiet() {
		c.peer.Ring()
	}
	ep.unstall()
	r := ep.awaitNow(nd.RequestWrite, reqCtx, index)
	r.total, r.remote, r.token = uint64(n), address, remote
	return true
}

// look finds out how many small messages may go without another look at the
// peer's half, and how long they may be. false means none.
func (c *connection) look() bool {
	if c.shared || !c.credit() {
		return false
	}
	c.allowance, c.reach = min(c.seen-c.taken, c.out.Room()), inlinePayload
	if !c.fits(inlinePayload) {
		c.reach = c.room
	}
	return c.allowance != 0
}

// takeInto is serve for one who has room for results: it takes messages as long
// as there is nothing special about anything. It returns how many.
func (ep *Endpoint) takeInto(room []nd.Result) (n int) {
	c := ep.conn
	if ep.now.Load() != uint32(connected) || ep.done != ep.tail || ep.halfway || !ep.receiveCQ.passes() || !c.ref.Link.IsOpen() {
		return 0
	}
	for ; n < len(room); n++ {
		slot := c.in.Front()
		if slot == nil || !ep.takeNow(slot, &room[n]) {
			break
		}
	}
	if n > 0 {
		ep.release(false) // the peer may hold requests back until it knows
	}
	return n
}

// Word 0 of messages that have nothing special about them, but for their length
// and, of a Write, their token.
var (
	plainSend  = head(sendInline, flagFirst|flagLast, 0, 0)
	smallWrite = head(writeInline, flagFirst|flagLast|flagAwaited, 0, 0)
)

// takeNow takes the peer's oldest message if it has nothing special about it,
// and the receive neither. The result goes to, or if that is nil into the queue.
// See serveSend.
func (ep *Endpoint) takeNow(slot *shm.Slot, to *nd.Result) bool {
	c := ep.conn
	word := atomic.LoadUint64(&slot[0]) // once: the peer may scribble
	n := word >> 16 & 0xffff
	if word&^(0xffff<<16) != plainSend || n-1 >= inlinePayload || ep.delivered == ep.posted || ep.shared != nil {
		return false
	}
	r := &ep.receives[ep.delivered&uint64(len(ep.receives)-1)]
	if len(r.entries) != 1 {
		return false
	}
	e := &r.one
	if n > uint64(e.length) || !ep.guard.Fill(e.token, e.address, slot.Bytes(1)[:n]) {
		return false
	}
	ep.delivered++
	if to != nil {
		*to = nd.Result{BytesTransferred: uint32(n), EndpointContext: ep.context, RequestContext: r.context, RequestType: nd.RequestReceive}
		ep.receivesTaken.add(1)
	} else {
		ep.receiveCQ.succeed(ep, r.context, nd.RequestReceive, int(n), &ep.receivesTaken)
	}
	c.in.Advance()
	if c.in.Unreleased() >= c.in.Size()/4 {
		ep.release(false)
	}
	return true
}

// landNow is takeNow for a Write whose data came within its slot. See serveWrite. The
// memory is ours, so it does no harm that the look at the link comes before the hazard.
func (ep *Endpoint) landNow(slot *shm.Slot) bool {
	c := ep.conn
	word, address := atomic.LoadUint64(&slot[0]), atomic.LoadUint64(&slot[1]) // once: the peer may scribble
	n := word >> 16 & 0xffff
	if word&0xffff != smallWrite || n-1 >= inlineWritePayload || !c.ref.Link.IsOpen() || !ep.guard.Land(nd.Token(word>>32), address, slot.Bytes(2)[:n], ep.number) {
		return false
	}
	c.in.Advance()
	ep.release(true)
	return true
}
