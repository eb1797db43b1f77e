package endpoint

import (
	"math/bits"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Requests in parts, see relayhook.Order. Such a request is executed like any other, but its local memory is what the program
// passes. The engine uses that memory only during the calls of Begin, Give and Take. They copy bytes that they cannot
// use. Where bytes or room are missing, the request is blocked, and the next of these calls continues it.

// parts is the local memory of an endpoint's requests in parts.
type parts struct {
	given []byte // bytes of the Begin or Give in progress that no request has used
	room  []byte // room for the bytes of a Read, of the Take in progress

	// Bytes that no request could use when they were given. They are before those of given. The length of the buffer is
	// a power of 2.
	held       []byte
	head, tail uint64 // bytes put into the buffer, and used of it

	used    atomic.Uint64 // bytes of Sends and Writes that requests have used
	bounced uint64        // bytes of the Read in a bounce buffer that were taken
}

// firstHeld is the size of a new buffer.
const firstHeld = 4 << 10

// noRoom names local memory of a request in parts before the program has passed any.
var noRoom = []byte{}

// available returns how many bytes of r can be copied now, of which operand may return fewer.
func (p *parts) available(r *request) uint64 {
	if r.Kind == nd.RequestRead {
		return uint64(len(p.room))
	}
	return p.head - p.tail + uint64(len(p.given))
}

// operand returns the next local bytes of r.
func (p *parts) operand(r *request) []byte {
	switch {
	case r.Kind == nd.RequestRead && p.room == nil:
		return noRoom
	case r.Kind == nd.RequestRead:
		return p.room
	case p.head != p.tail:
		at := p.tail & uint64(len(p.held)-1)
		return p.held[at:min(uint64(len(p.held)), at+p.head-p.tail)]
	}
	return p.given
}

// advance counts n bytes of operand as used.
func (p *parts) advance(r *request, n uint64) {
	switch {
	case r.Kind == nd.RequestRead:
		p.room = p.room[n:]
		return
	case p.head != p.tail:
		p.tail += n
	default:
		p.given = p.given[n:]
	}
	p.used.Store(p.used.Load() + n)
}

// hold copies the bytes of given that no request could use.
func (p *parts) hold() {
	n := uint64(len(p.given))
	if n == 0 {
		return
	}
	if have := p.head - p.tail; have+n > uint64(len(p.held)) {
		larger := make([]byte, max(firstHeld, 1<<bits.Len64(have+n-1)))
		for i := uint64(0); i < have; {
			at := p.tail & uint64(len(p.held)-1)
			k := copy(larger[i:have], p.held[at:])
			i, p.tail = i+uint64(k), p.tail+uint64(k)
		}
		p.held, p.tail, p.head = larger, 0, have
	}
	for len(p.given) > 0 {
		at := p.head & uint64(len(p.held)-1)
		k := copy(p.held[at:], p.given)
		p.given, p.head = p.given[k:], p.head+uint64(k)
	}
	p.given = nil
}

// setOperand is Request.SetOperand, also for a request in parts. operand is ep.sink or ep.source.
func (r *request) setOperand(operand *window.Operand, e wire.SGE, rights window.Rights) {
	if r.parts != nil {
		*operand = window.Operand{Mem: r.parts.operand(r)} // at least e.Length bytes, or only named for a check
		return
	}
	r.SetOperand(operand, e, rights)
}

// limit returns how many of the next n bytes of r, at most, are one range of local memory. 0 means that r is blocked.
func (r *request) limit(n uint64) uint64 {
	if r.parts == nil {
		return n
	}
	return min(n, uint64(len(r.parts.operand(r))))
}

// advance counts n bytes of r as copied.
func (r *request) advance(n uint64) {
	r.Transferred += n
	if r.parts != nil {
		r.parts.advance(r, n)
	}
}

// isIncomplete reports whether the data of a Send or Write that fits a ring entry has not arrived. A part of it may be copied:
// held bytes can be two ranges.
func (r *request) isIncomplete() bool {
	return r.parts != nil && r.Kind != nd.RequestRead && r.Total <= wire.MaxSendInEntry && r.parts.available(r) < r.Total-r.Transferred
}

// awaitsParts reports whether only the program can continue r, by a call of Give or Take.
func (r *request) awaitsParts() bool {
	return r.parts != nil && (r.Kind != nd.RequestSend || r.hasReceive) && r.Transferred < r.Total && r.parts.available(r) == 0
}

// Begin posts a request in parts.
func (ep *queuePair) Begin(o *relayhook.Order, data []byte) error {
	kind, flags := nd.RequestSend, nd.OpFlags(0)
	switch o.Kind {
	case relayhook.Write:
		kind = nd.RequestWrite
	case relayhook.Read:
		kind = nd.RequestRead
	}
	if o.Solicited {
		flags = nd.SendAndSolicitEvent
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest("relay", kind, flags, o.Context)
	if err != nil {
		return err
	}
	r.parts, r.Total, r.Invalidate = ep.parts, o.Total, o.Invalidate
	r.RemoteAddress, r.RemoteToken = o.Address, o.Token
	if o.Total > 0 {
		r.SGEs = append(r.SGEs, wire.SGE{Length: uint32(o.Total)})
	}
	if o.Hashed && o.Total > 0 {
		ep.payloadChecks().Expect(&r.Request, o.Hash)
	}
	ep.sq.posted++
	ep.sq.slotsTaken++
	ep.req.submitted = ep.sq.posted
	ep.give(data)
	return nil
}

// Give passes the next bytes of the Sends and Writes that were begun.
func (ep *queuePair) Give(data []byte) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.give(data)
}

func (ep *queuePair) give(data []byte) {
	ep.parts.given = data
	ep.runParts()
	if ep.state() == connected {
		ep.parts.hold()
	}
	ep.parts.given = nil
}

// runParts runs requests after the program has passed bytes or room. It wakes no other goroutine: this one waits or polls next.
func (ep *queuePair) runParts() {
	budget := uint64(quantum)
	ep.runRequests(&budget)
	asym.StoreRelease32(&ep.uncompleted, uint32(ep.sq.posted-ep.sq.completed))
}

// Take stores the next bytes of a Read in to.
func (ep *queuePair) Take(context uint64, to []byte) (n int) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	p := ep.parts
	if ep.req.next == ep.req.submitted {
		return 0
	}
	if r := ep.requestAt(ep.req.next); r.Kind != nd.RequestRead || r.context != context {
		return 0 // an earlier request is not executed
	}
	p.room = to
	ep.runParts()
	n = len(to) - len(p.room)
	p.room = nil
	return n
}

// Used returns how many bytes of those given have been used.
func (ep *queuePair) Used() uint64 { return ep.parts.used.Load() }

// bounceToRoom stores the data of a Read, which has arrived in a bounce buffer, in the room that the program passes.
func (ep *queuePair) bounceToRoom(r *request) outcome {
	p := r.parts
	n := copy(p.room, ep.req.bounce.mem[r.bounceIndex*bounceSize:][:r.bounceSGE.Length][p.bounced:])
	p.room, p.bounced = p.room[n:], p.bounced+uint64(n)
	if p.bounced < uint64(r.bounceSGE.Length) {
		return blocked
	}
	p.bounced, r.bounceIndex = 0, -1
	return executed
}
