package endpoint

// TWIN c/src/endpoint/qp.c.

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cq"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// CreateEndpoint makes a queue pair.
func (a *adapter) CreateEndpoint(ctx context.Context, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	const op = "create endpoint"
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	receiveCQ, ok := a.ownQueue(cfg.ReceiveCQ)
	if !ok {
		return nil, argument("ReceiveCQ", a.opError(op, nd.InvalidParameter, "no open completion queue of this adapter for receives", "set EndpointConfig.ReceiveCQ"))
	}
	initiatorCQ, ok := a.ownQueue(cfg.InitiatorCQ)
	if !ok {
		return nil, argument("InitiatorCQ", a.opError(op, nd.InvalidParameter, "no open completion queue of this adapter for initiator requests", "set EndpointConfig.InitiatorCQ"))
	}
	shared, err := a.sharedQueue(op, &cfg)
	if err != nil {
		return nil, err
	}
	most := a.provider.limits
	for _, l := range []struct {
		name           string
		value          *int
		ifZero, atMost int
	}{
		{"ReceiveDepth", &cfg.ReceiveDepth, defaultQueueDepth, most.queueDepth},
		{"InitiatorDepth", &cfg.InitiatorDepth, defaultQueueDepth, most.queueDepth},
		{"MaxReceiveSGE", &cfg.MaxReceiveSGE, minSGE, most.sge},
		{"MaxInitiatorSGE", &cfg.MaxInitiatorSGE, minSGE, most.sge},
		{"InlineSize", &cfg.InlineSize, 0, most.inline},
	} {
		if *l.value < 0 || *l.value > l.atMost {
			return nil, &nd.OpError{Op: op, Object: "adapter", Status: nd.InvalidParameter, Field: l.name,
				Detail: fmt.Sprintf("%d, at most %d", *l.value, l.atMost), Next: "see Adapter.Query for the limits"}
		}
		if *l.value == 0 {
			*l.value = l.ifZero
		}
	}
	number := a.nextEndpoint() // before the hook is asked: another call may run at the same time
	if err := a.beforeCall(ctx, op, 0, number); err != nil {
		return nil, err
	}
	ep := &queuePair{
		provider: a.provider, adapter: a, srq: shared,
		number:          number,
		requesterCopies: a.provider.options.Executor != Target,
		sq:              sendQueue{cq: initiatorCQ, depth: uint64(cfg.InitiatorDepth), slots: cq.Slots{Context: cfg.Context}},
		rq:              recvQueue{cq: receiveCQ, depth: uint64(cfg.ReceiveDepth), slots: cq.Slots{Context: cfg.Context}},
		limits:          queueLimits{max(cfg.MaxReceiveSGE, most.leastSGE), max(cfg.MaxInitiatorSGE, most.leastSGE), cfg.InlineSize},
		life:            lifecycle{done: make(chan struct{})},
	}
	if a.provider.options.CountOperations {
		ep.counters.operations = new(nd.OperationStats)
	}
	if shared != nil {
		ep.rq.depth, ep.limits.receiveSGE = 1, shared.sge // for the one that a message has taken
	}
	ep.errReceiveFull = ep.opError("receive", nd.NoMoreEntries, fmt.Sprintf("all %d receives of ReceiveDepth are outstanding", cfg.ReceiveDepth), "poll for results, then retry, or create the endpoint with a greater ReceiveDepth")
	ep.errInitiatorFull = ep.opError("post", nd.NoMoreEntries, fmt.Sprintf("all %d requests of InitiatorDepth are outstanding", cfg.InitiatorDepth), "poll for results, then retry, or create the endpoint with a greater InitiatorDepth")
	ep.allocateQueues()
	if ep.forwards() {
		ep.parts = new(parts)
	}
	if err := ep.makeSharedQP(); err != nil {
		return nil, a.allocError(op, err)
	}
	ep.guard = window.NewGuard(a.domain, &ep.localQP.Hazard)
	ep.setHook(cfg.CheckPayloads || a.provider.options.CheckPayloads)
	receiveCQ.attach(ep)
	initiatorCQ.attach(ep)
	if !a.provider.addEndpoint(ep) {
		ep.close()
		return nil, a.closedProviderError(op)
	}
	if ep.hasOverrun() {
		a.provider.engine.wake() // to end the endpoint, see overrun
	}
	return adopt[nd.Endpoint](a, op, kindEndpoint, ep)
}

// sharedQueue returns the shared receive queue that cfg names, or nil. With a shared queue it clears
// the receive limits of cfg, which do not apply.
func (a *adapter) sharedQueue(op string, cfg *nd.EndpointConfig) (*sharedReceiveQueue, error) {
	if cfg.SharedReceive == nil {
		return nil, nil
	}
	q, ok := cfg.SharedReceive.(*sharedReceiveQueue)
	if !ok || q == nil || q.adapter != a || q.isClosed() {
		return nil, argument("SharedReceive", a.opError(op, nd.InvalidParameter, "no shared receive queue of this adapter, or one that is closed", "create it with the endpoint's adapter"))
	}
	cfg.ReceiveDepth, cfg.MaxReceiveSGE = 0, 0
	return q, nil
}

// ownQueue returns cq as a completion queue. It reports false unless cq is open and of this adapter.
func (a *adapter) ownQueue(cq nd.CompletionQueue) (*completionQueue, bool) {
	q, ok := cq.(*completionQueue)
	return q, ok && q != nil && q.adapter == a && q.isOpen()
}

// allocateQueues allocates the private queues, so that posting never allocates.
func (ep *queuePair) allocateQueues() {
	ep.req.requests = make([]request, ceilPowerOfTwo(ep.sq.depth))
	entries := make([]wire.SGE, len(ep.req.requests)*ep.limits.initiatorSGE)
	inline := make([]byte, len(ep.req.requests)*ep.limits.inlineSize)
	for i := range ep.req.requests {
		ep.req.requests[i].Inline = inline[i*ep.limits.inlineSize : i*ep.limits.inlineSize : (i+1)*ep.limits.inlineSize]
		ep.req.requests[i].SGEs = entries[i*ep.limits.initiatorSGE : i*ep.limits.initiatorSGE : (i+1)*ep.limits.initiatorSGE]
	}
	ep.rq.receives = newReceives(ceilPowerOfTwo(ep.rq.depth), ep.limits.receiveSGE)
}

// makeSharedQP allocates the shared queue-pair state, followed by the outbound ring and the
// receive descriptors.
func (ep *queuePair) makeSharedQP() error {
	slots := ceilPowerOfTwo(min(max(ep.sq.depth, 64), 256))
	count := uint64(len(ep.rq.receives))
	if ep.srq != nil {
		count = 0 // receives of a shared queue are not described to peers
	}
	stride := (descriptorHeader + uint64(ep.limits.receiveSGE)*descriptorEntry + 63) / 64 * 64
	arena := ep.provider.arena
	off, err := ep.provider.member.AllocColored(wire.SharedQPSize + slots*ring.SlotSize + count*stride)
	if err != nil {
		return err
	}
	if ep.localQP, err = shm.At[wire.SharedQP](arena, off); err != nil {
		return err
	}
	h := ep.localQP
	h.Extended = 1
	h.Ring, h.RingSlots = uint64(off)+wire.SharedQPSize, slots
	h.Receives, h.ReceiveCount, h.ReceiveStride = h.Ring+slots*ring.SlotSize, count, stride
	h.Endpoint = ep.number
	if asym.HasHeavyGlobal() {
		h.Membarrier = 1
	}
	if ep.provider.options.Forward {
		h.ResponderCopies, h.SharedReceive = 1, 1
	}
	if ep.outboundSlots, err = shm.Slice[ring.Slot](arena, shm.Offset(h.Ring), slots); err != nil {
		return err
	}
	ep.localQPOffset, ep.rq.stride = off, stride/8
	if ep.srq != nil {
		h.SharedReceive = 1
		return nil
	}
	ep.rq.descriptors, err = shm.Slice[uint64](arena, shm.Offset(h.Receives), count*ep.rq.stride)
	return err
}
