package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// The post of a request with nd.Inline copies the data into the request. Execution needs no token
// for the copy. It moves the data into the ring entry if it fits, else directly to the peer's memory
// or, if the peer executes the request, to a bounce buffer.

// checkInline checks the total length of an inline request. The number of entries is not limited.
func (ep *queuePair) checkInline(op string, sge *nd.SGL) error {
	total := 0
	for i := range sge.Len() {
		if total += len(sge.At(i).Buffer); total > ep.limits.inlineSize {
			return ep.opError(op, nd.BufferOverflow, fmt.Sprintf("more than the granted InlineSize of %d bytes", ep.limits.inlineSize),
				"raise InlineSize, or post without Inline")
		}
	}
	return nil
}

// copyInline copies the data of an inline request. The request then has a single entry, whose
// address is an index into r.inline.
func (r *request) copyInline(sge *nd.SGL) {
	for i := range sge.Len() {
		r.Inline = append(r.Inline, sge.At(i).Buffer...)
	}
	if r.Total = uint64(len(r.Inline)); r.Total > 0 {
		r.SGEs = append(r.SGEs, wire.SGE{Length: uint32(r.Total)})
	}
}
