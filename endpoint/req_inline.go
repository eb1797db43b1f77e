package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// The post of a request with nd.Inline copies the data into the request. Execution needs no token
// for the copy. It moves the data into the ring entry if it fits, else directly to the peer's memory
// or, if the peer executes the request, to a bounce buffer.
const (
	maxInline = 1024
	// inlineThreshold is reported to programs: up to four cache lines, the second copy costs no
	// more than the check of the source's token that it saves.
	inlineThreshold = 256
)

// checkInline checks the total length of an inline request. The number of entries is not limited.
func (ep *queuePair) checkInline(op string, sge []nd.SGE) error {
	total := 0
	for i := range sge {
		if total += len(sge[i].Buffer); total > ep.limits.inlineSize {
			return ep.opError(op, nd.BufferOverflow, fmt.Sprintf("more than the granted InlineSize of %d bytes", ep.limits.inlineSize),
				"raise InlineSize, or post without Inline")
		}
	}
	return nil
}

// copyInline copies the data of an inline request. The request then has a single entry, whose
// address is an index into r.inline.
func (r *request) copyInline(sge []nd.SGE) {
	for i := range sge {
		r.inline = append(r.inline, sge[i].Buffer...)
	}
	if r.total = uint64(len(r.inline)); r.total > 0 {
		r.sges = append(r.sges, wire.SGE{Length: uint32(r.total)})
	}
}

// setOperand makes operand name e, which is an entry of r or a part of one. operand is ep.sink or ep.source.
func (r *request) setOperand(operand *window.Operand, e wire.SGE, rights window.Rights) {
	if r.parts != nil {
		*operand = window.Operand{Mem: r.parts.operand(r)} // at least e.Length bytes, or only named for a check
		return
	}
	if r.flags.Has(nd.Inline) {
		*operand = window.Operand{Mem: r.inline[e.Address:][:e.Length]}
		return
	}
	setLocalOperand(operand, e, rights)
	operand.BindCheck = &r.localBindCheck
}
