package endpoint

// TWIN c/src/endpoint/resp_serve.c.

import (
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/cq"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// serveSendsFast receives consecutive Sends of the peer whose data is in the ring entry. It stores the
// results in results, and returns their number. Parameter entry is the first ring entry in its slot, or nil.
//
// serveSendsFast stops at the first entry or receive that needs the slow path. That is an entry other than
// a wire.PlainSend. Or it is a receive that has several scatter/gather entries, is too small, or has memory
// that the guard refuses. The caller releases the ring entries. When a poll returns the results, the caller
// adds their number to the freed slots of the receive queue (rq.slots).
func (ep *queuePair) serveSendsFast(entry *ring.Words, results []nd.Result) (received int) {
	in := ep.conn.in
	for received < len(results) {
		if received > 0 {
			entry = in.Front()
		}
		if entry == nil || ep.rq.completed == ep.rq.posted || ep.srq != nil {
			break
		}
		header := atomic.LoadUint64(&entry[0]) // loaded once: the peer can overwrite it
		n := wire.PayloadLength(header)
		r := ep.receiveAt(ep.rq.completed)
		sge := &r.single[0] // the receive's only scatter/gather entry, if isSingle
		if !wire.IsPlainSend(header) || n-1 >= wire.MaxSendInEntry || !r.isSingle || n > uint64(sge.Length) {
			break
		}
		if !ep.guard.DeliverSend(sge.Address, sge.Token, entry.Bytes(1)[:n]) {
			break
		}
		ep.rq.completed++
		cq.SetSuccess(&results[received], nd.RequestReceive, n, ep.rq.slots.Context, r.context)
		if number := in.Advance(); received > 0 { // prefetch only in a stream of messages
			in.PrefetchForRead(number)
		}
		received++
	}
	return received
}

// serveSendFast is serveSendsFast for one message. It adds the result to the completion queue and
// reports whether it has received the message.
func (ep *queuePair) serveSendFast(entry *ring.Words) bool {
	if ep.serveSendsFast(entry, ep.resp.result[:]) == 0 {
		return false
	}
	r := &ep.resp.result[0]
	ep.rq.cq.pushSuccess(ep, r.RequestContext, nd.RequestReceive, int(r.BytesTransferred), &ep.rq.slots)
	c := ep.conn
	if c.in.Unreleased() >= c.in.Size()/4 { // in batches: each release moves a cache line to the peer
		ep.releaseEntries(false)
	}
	return true
}

// serveWriteFast is serveWrite for the fast path. It reports whether it has run the Write, whose data is in the entry.
// The sink is memory of this process, so the connection may be checked before the hazard is published.
func (ep *queuePair) serveWriteFast(entry *ring.Words) bool {
	c := ep.conn
	header, address := atomic.LoadUint64(&entry[0]), atomic.LoadUint64(&entry[1]) // loaded once: the peer can overwrite them
	n := wire.PayloadLength(header)
	if !wire.IsPlainWrite(header) || n-1 >= wire.MaxWriteInEntry || !c.far.IsOpen() ||
		!ep.guard.DeliverWrite(address, wire.Token(header), entry.Bytes(2)[:n], ep.number) {
		return false
	}
	c.in.Advance()
	ep.releaseEntries(true) // the peer's Write completes when its entry is released
	return true
}
