package endpoint

import (
	"time"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// request is one request of the initiator queue.
type request struct {
	kind    nd.RequestType
	flags   nd.OpFlags
	context uint64
	sges    []wire.SGE // the capacity is allocated once
	total   uint64

	inline []byte // data of a request with nd.Inline; the capacity is allocated once
	parts  *parts // local memory of a request in parts; nil = none

	remoteAddress uint64
	remoteToken   nd.Token              // remote token, or the token to invalidate at the peer
	invalidate    bool                  // SendAndInvalidate
	sum           *payloadSum           // nil = the payload is not checked, or has been
	binding       window.Prepared       // Bind and FastRegister
	object        *window.Invalidatable // window or region to bind, register or invalidate

	// Progress.
	postedAfterEnd  bool             // posted when the connection had ended: it can only be canceled
	responderCopies bool             // the peer copies the data: the request goes through the ring
	hasReceive      bool             // the peer has a receive for this Send
	stalls          uint8            // a bit for each stallCause that has been counted
	transferred     uint64           // bytes copied or, through the ring, sent in fragments
	localBindCheck  window.BindCheck // bind of the local token that is in use
	remoteBindCheck window.BindCheck // bind of the remote token that is in use
	draining        bool             // an Invalidate has revoked its tokens and waits for the drain
	hasInvalidated  bool             // the Invalidate is complete
	deadline        time.Time        // of a Send that has no receive
	bounceIndex     int              // bounce buffer that receives the data of a Read; -1 = none
	bounceSGE       wire.SGE         // the part of that buffer in use

	// Outcome.
	needsAck   bool   // the request completes when the peer has consumed its last entry
	firstEntry uint64 // number of its first ring entry
	endEntry   uint64 // number after its last ring entry; 0 = none
	status     nd.Status
	finished   bool // status is final

	// Fault plan.
	fault       *pendingFault // rule that acts on the request; nil = none
	faultWindow uint64        // number of the window or token for rules; 0 = none, or no rule asks for it
	faultPhases uint8         // a bit for each phase in which the plan has been asked
}

// reset clears a request for its next use. It keeps the allocated capacities.
func (r *request) reset(k nd.RequestType, flags nd.OpFlags, context uint64) {
	sges, inline := r.sges[:0], r.inline[:0]
	*r = request{} // a statement of its own: the compiler then clears r in place, without a copy
	r.kind, r.flags, r.context = k, flags, context
	r.sges, r.inline, r.bounceIndex = sges, inline, -1
}

// entryFlags returns the flags of a ring entry that depend on the flags of the request. Every request that uses
// the ring calls it. The flags of a Send alone are invalidate and solicited.
func (r *request) entryFlags() (flags uint8) {
	if r.invalidate {
		flags |= wire.FlagInvalidate
	}
	if r.flags.Has(nd.SendAndSolicitEvent) {
		flags |= wire.FlagSolicited
	}
	if r.sum != nil {
		flags |= wire.FlagHashed
	}
	return flags
}

// fitsEntry reports whether the data of r fits a ring entry of a kind.
func (r *request) fitsEntry(k wire.Kind) bool { return r.total <= wire.Room(k, r.sum != nil) }

// appendSGEs appends the entries of sge that are not empty. It also returns their length in bytes.
func appendSGEs(to []wire.SGE, sge []nd.SGE) ([]wire.SGE, uint64) {
	total := uint64(0)
	for i := range sge {
		b := sge[i].Buffer
		if len(b) == 0 {
			continue
		}
		to = append(to, wire.SGE{Address: shm.AddressOf(b), Length: uint32(len(b)), Token: sge[i].Token})
		total += uint64(len(b))
	}
	return to, total
}

// sgeAt returns the part of one entry that begins at byte at of the whole list, up to the end of
// that entry. It returns the zero entry if the list is shorter.
func sgeAt(entries []wire.SGE, at uint64) wire.SGE {
	for _, e := range entries {
		if at < uint64(e.Length) {
			return wire.SGE{Address: e.Address + at, Length: e.Length - uint32(at), Token: e.Token}
		}
		at -= uint64(e.Length)
	}
	return wire.SGE{}
}
