package endpoint

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// state of an endpoint; section "queue pair and connector" of the model.
type state uint32

const (
	idle       state = iota
	connecting       // Connect or Accept under way
	answered         // active side: accepted, not completed
	connected
	peerGone // the peer disconnected in good order
	failed   // an error, a flush, an abort, or the peer's death
	closing  // own Disconnect under way
	closed
)

var stateText = [...]string{"idle", "connecting", "answered", "connected", "disconnected by the peer", "failed", "disconnecting", "closed"}

func (s state) String() string { return stateText[s] }

// overran is the bit of Endpoint.now that says that a completion queue of the
// endpoint has overrun. It shares the word with the state: the fast paths
// check that now is connected, and need no second check.
const overran = 1 << 8

// Endpoint is a queue pair. Safe for concurrent use; requests of concurrent
// posts are ordered in some order.
type Endpoint struct {
	// What small requests and small messages need stands first, and close together:
	// a program may use many endpoints in turn, and a processor's nearest cache holds
	// some of their lines only. The allocator puts 8 bytes before the first.

	now       atomic.Uint32    // state, which changes under mu, and overran
	open      atomic.Uint32    // requests that are not done; see calls
	initiates bool             // moves bytes itself where it can
	batching  bool             // posts are deferred
	stalled   bool             // the peer has been asked to ring
	halfway   bool             // a message has been decoded, and is not done with
	mu        asym.BiasedMutex // guards what changes, unless it is atomic

	conn           *connection
	guard          *window.Guard
	tail           uint64 // posted; see requests
	done           uint64 // completed
	apart          uint64 // slots held by requests that have never had a place here, less those that silent successes gave back
	initiatorDepth uint64
	initiatorCQ    *CompletionQueue
	taken          slotCounter

	inbound   atomic.Pointer[shm.Consumer]
	receiveCQ *CompletionQueue
	receives  []receive // a ring; with a shared queue the one that a message has taken
	posted    uint64
	delivered uint64

	receivesTaken slotCounter
	receiveDepth  uint64
	words         []uint64 // receive descriptors
	stride        uint64   // words of one
	half          *half
	shared        *SharedReceiveQueue // instead of receives of its own
	adapter       *Adapter
	provider      *Provider

	number       uint64 // in this process
	receiveSGE   int
	initiatorSGE int
	inlineSize   int
	noRoom       [2]error // made once: a full queue is no reason to allocate
	halfOffset   shm.Offset
	hazard       *window.Hazard
	drains       atomic.Int32  // windows of ours that an ended connection may still use
	looksSeen    uint64        // of both queues, by the engine, whose own it is
	parts        atomic.Uint32 // of long requests, done so far; for onlookers

	cause     error      // why the endpoint left the connected state
	connector *Connector // by which it is being or was connected
	readLimit int        // outbound Reads granted; 0 = none

	requests []request // a ring
	ready    uint64    // those before it may run; the rest is deferred
	next     uint64    // to be executed

	tight uint64 // the last receive, plus one, that cannot take any inline payload for sure
	roomy uint64 // what it and those like it can take for sure

	// Of the message being served.
	served       uint64 // bytes of it done
	placed       uint64 // bytes of the current Send in its receive
	revoking     window.Invalidatable
	revokedToken nd.Token

	stage   stage
	bound   boundSet
	closedQ bool // Close was called

	scratch         [inlinePayload]byte
	message         message
	sink, source    window.Operand
	result          nd.Result
	one             [1]nd.Result // see takeOne
	slot            shm.Slot     // being sent
	arrived         shm.Slot     // being served
	receivedEntries [maxSGE]entry
	farEntries      []entry // of the peer's receive that a Send is filling
	farCapacity     uint64
	stuck           bool      // a request has failed and is to be completed; none may follow
	settled         bool      // nothing is outstanding any more, nor will be
	deadline        time.Time // for the peer's half of a graceful end
	late            bool      // it passed
	parted          bool      // both sides have disconnected
	swept           bool      // the peer's half has been looked at for the last time
	wasUp           bool      // the connection was established

	ended chan struct{} // closed when the endpoint has left the connected state for good
}

// CreateEndpoint makes a queue pair.
func (a *Adapter) CreateEndpoint(ctx context.Context, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	const op = "create endpoint"
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	receiveCQ, ok := a.ownQueue(cfg.Receive)
	if !ok {
		return nil, a.fail(op, nd.InvalidParameter2, "no open completion queue of this adapter for receives", "set EndpointConfig.Receive")
	}
	initiatorCQ, ok := a.ownQueue(cfg.Initiator)
	if !ok {
		return nil, a.fail(op, nd.InvalidParameter3, "no open completion queue of this adapter for initiator requests", "set EndpointConfig.Initiator")
	}
	shared, err := a.sharedQueue(op, &cfg)
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		name           string
		value          *int
		ifZero, atMost int
		status         nd.Status
	}{
		{"ReceiveDepth", &cfg.ReceiveDepth, defaultQueueDepth, maxQueueDepth, nd.InvalidParameter5},
		{"InitiatorDepth", &cfg.InitiatorDepth, defaultQueueDepth, maxQueueDepth, nd.InvalidParameter6},
		{"MaxReceiveSGE", &cfg.MaxReceiveSGE, minSGE, maxSGE, nd.InvalidParameter7},
		{"MaxInitiatorSGE", &cfg.MaxInitiatorSGE, minSGE, maxSGE, nd.InvalidParameter8},
		{"InlineSize", &cfg.InlineSize, 0, maxInline, nd.InvalidParameter9},
	} {
		if *l.value < 0 || *l.value > l.atMost {
			if shared != nil && l.status > nd.InvalidParameter6 {
				l.status-- // with a shared queue the call has one parameter less before this one
			}
			return nil, a.fail(op, l.status, fmt.Sprintf("%s %d, at most %d", l.name, *l.value, l.atMost), "see Adapter.Query for the limits")
		}
		if *l.value == 0 {
			*l.value = l.ifZero
		}
	}
	ep := &Endpoint{
		provider: a.provider, adapter: a,
		taken: slotCounter{context: cfg.Context}, receivesTaken: slotCounter{context: cfg.Context},
		number:    a.provider.endpointsCreated.Add(1),
		receiveCQ: receiveCQ, initiatorCQ: initiatorCQ,
		receiveDepth: uint64(cfg.ReceiveDepth), initiatorDepth: uint64(cfg.InitiatorDepth),
		receiveSGE: max(cfg.MaxReceiveSGE, minSGE), initiatorSGE: max(cfg.MaxInitiatorSGE, minSGE),
		inlineSize: cfg.InlineSize,
		initiates:  a.provider.options.Executor != Target,
		shared:     shared,
		ended:      make(chan struct{}),
	}
	if shared != nil {
		ep.receiveDepth, ep.receiveSGE = 1, shared.sge // for the one that a message has taken
	}
	ep.noRoom[0] = ep.fail("receive", nd.NoMoreEntries, fmt.Sprintf("%d receives are outstanding", cfg.ReceiveDepth), "take results, then retry")
	ep.noRoom[1] = ep.fail("post", nd.NoMoreEntries, fmt.Sprintf("%d requests are outstanding", cfg.InitiatorDepth), "take results, then retry")
	ep.allot()
	if err := ep.makeHalf(); err != nil {
		return nil, a.allocError(op, err)
	}
	ep.guard = window.NewGuard(a.space, &ep.half.hazard)
	ep.hazard = ep.guard.LocalHazard()
	a.space.AddHazard(ep.hazard)
	receiveCQ.attach(ep)
	initiatorCQ.attach(ep)
	if !a.provider.addEndpoint(ep) {
		ep.close()
		return nil, a.closedProviderError(op)
	}
	return ep, nil
}

// sharedQueue returns the shared receive queue that cfg asks for, if any, and
// clears the limits that do not count then.
func (a *Adapter) sharedQueue(op string, cfg *nd.EndpointConfig) (*SharedReceiveQueue, error) {
	if cfg.SharedReceive == nil {
		return nil, nil
	}
	q, ok := cfg.SharedReceive.(*SharedReceiveQueue)
	if !ok || q == nil || q.adapter != a || q.isClosed() {
		return nil, a.fail(op, nd.InvalidParameter4, "no shared receive queue of this adapter, or one that is closed", "create it with the endpoint's adapter")
	}
	cfg.ReceiveDepth, cfg.MaxReceiveSGE = 0, 0
	return q, nil
}

// ownQueue returns a completion queue that endpoints of this adapter may use.
func (a *Adapter) ownQueue(cq nd.CompletionQueue) (*CompletionQueue, bool) {
	q, ok := cq.(*CompletionQueue)
	return q, ok && q != nil && q.adapter == a && q.isOpen()
}

// allot makes the private queues, so that posting never allocates.
func (ep *Endpoint) allot() {
	ep.requests = make([]request, ceilPowerOfTwo(ep.initiatorDepth))
	entries := make([]entry, len(ep.requests)*ep.initiatorSGE)
	inline := make([]byte, len(ep.requests)*ep.inlineSize)
	for i := range ep.requests {
		ep.requests[i].captured = inline[i*ep.inlineSize : i*ep.inlineSize : (i+1)*ep.inlineSize]
		ep.requests[i].entries = entries[i*ep.initiatorSGE : i*ep.initiatorSGE : (i+1)*ep.initiatorSGE]
	}
	ep.receives = newReceives(ceilPowerOfTwo(ep.receiveDepth), ep.receiveSGE)
}

func ceilPowerOfTwo(n uint64) uint64 { return 1 << bits.Len64(n-1) }

// makeHalf lays out the shared half: the words, the ring, the descriptors.
func (ep *Endpoint) makeHalf() error {
	slots := ceilPowerOfTwo(min(max(ep.initiatorDepth, 64), 256))
	count := uint64(len(ep.receives))
	if ep.shared != nil {
		count = 0 // peers have no business with them
	}
	stride := (descriptorHeader + uint64(ep.receiveSGE)*descriptorEntry + 63) / 64 * 64
	arena := ep.provider.arena
	off, err := ep.provider.member.Heap().AllocColored(halfSize + slots*shm.SlotSize + count*stride)
	if err != nil {
		return err
	}
	if ep.half, err = shm.At[half](arena, off); err != nil {
		return err
	}
	h := ep.half
	h.ring, h.ringSlots = uint64(off)+halfSize, slots
	h.receives, h.receiveCount, h.receiveStride = h.ring+slots*shm.SlotSize, count, stride
	h.endpoint = ep.number
	if asym.HasHeavyGlobal() {
		h.barriers = 1
	}
	ep.halfOffset, ep.stride = off, stride/8
	if ep.shared != nil {
		h.sharedReceive = 1
		return nil
	}
	ep.words, err = shm.Slice[uint64](arena, shm.Offset(h.receives), count*ep.stride)
	return err
}

func (ep *Endpoint) state() state { return state(ep.now.Load() &^ overran) }

func (ep *Endpoint) hasOverrun() bool { return ep.now.Load()&overran != 0 }

// setState changes the state. The caller holds ep.mu.
func (ep *Endpoint) setState(s state) {
	ep.wasUp = ep.wasUp || s == connected
	for was := ep.now.Load(); !ep.now.CompareAndSwap(was, uint32(s)|was&overran); was = ep.now.Load() {
	}
	if s >= peerGone && !isClosed(ep.ended) {
		close(ep.ended)
	}
	ep.provider.waiters.Wake()
}

// Done returns a channel that is closed when the endpoint leaves the connected
// state for good. It needs no poll: the engine closes the channel.
func (ep *Endpoint) Done() <-chan struct{} { return ep.ended }

// Connector returns the connector that has connected the endpoint, nil before.
func (ep *Endpoint) Connector() nd.Connector {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.wasUp {
		return nil
	}
	return ep.connector
}

// Err returns why the endpoint left the connected state, nil before.
func (ep *Endpoint) Err() error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.hasOverrun() {
		ep.step()
	}
	if ep.state() == connected {
		return nil // a request has failed, but those before it come first
	}
	return ep.cause
}

func (ep *Endpoint) String() string { return fmt.Sprintf("endpoint %d", ep.number) }

func (ep *Endpoint) fail(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: ep.String(), Status: s, Detail: detail, Next: next}
}

func (q *CompletionQueue) attach(ep *Endpoint) {
	for !q.tryAttach(ep) {
		q.makeShared()
	}
}

// tryAttach is attach unless somebody else is the queue's sole endpoint.
func (q *CompletionQueue) tryAttach(ep *Endpoint) bool {
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
		ep.now.Or(overran)
	}
	return true
}

func (q *CompletionQueue) detach(ep *Endpoint) {
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endpoints.Store(without(q.endpoints.Load(), ep))
	q.closeDescriptor()
}
