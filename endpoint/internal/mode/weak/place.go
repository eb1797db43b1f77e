package weak

// TWIN c/src/endpoint/weak_place.c.

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
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
	due         uint64 // see Hook.isDue
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
func (w *Hook) nextPart(p *placement, number, address, total uint64) (at, n uint64) {
	if p.count == 0 {
		p.draw(w.draw(ofPlacement, number), address, total)
	}
	if p.next > 0 && p.within == 0 && !w.isDue(&p.due, w.steps(ofPlacement, number<<8|uint64(p.next))) {
		return 0, 0
	}
	return p.part()
}

// Bytes chooses the bytes that this process copies next. Those in the ring are in order, and so are those of a hash.
func (w *Hook) Bytes(r *mode.Request, n uint64) (at, m uint64, a mode.Answer) {
	if r.ResponderCopies || r.Hashed {
		return w.Hook.Bytes(r, n)
	}
	address := r.RemoteAddress
	if r.Kind == nd.RequestRead {
		address = r.SGEs[0].Address
	}
	if at, m = w.nextPart(&w.state(r).placement, r.Number, address, r.Total); m == 0 {
		return 0, 0, mode.Hold
	}
	return at, min(m, n), mode.Run
}

// Copied counts bytes of a request as stored.
func (w *Hook) Copied(r *mode.Request, n uint64) {
	if !r.Hashed {
		w.state(r).placement.advance(n)
	}
	w.Hook.Copied(r, n)
}

// front returns the state of the entry at the front of the peer's ring.
func (w *Hook) front() (s *message, number uint64) {
	number = w.ep.EntryNumber()
	if s = &w.message; s.id != number+1 {
		*s = message{id: number + 1}
	}
	return s, number
}

// ServedBytes is Bytes for the entry of a Read or Write of the peer. The sink of a Write is memory of this process.
func (w *Hook) ServedBytes(e *wire.Entry, done, size uint64) (at, n uint64) {
	if e.Flags&wire.FlagHashed != 0 {
		return w.Hook.ServedBytes(e, done, size)
	}
	s, number := w.front()
	address := e.ReceiverAddress
	if e.Kind == wire.ReadFragment {
		address = e.SenderAddress
	}
	return w.nextPart(&s.placement, number, address, size)
}

// CopiedServed counts bytes of the entry as stored.
func (w *Hook) CopiedServed(e *wire.Entry, n uint64) {
	if e.Flags&wire.FlagHashed == 0 {
		w.message.placement.advance(n)
	}
	w.Hook.CopiedServed(e, n)
}
