package endpoint

// TWIN c/src/endpoint/req_execute.c.

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// pushEntry pushes a ring entry of r, which takes a receive of the peer or does not. It reports false if the
// ring is full; the peer then rings when it has released slots.
func (ep *queuePair) pushEntry(r *request, entry *ring.Words, takesReceive bool) bool {
	c := ep.conn
	if r.Hashed {
		entry[wire.HashWord] = r.Hash
	}
	number := c.out.Published()
	if !c.out.Push(entry) {
		if ep.requestWakeup(); !c.out.Push(entry) {
			return false
		}
	}
	c.credit.CountEntry(number, takesReceive) // every entry but a Send of the fast path, see pushWriteFast
	ep.cancelWakeup()
	if r.EndEntry == 0 {
		r.firstEntry = number
	}
	r.EndEntry = number + 1
	if r.needsAck {
		c.credit.AckRequestEnd = r.EndEntry
	}
	return true
}

// hasFreeEntry reports whether the ring has room for an entry. If not, it has asked the peer for a
// wake-up and checked once more.
func (ep *queuePair) hasFreeEntry() bool {
	out := ep.conn.out
	if out.FreeSlots() != 0 {
		return true
	}
	ep.requestWakeup()
	return out.FreeSlots() != 0
}

// requestWakeup asks the peer to ring when it has released ring slots or posted a receive. It does so
// only if a wait of this process or its engine sleeps or is about to; otherwise a poll notices the
// change. The caller checks the slots or the receive once more afterwards.
func (ep *queuePair) requestWakeup() {
	if !ep.wakeupRequested && ep.provider.hasArmedDoorbell() {
		ep.wakeupRequested = true
		ep.localQP.NeedWakeup.Swap(1) // ORDER need-wakeup: pairs with the loads in queuePair.publishPosted and queuePair.releaseEntries
		failpoint.Reach(failpoint.WakeupRequested)
		asym.HeavyGlobal() // for peers that store without a barrier; see ring.NewProducer
	}
}

// cancelWakeup withdraws the request for a wake-up, if there is one.
func (ep *queuePair) cancelWakeup() {
	if ep.wakeupRequested {
		ep.wakeupRequested = false
		ep.localQP.NeedWakeup.Store(0)
	}
}

// hasQueueSlot reports whether another request may be outstanding: whether the initiator queue has a free
// slot. A poll that takes the result of a request frees its slot. A request that succeeds silently, without
// a result, gives its slot back at once.
func (ep *queuePair) hasQueueSlot() bool {
	return ep.sq.slotsTaken-ep.sq.slots.Freed.Load() < ep.sq.depth
}

// gatherPayload copies the data of an inline Send or Write together. It reports false if it has rejected r.
func (ep *queuePair) gatherPayload(r *request) (payload []byte, ok bool) {
	if r.Flags.Has(nd.Inline) {
		return r.Inline, true
	}
	payload = ep.req.gathered[:r.Total]
	to := payload
	if r.parts != nil {
		for len(to) > 0 {
			n := copy(to, r.parts.operand(r))
			r.parts.advance(r, uint64(n))
			to = to[n:]
		}
		return payload, true
	}
	for _, e := range r.SGEs {
		mode.SetLocalOperand(&ep.source, e, window.Read)
		ep.sink = window.Operand{Mem: to[:e.Length]}
		if _, _, f := ep.guard.Copy(&ep.sink, &ep.source, uint64(e.Length)); f != window.NoFault {
			ep.rejectLocal(r, e, f)
			return nil, false
		}
		to = to[e.Length:]
	}
	return payload, true
}
