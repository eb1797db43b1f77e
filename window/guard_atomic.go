package window

// TWIN c/src/window/guard.c.

import (
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
)

// Change runs an atomic request of type t on the 8 bytes of o, and returns what they were. It takes the steps of [Guard.Copy]
// with one atomic instruction in the place of the copy. After faultRevoked, the bytes may have been changed.
func (g *Guard) Change(o *Operand, t nd.RequestType, operand, swap uint64) (old uint64, f Fault) {
	var at checkedRange
	g.publishHazard(makeHazard(o.Token, 0))
	if f = g.check(&at, o, 8); f == NoFault {
		failpoint.Reach(failpoint.EntryChecked)
		var isAligned bool
		old, isAligned = changeWord(at.mem, t, operand, swap) // COPY
		failpoint.Reach(failpoint.ChunkCopied)
		switch {
		case !isAligned:
			f = faultUnaligned
		case !at.isUnchanged():
			f = faultRevoked
		}
	}
	g.clearHazard()
	return old, o.refused(f)
}
