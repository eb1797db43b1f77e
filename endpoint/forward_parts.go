package endpoint

import (
	"math/bits"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// Requests in parts, see relayhook.Order. Such a request is executed like any other, but its local memory is what the program
// passes. The endpoint uses that memory only during the calls of Begin, Give and Take. They copy bytes that they cannot
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
