package endpoint

// TWIN c/src/endpoint/endpoint.h, c/src/endpoint/req_execute.c.

import (
	"math/bits"
	"time"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// request is one request of the initiator queue.
type request struct {
	mode.Request
	context uint64

	parts   *parts          // local memory of a request in parts; nil = none
	binding window.Prepared // Bind and FastRegister

	// Progress.
	hasReceive      bool             // the peer has a receive for this Send, or Write with immediate data
	stalls          uint8            // a bit for each stallCause that has been counted
	remoteBindCheck window.BindCheck // bind of the remote token that is in use
	deadline        time.Time        // of a Send that has no receive
	bounceIndex     int              // bounce buffer that receives the data of a Read; -1 = none
	bounceSGE       wire.SGE         // the part of that buffer in use
	operand, swap   uint64           // of an atomic
	hasChanged      bool             // an atomic has changed the peer's memory, and
	old             uint64           // this was the value before
	oldTo           *uint64          // place of the old value, if that is not local memory with a token
	resultIndex     uint64           // of an atomic: in the peer's SharedQP.Results
	needsAck        bool             // the request completes when the peer has consumed its last entry
	firstEntry      uint64           // number of its first ring entry
}

// reset clears a request for its next use. It keeps the allocated capacities.
func (r *request) reset(k nd.RequestType, flags nd.OpFlags, context uint64) {
	sges, inline := r.SGEs[:0], r.Inline[:0]
	*r = request{} // a statement of its own: the compiler then clears r in place, without a copy
	r.Kind, r.Flags, r.context = k, flags, context
	r.SGEs, r.Inline, r.bounceIndex = sges, inline, -1
}

// entryFlags returns the flags of a ring entry that depend on the flags of the request. Every request that uses
// the ring calls it. The flags of a Send alone are invalidate and solicited.
func (r *request) entryFlags() (flags uint8) {
	if r.Invalidate {
		flags |= wire.FlagInvalidate
	}
	if r.Flags.Has(nd.SendAndSolicitEvent) {
		flags |= wire.FlagSolicited
	}
	return flags | r.DataFlags()
}

// appendSGEs appends the entries of sge that are not empty. It also returns their length in bytes.
func appendSGEs(to []wire.SGE, sge *nd.SGL) ([]wire.SGE, uint64) {
	total := uint64(0)
	for i := range sge.Len() {
		e := sge.At(i)
		n := len(e.Buffer)
		if n == 0 {
			continue
		}
		to = append(to, wire.SGE{Address: shm.AddressOf(e.Buffer), Length: uint32(n), Token: e.Token})
		total += uint64(n)
	}
	return to, total
}

// cancel finishes a request that is never executed.
func (r *request) cancel() {
	r.cancelBinding()
	r.Finish(nd.Canceled)
}

// cancelBinding gives the tokens of a Bind or FastRegister back that is not executed.
func (r *request) cancelBinding() {
	if r.binding != nil {
		r.binding.Cancel()
		r.binding = nil
	}
}

// bytesTransferred returns the number of bytes in the result of a successful request.
func (r *request) bytesTransferred() uint32 {
	switch r.Kind {
	case nd.RequestSend, nd.RequestRead, nd.RequestWrite, nd.RequestFetchAndAdd, nd.RequestCompareAndSwap, nd.RequestSwap:
		return uint32(r.Total)
	}
	return 0
}

// stallCause says what a request waits for.
type stallCause uint8

const (
	stallReceive stallCause = iota // the peer has no receive posted
	stallQueue                     // the ring or the bounce buffers are full
	stallOrder                     // earlier requests must complete first
	stallDrain                     // the peer uses a token that an Invalidate has revoked
	stallCauses
)

var stallText = [stallCauses]string{"the peer to post a receive", "free ring entries", "earlier requests", "the end of an access of the peer"}

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

// takesReceive reports whether r takes a receive of the peer.
func (r *request) takesReceive() bool { return r.Kind == nd.RequestSend || r.HasImmediate }

// awaitsParts reports whether only the program can continue r, by a call of Give or Take.
func (r *request) awaitsParts() bool {
	return r.parts != nil && (r.hasReceive || !r.takesReceive()) && r.Transferred < r.Total && r.parts.available(r) == 0
}

// receive is one posted receive.
type receive struct {
	context  uint64
	capacity uint64
	single   [1]wire.SGE // the only entry if isSingle, in the same cache line
	isSingle bool
	list     []wire.SGE // all entries if not isSingle; the capacity is allocated once
}

// sges returns the scatter/gather entries.
func (r *receive) sges() []wire.SGE {
	if r.isSingle {
		return r.single[:]
	}
	return r.list
}

// set sets the context and the scatter/gather entries of a receive.
func (r *receive) set(context uint64, sge *nd.SGL) {
	r.context = context
	r.list, r.capacity = appendSGEs(r.list[:0], sge)
	r.setSingle()
}

// setSingle moves the only entry of a list of one into single.
func (r *receive) setSingle() {
	if r.isSingle = len(r.list) == 1; r.isSingle {
		r.single[0] = r.list[0]
	}
}

// copyFrom makes r a copy of another receive.
func (r *receive) copyFrom(from *receive) {
	r.context, r.capacity = from.context, from.capacity
	r.list = append(r.list[:0], from.sges()...)
	r.setSingle()
}

// newReceives allocates receives and their entries, so that posting never allocates.
func newReceives(n uint64, sge int) []receive {
	receives := make([]receive, n)
	entries := make([]wire.SGE, len(receives)*sge)
	for i := range receives {
		receives[i].list = entries[i*sge : i*sge : (i+1)*sge]
	}
	return receives
}

func ceilPowerOfTwo(n uint64) uint64 { return 1 << bits.Len64(n-1) }
