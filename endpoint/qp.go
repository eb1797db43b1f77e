package endpoint

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// overrunBit of queuePair.stateWord says that a completion queue of the endpoint has overrun. It
// shares a word with the state so that the fast path checks both with one comparison.
const overrunBit = 1 << 8

// slowBit of queuePair.stateWord keeps requests and messages from the fast path in the same way. It is set
// permanently if a provider has an option that only the slow path implements.
const slowBit = 1 << 9

// stateFlags are the bits of queuePair.stateWord that are no part of the state.
const stateFlags = overrunBit | slowBit

// queuePair is a queue pair. It is safe for concurrent use. Requests posted concurrently are ordered
// arbitrarily.
type queuePair struct {
	// The fields that small requests and messages use come first, close together: a program may use
	// many endpoints alternately, and the nearest cache holds few of their lines. The allocator puts
	// 8 bytes before the first field. TestHotFieldsOfEndpointStayTogether guards the order.

	stateWord       atomic.Uint32    // the qpState, which changes under mu, and stateFlags
	uncompleted     atomic.Uint32    // requests that are not completed; see hasWork
	requesterCopies bool             // this process copies the data of its requests where it can
	batching        bool             // posts are deferred until SubmitRequestBatch
	wakeupRequested bool             // localQP.NeedWakeup is set
	serving         bool             // resp.entry is decoded and not finished
	unreachable     nd.Token         // the last token of which a Write found that only the peer can access its memory
	mu              asym.BiasedMutex // guards all fields that change and are not atomic

	conn  *connection
	guard *window.Guard
	sq    sendQueue

	inbound atomic.Pointer[ring.Consumer] // the peer's ring, for hasWork; nil until the connection is joined
	rq      recvQueue

	localQP  *wire.SharedQP
	srq      *sharedReceiveQueue // where receives come from; nil = they are posted to rq
	adapter  *adapter
	provider *Provider

	number           uint64 // in this process
	limits           queueLimits
	errReceiveFull   error // made once: a full queue is no reason to allocate
	errInitiatorFull error
	localQPOffset    shm.Offset
	outboundSlots    []ring.Slot  // of the ring that connection.out fills
	pendingDrains    atomic.Int32 // tokens of this endpoint that an ended connection may still use
	scansSeen        uint64       // of both completion queues; used by the progress engine only

	smallReceives smallReceives

	hook mode.Hook // nil = no mode is in use; next to what else the slow path reads of each request
	req  requester
	resp responder
	life lifecycle

	parts *parts // of the requests that a relay posts; nil = none
	bound boundSet

	sink, source window.Operand // of the copy in progress; here to avoid an allocation
	result       nd.Result      // likewise, for a completion

	counters endpointCounters
	waiting  waitObserver // of the housekeeper
}

// sendQueue holds the counters of the initiator queue that every request changes. Requests of the
// slow path are numbered from 0 and kept in requester.requests.
type sendQueue struct {
	posted     uint64 // requests put into requester.requests
	completed  uint64
	slotsTaken uint64 // slots that requests have taken, without those of silent successes; see hasQueueSlot
	depth      uint64
	cq         *completionQueue
	slots      slotCounter // counts the freed slots: a poll that takes a result frees its slot
}

// recvQueue is the queue of posted receives. With a shared receive queue it has one place, for the
// receive that a message has taken.
type recvQueue struct {
	cq        *completionQueue
	receives  []receive // circular
	posted    uint64
	completed uint64

	slots       slotCounter // counts the freed slots: a poll that takes a result frees its slot
	depth       uint64
	descriptors []uint64 // in shared memory, one for each place in receives
	stride      uint64   // words of a descriptor
}

// smallReceives are the posted receives that may be smaller than wire.MaxSendInEntry.
type smallReceives struct {
	end      uint64 // see wire.SharedQP.SmallReceivesEnd
	capacity uint64 // see wire.SharedQP.SmallReceiveBytes
}

// queueLimits are the limits that CreateEndpoint has granted.
type queueLimits struct {
	receiveSGE   int
	initiatorSGE int
	inlineSize   int
}

// requester is the state of executing this side's requests on the slow path.
type requester struct {
	readLimit int           // outbound Reads granted; 0 = none
	chunks    atomic.Uint32 // chunks of long requests copied so far; the status page shows that it changes

	requests  []request
	submitted uint64   // requests before this number may run; later ones are deferred
	next      uint64   // number of the request to execute next
	hasFailed bool     // a request has failed and is not completed; no other may run
	aside     []uint64 // numbers of the Reads that are set aside

	gathered [wire.MaxSendInEntry]byte // data of a Send or Write that fits an entry

	// The peer's receive that a Send is filling.
	peerReceiveBuffer   [maxSGE]wire.SGE
	peerReceiveSGEs     []wire.SGE
	peerReceiveCapacity uint64

	bounce bounceBuffers
}

// responder is the state of serving the peer's ring.
type responder struct {
	entry          wire.Entry // the ring entry being served
	fragmentCopied uint64     // bytes of the fragment in entry that are copied so far

	messageReceived uint64           // bytes of the current message in its receive
	nextFragment    uint64           // number of the ring entry that alone may continue that message
	localBindCheck  window.BindCheck // bind of the local token in use, from the first to the last entry of a request
	remoteBindCheck window.BindCheck // bind of the peer's token in use, in this entry

	invalidating     *window.Invalidatable // invalidated by the current message; nil when its token is drained
	invalidatedToken nd.Token

	result [1]nd.Result // see serveSendFast
}

// lifecycle describes how an endpoint came into the connected state and out of it.
type lifecycle struct {
	connector          *connector // that connects or has connected the endpoint
	wasConnected       bool
	cause              error         // why the endpoint left the connected state
	done               chan struct{} // closed when the endpoint has left the connected state permanently
	flushed            bool          // all requests and receives are completed, and no other is accepted
	requestFailed      bool          // a request has completed with a failure that this side found; the rest is canceled
	remoteReleased     bool          // no code uses the peer's shared queue-pair state from now on
	disconnectDeadline time.Time     // for the peer's Disconnect
	disconnectTimedOut bool
	bothDisconnected   bool
	closeCalled        bool
}

// requestAt returns the place of the request with a number.
func (ep *queuePair) requestAt(number uint64) *request {
	return &ep.req.requests[number&uint64(len(ep.req.requests)-1)]
}

// receiveAt returns the place of the receive with a number.
func (ep *queuePair) receiveAt(number uint64) *receive {
	return &ep.rq.receives[number&uint64(len(ep.rq.receives)-1)]
}

// CreateEndpoint makes a queue pair.
func (a *adapter) CreateEndpoint(ctx context.Context, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	const op = "create endpoint"
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	receiveCQ, ok := a.ownQueue(cfg.Receive)
	if !ok {
		return nil, a.opError(op, nd.InvalidParameter2, "no open completion queue of this adapter for receives", "set EndpointConfig.Receive")
	}
	initiatorCQ, ok := a.ownQueue(cfg.Initiator)
	if !ok {
		return nil, a.opError(op, nd.InvalidParameter3, "no open completion queue of this adapter for initiator requests", "set EndpointConfig.Initiator")
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
		status         nd.Status
	}{
		{"ReceiveDepth", &cfg.ReceiveDepth, defaultQueueDepth, most.queueDepth, nd.InvalidParameter5},
		{"InitiatorDepth", &cfg.InitiatorDepth, defaultQueueDepth, most.queueDepth, nd.InvalidParameter6},
		{"MaxReceiveSGE", &cfg.MaxReceiveSGE, minSGE, most.sge, nd.InvalidParameter7},
		{"MaxInitiatorSGE", &cfg.MaxInitiatorSGE, minSGE, most.sge, nd.InvalidParameter8},
		{"InlineSize", &cfg.InlineSize, 0, most.inline, nd.InvalidParameter9},
	} {
		if *l.value < 0 || *l.value > l.atMost {
			if shared != nil && l.status > nd.InvalidParameter6 {
				l.status-- // with a shared queue the call has one parameter less before this one
			}
			return nil, &nd.OpError{Op: op, Object: "adapter", Status: l.status, Field: l.name,
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
		sq:              sendQueue{cq: initiatorCQ, depth: uint64(cfg.InitiatorDepth), slots: slotCounter{context: cfg.Context}},
		rq:              recvQueue{cq: receiveCQ, depth: uint64(cfg.ReceiveDepth), slots: slotCounter{context: cfg.Context}},
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
	return ep, nil
}

// sharedQueue returns the shared receive queue that cfg names, or nil. With a shared queue it clears
// the receive limits of cfg, which do not apply.
func (a *adapter) sharedQueue(op string, cfg *nd.EndpointConfig) (*sharedReceiveQueue, error) {
	if cfg.SharedReceive == nil {
		return nil, nil
	}
	q, ok := cfg.SharedReceive.(*sharedReceiveQueue)
	if !ok || q == nil || q.adapter != a || q.isClosed() {
		return nil, a.opError(op, nd.InvalidParameter4, "no shared receive queue of this adapter, or one that is closed", "create it with the endpoint's adapter")
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

func ceilPowerOfTwo(n uint64) uint64 { return 1 << bits.Len64(n-1) }

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

func (ep *queuePair) state() qpState { return qpState(ep.stateWord.Load() &^ stateFlags) }

func (ep *queuePair) hasOverrun() bool { return ep.stateWord.Load()&overrunBit != 0 }

// on changes the state by an event. The caller holds ep.mu.
func (ep *queuePair) on(e connEvent) {
	s := qpTransitions.next(ep.state(), e)
	ep.life.wasConnected = ep.life.wasConnected || s == connected
	if s == connected && ep.state() != connected {
		ep.logConnected()
	}
	if ep.state() == peerDisconnected {
		ep.life.cause = nil // it advises this side to disconnect, too
		detail, next := "the peer ("+ep.conn.peerName+") has disconnected, and the connection ended before this side did", "connect a new endpoint"
		if s == disconnecting {
			detail, next = "both sides have disconnected", ""
		}
		ep.setCause(ep.opError("serve", nd.ConnectionDisconnected, detail, next))
	}
	for was := ep.stateWord.Load(); !ep.stateWord.CompareAndSwap(was, uint32(s)|was&stateFlags); was = ep.stateWord.Load() {
	}
	if s >= peerDisconnected && !isClosed(ep.life.done) {
		close(ep.life.done)
	}
	ep.provider.waiters.Wake()
}

// Done returns a channel that is closed when the endpoint has left the connected state permanently. The
// program need not poll for that: the progress engine closes the channel.
func (ep *queuePair) Done() <-chan struct{} { return ep.life.done }

// Connector returns the connector that connected the endpoint, or nil if it never was connected.
func (ep *queuePair) Connector() nd.Connector {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.life.wasConnected {
		return nil
	}
	return ep.life.connector
}

// Err returns why the endpoint left the connected state, or nil if it has not.
func (ep *queuePair) Err() error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.hasOverrun() {
		ep.progressLocked()
	}
	if ep.state() == connected {
		return nil // a request may have failed, but the requests before it complete first
	}
	return ep.life.cause
}

func (ep *queuePair) String() string { return fmt.Sprintf("endpoint %d", ep.number) }

func (ep *queuePair) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: ep.String(), Status: s, Field: parameterName(op, s), Detail: detail, Next: next}
}

func (q *completionQueue) attach(ep *queuePair) {
	for !q.tryAttach(ep) {
		q.makeShared()
	}
}

// tryAttach is attach, but reports false if another endpoint is the queue's sole user.
func (q *completionQueue) tryAttach(ep *queuePair) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if list := q.endpoints.Load(); len(*list) == 0 || (*list)[len(*list)-1] != ep {
		switch {
		case q.soleEndpoint != nil:
			return false
		case len(*list) == 0 && !q.isShared:
			q.soleEndpoint = ep
		}
		q.endpoints.Store(with(list, ep))
	}
	if q.hasOverrun {
		ep.stateWord.Or(overrunBit)
	}
	return true
}

func (q *completionQueue) detach(ep *queuePair) {
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endpoints.Store(without(q.endpoints.Load(), ep))
	q.closeDescriptor()
}
