package window

import (
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A connection ends, and with it the windows that were bound on it, while an executor copies. That is not a violation of
// the executor's.
func TestEndDuringCopyIsNoViolation(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 4*ChunkSize)
	r, w := owner.region(t, mem, allRights), owner.window(t)
	token := bind(t, w, r, mem, Read|Write, 1, false)
	address := w.Descriptor().Address
	source := make([]byte, len(mem))
	var fault, checked Fault
	copies := func(uint64) {
		far := remoteOperand(to, token, Write, address)
		for fault = NoFault; fault == NoFault; {
			_, fault = executor.write(far, source)
		}
		checked = executor.guard.Check(far, 1)
	}
	var pause atomic.Uint64
	ends := func(round uint64) {
		for range round % 1000 * 4 { // the end comes at each moment of the copy
			pause.Add(1)
		}
		to.State.Store(established + 1)
		w.InvalidateAtEnd(1)
	}
	rounds := proctest.Lockstep(20_000, copies, ends, func(round uint64) {
		if fault != FaultDisconnected || checked != FaultDisconnected {
			t.Fatalf("round %d: %v, then %v", round, fault, checked)
		}
		if !w.EndInvalidation() {
			t.Fatal("not drained")
		}
		token = bind(t, w, r, mem, Read|Write, 1, false)
		address = w.Descriptor().Address
		to.State.Store(established)
	})
	t.Logf("%d rounds", rounds)
}
