package endpoint

import (
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// serveSendsFast receives consecutive Sends of the peer whose data is in the ring entry, stores the
// results in results, and returns their number. Parameter slot is the first entry, or nil. It stops
// at the first entry or receive that needs the slow path; serveSendInEntry lists the cases. The caller releases the ring entries, and adds the results to rq.slots when a poll returns them.
func (ep *queuePair) serveSendsFast(slot *ring.Words, results []nd.Result) (n int) {
	in := ep.conn.in
	for n < len(results) {
		if n > 0 {
			slot = in.Front()
		}
		if slot == nil || ep.rq.completed == ep.rq.posted || ep.srq != nil {
			break
		}
		word := atomic.LoadUint64(&slot[0]) // loaded once: the peer can overwrite it
		size := word >> 16 & 0xffff
		r := ep.receiveAt(ep.rq.completed)
		e := &r.single[0]
		if word&^(0xffff<<16) != wire.PlainSend || size-1 >= wire.MaxSendInEntry || !r.isSingle || size > uint64(e.Length) {
			break
		}
		if !ep.guard.DeliverSend(e.Address, e.Token, slot.Bytes(1)[:size]) {
			break
		}
		ep.rq.completed++
		setSuccess(&results[n], nd.RequestReceive, size, ep.rq.slots.context, r.context)
		if index := in.Advance(); n > 0 { // prefetch only in a stream of messages
			in.PrefetchForRead(index)
		}
		n++
	}
	return n
}

// serveSendFast is serveSendsFast for one message. It adds the result to the completion queue and
// reports whether it has received the message.
func (ep *queuePair) serveSendFast(slot *ring.Words) bool {
	if ep.serveSendsFast(slot, ep.resp.result[:]) == 0 {
		return false
	}
	r := &ep.resp.result[0]
	ep.rq.cq.pushSuccess(ep, r.RequestContext, nd.RequestReceive, int(r.BytesTransferred), &ep.rq.slots)
	c := ep.conn
	if c.in.Unreleased() >= c.in.Size()/4 {
		ep.releaseEntries(false)
	}
	return true
}

// serveWriteFast is serveWriteInEntry for the fast path. It reports whether it has run the Write. The
// sink is memory of this process, so the connection may be checked before the hazard is published.
func (ep *queuePair) serveWriteFast(slot *ring.Words) bool {
	c := ep.conn
	word, address := atomic.LoadUint64(&slot[0]), atomic.LoadUint64(&slot[1]) // loaded once: the peer can overwrite them
	n := word >> 16 & 0xffff
	if word&0xffff != wire.PlainWrite || n-1 >= wire.MaxWriteInEntry || !c.guardPeer.Connected() || !ep.guard.DeliverWrite(address, nd.Token(word>>32), slot.Bytes(2)[:n], ep.number) {
		return false
	}
	c.in.Advance()
	ep.releaseEntries(true)
	return true
}
