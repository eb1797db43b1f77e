package endpoint

import (
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
	hasReceive      bool             // the peer has a receive for this Send
	stalls          uint8            // a bit for each stallCause that has been counted
	remoteBindCheck window.BindCheck // bind of the remote token that is in use
	draining        bool             // an Invalidate has revoked its tokens and waits for the drain
	hasInvalidated  bool             // the Invalidate is complete
	deadline        time.Time        // of a Send that has no receive
	bounceIndex     int              // bounce buffer that receives the data of a Read; -1 = none
	bounceSGE       wire.SGE         // the part of that buffer in use
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
	if r.Hashed {
		flags |= wire.FlagHashed
	}
	return flags
}

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
