package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// maxParts is the number of parts into which a transfer is divided at most.
const maxParts = 8

// placement is the order in which the bytes of one transfer are stored. The transfer is divided into parts,
// which are stored in any order, with delays between them. Cuts are at multiples of 8 bytes of the address, because
// no hardware divides an aligned word.
type placement struct {
	order       [maxParts]uint8
	count, next int    // parts, and how many of them are complete; count 0: not drawn yet
	size, skew  uint64 // bytes of a part, and of the address beyond a multiple of 8
	total       uint64
	within      uint64 // bytes of the current part that are stored
	due         uint64 // see weakEndpoint.isDue
}

// draw decides on the parts of a transfer of total bytes to an address.
func (p *placement) draw(random, address, total uint64) {
	*p = placement{count: 1, size: total, total: total}
	if random&1 == 0 || total <= 8 {
		return
	}
	p.skew = address % 8
	p.size = (total/(2+random>>1%(maxParts-1)) + 7) / 8 * 8
	p.size = max(p.size, 8)
	for p.count = int((p.skew + total + p.size - 1) / p.size); p.count > maxParts; p.count = int((p.skew + total + p.size - 1) / p.size) {
		p.size += 8
	}
	for i := range p.count { // shuffle
		random = random>>5 | random<<59
		other := int(random % uint64(i+1))
		p.order[i] = p.order[other]
		p.order[other] = uint8(i)
	}
}

// part returns where the next bytes are stored, relative to the start of the transfer, and how many at most.
func (p *placement) part() (at, n uint64) {
	i := uint64(p.order[p.next])
	start, end := i*p.size, min((i+1)*p.size, p.skew+p.total)
	start, end = start-min(start, p.skew), end-p.skew
	return start + p.within, end - start - p.within
}

// advance counts n bytes as stored.
func (p *placement) advance(n uint64) {
	if _, left := p.part(); n < left {
		p.within += n
		return
	}
	p.next, p.within, p.due = p.next+1, 0, 0
}

// nextPart is placement.part for a request or entry of the peer, which has a number. It draws the placement at the first
// call. n is 0 while the part is delayed.
func (w *weakEndpoint) nextPart(p *placement, number, address, total uint64) (at, n uint64) {
	if p.count == 0 {
		p.draw(w.draw(ofPlacement, number), address, total)
	}
	if p.next > 0 && p.within == 0 && !w.isDue(&p.due, w.steps(ofPlacement, number<<8|uint64(p.next))) {
		return 0, 0
	}
	return p.part()
}

// nextBytes returns which bytes of request r this process copies next, and how many at most. n is 0 while they
// are delayed.
func (ep *queuePair) nextBytes(r *request, budget uint64) (at, n uint64) {
	w := ep.weak
	if w == nil || r.sum != nil { // a hash needs the bytes in order
		return r.Transferred, budget
	}
	number, address := w.numberOf(r), r.RemoteAddress
	if r.Kind == nd.RequestRead {
		address = r.SGEs[0].Address
	}
	at, n = w.nextPart(&w.request(number).placement, number, address, r.Total)
	return at, min(n, budget)
}

func (w *weakEndpoint) advanceRequest(r *request, n uint64) {
	if w != nil && r.sum == nil {
		w.request(w.numberOf(r)).placement.advance(n)
	}
}

// numberOf returns the number of r: it is the next request, or a Read that is set aside.
func (w *weakEndpoint) numberOf(r *request) uint64 {
	for _, number := range w.reads {
		if w.ep.requestAt(number) == r {
			return number
		}
	}
	return w.ep.req.next
}

// messageState returns the state of the entry at the front of the peer's ring.
func (w *weakEndpoint) messageState() (s *weakMessage, number uint64) {
	number = w.ep.conn.in.Consumed()
	if s = &w.message; s.id != number+1 {
		*s = weakMessage{id: number + 1}
	}
	return s, number
}

// fragmentPart is nextPart for the entry of a Read or Write of the peer. The sink of a Write is memory of this process.
func (w *weakEndpoint) fragmentPart(entry *wire.Entry) (at, n uint64) {
	if done := w.ep.resp.fragmentCopied; entry.Flags&wire.FlagHashed != 0 { // in order, as in nextBytes
		return done, entry.FragmentLength - done
	}
	s, number := w.messageState()
	address := entry.ReceiverAddress
	if entry.Kind == wire.ReadFragment {
		address = entry.SenderAddress
	}
	return w.nextPart(&s.placement, number, address, entry.FragmentLength)
}

func (w *weakEndpoint) advanceFragment(entry *wire.Entry, n uint64) {
	if w != nil && entry.Flags&wire.FlagHashed == 0 {
		w.message.placement.advance(n)
	}
}

// placeWriteInEntry is serveWriteInEntry in parts. The whole range is checked before the first of them.
func (w *weakEndpoint) placeWriteInEntry(entry *wire.Entry) outcome {
	ep, total := w.ep, uint64(entry.PayloadLength)
	s, number := w.messageState()
	sink := window.Operand{Token: entry.Token, Rights: window.Remote | window.Write, Address: entry.ReceiverAddress, Endpoint: ep.number, BindCheck: &ep.resp.localBindCheck}
	if ep.sink = sink; s.placement.count == 0 {
		if f := ep.guard.Check(&ep.sink, total); f != window.NoFault {
			ep.failAccess(entry, &ep.sink, total, f)
			return executed
		}
	}
	for s.placement.count == 0 || s.placement.next < s.placement.count {
		at, n := w.nextPart(&s.placement, number, entry.ReceiverAddress, total)
		if n == 0 {
			return blocked
		}
		ep.sink, ep.source = sink, window.Operand{Mem: entry.Payload[at:][:n]}
		ep.sink.Address += at
		if _, f, _ := ep.guard.Copy(&ep.sink, &ep.source, n); f != window.NoFault {
			ep.failAccess(entry, &ep.sink, n, f)
			return executed
		}
		s.placement.advance(n)
	}
	return executed
}

// beforeServe delays the entry at the front of the peer's ring. It may store the data of a message some time
// before the receive completes. If it reports true, out replaces the outcome of serveEntry.
func (w *weakEndpoint) beforeServe(entry *wire.Entry) (out outcome, handled bool) {
	ep := w.ep
	s, number := w.messageState()
	if !w.isDue(&s.start, w.steps(ofMessages, number)) {
		return blocked, true
	}
	n := uint64(entry.PayloadLength)
	if entry.Kind != wire.SendInEntry || entry.Flags&wire.FlagInvalidate != 0 || ep.rq.completed == ep.rq.posted {
		return 0, false
	}
	r := ep.receiveAt(ep.rq.completed)
	if n > r.capacity {
		return 0, false
	}
	if !s.isPlaced {
		ep.source = window.Operand{Mem: entry.Payload[:]}
		if !ep.fillReceive(r, 0, n) {
			return ep.stoppedOutcome(), true
		}
		s.isPlaced = true
	}
	return blocked, !w.isDue(&s.delivery, w.steps(ofDelivery, number)) // then serveEntry stores it once more
}
