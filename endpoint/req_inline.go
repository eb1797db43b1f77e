package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// An inline request has its bytes copied by the post, into room that belongs to
// its place in the queue. Whoever executes it takes them from there, without a
// token: into the slot if they fit, straight into the peer's memory, or, if the
// peer executes, through the staging buffer.
const (
	maxInline = 1024
	// inlineThreshold is four cache lines: to copy them twice costs no more than
	// the look at the source's token that is saved.
	inlineThreshold = 256
)

// checkInline checks the length of an inline request; the number of its entries
// does not matter.
func (ep *Endpoint) checkInline(op string, sge []nd.SGE) error {
	total := 0
	for i := range sge {
		if total += len(sge[i].Buffer); total > ep.inlineSize {
			return ep.fail(op, nd.BufferOverflow, fmt.Sprintf("more than the %d bytes granted to inline requests", ep.inlineSize),
				"raise InlineSize, or post without Inline")
		}
	}
	return nil
}

// capture copies the bytes of an inline request, which has a single entry from
// then on: one whose address counts from the first byte copied.
func (r *request) capture(sge []nd.SGE) {
	for i := range sge {
		r.captured = append(r.captured, sge[i].Buffer...)
	}
	if r.total = uint64(len(r.captured)); r.total > 0 {
		r.entries = append(r.entries, entry{length: uint32(r.total)})
	}
}

// name puts an entry of r, or a part of one, into ep.sink or ep.source.
func (r *request) name(ref *window.Operand, e entry, rights window.Rights) {
	if r.flags.Has(nd.Inline) {
		*ref = window.Operand{Mem: r.captured[e.address:][:e.length]}
		return
	}
	own(ref, e, rights)
	ref.Generation = &r.ours
}
