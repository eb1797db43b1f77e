package endpoint

// TWIN c/src/endpoint/qp_slot.c.

import (
	"context"

	"github.com/softnd/softnd/internal/statuspage"
)

// WaitSlot blocks until the initiator queue has a free slot. It makes progress on the endpoint, but takes no results. It submits
// deferred requests first. A poll that frees a slot rings no doorbell, so while the call sleeps it checks every pollInterval.
func (ep *queuePair) WaitSlot(ctx context.Context) error {
	const op = "wait slot"
	isClosed := false
	ready := func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		isClosed = ep.life.closeCalled
		return isClosed || ep.hasQueueSlot()
	}
	if !ready() {
		ep.mu.Lock()
		ep.submit() // slots of deferred requests would never be free
		ep.mu.Unlock()
		p := ep.provider
		ep.slotWaits.Add(1)
		err := p.wait(ctx, statuspage.Call{Op: op, Object: ep.String()}, func() { ep.progress() }, ready)
		ep.slotWaits.Add(-1)
		if err != nil {
			return Canceled(ctx, err, op, ep.String())
		}
	}
	if isClosed {
		return ep.notConnectedError(op)
	}
	return nil
}
