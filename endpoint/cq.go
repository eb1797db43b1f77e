package endpoint

// TWIN c/src/endpoint/cq.c, c/src/endpoint/cq.h.

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cq"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// completionQueue holds the results of the endpoints that use it. It is local to the process.
// Polling it makes progress on those endpoints. Safe for concurrent use.
type completionQueue struct {
	nd.UnsupportedCompletionQueue
	adapter   *adapter
	provider  *Provider
	endpoints atomic.Pointer[[]*queuePair] // endpoints that use the queue; replaced as a whole

	// soleEndpoint is set while only one endpoint has ever used the queue and the program has
	// only taken results from it. That endpoint adds results under its own lock alone. It is set
	// before the endpoint is in use, and cleared with both locks held.
	soleEndpoint *queuePair
	isShared     bool // soleEndpoint is never set again; guarded by mu

	mu         asym.BiasedMutex // guards the fields below
	ring       cq.Ring
	hasOverrun bool
	closed     bool
	mustLock   atomic.Bool // results are added under mu only: hasOverrun, closed, operations != nil, or a weak order

	polls           atomic.Uint64 // number of polls; approximate
	lastMessagePoll atomic.Uint64 // number of the latest poll that took messages; approximate
	scans           atomic.Uint64 // how often callers that take results scanned the endpoints; approximate
	nextLikely      atomic.Uint32 // index of the endpoint to scan first: the one after the latest that had a result
	nextOther       atomic.Uint32 // index of the first of the other endpoints to scan
	nextThorough    atomic.Uint32 // index of the first endpoint that the next thorough poll drives

	events cq.Events

	number          uint64 // of the queue in this process
	reportedPolls   uint64 // value of polls when the status page was last updated; owned by the housekeeper
	reportedPollsAt time.Time
	reportedIn      uint64 // the reporter's latest sample that has found the queue polled; owned by the housekeeper

	operations *nd.OperationStats // results by type; nil = not counted; guarded by mu
}

// newCompletionQueue returns a queue of a depth. With a weak order, it holds exactly its depth.
func newCompletionQueue(a *adapter, depth int) *completionQueue {
	q := &completionQueue{adapter: a, provider: a.provider, number: a.provider.queuesCreated.Add(1)}
	q.ring.SetResults(cq.NewResults(depth), depth, a.provider.isStepwise)
	q.events.Init(&q.ring, queueOwner{a.provider}, &q.mu)
	q.endpoints.Store(new([]*queuePair))
	if a.provider.options.CountOperations {
		q.operations = new(nd.OperationStats)
	}
	q.mustLock.Store(q.operations != nil || a.provider.isStepwise)
	return q
}

func (q *completionQueue) isOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.closed
}

// queueOwner is the provider, as the events of its queues see it.
type queueOwner struct{ p *Provider }

func (o queueOwner) Wake()                  { o.p.waiters.Wake() }
func (o queueOwner) Defer(work func() bool) { o.p.deferWork(work) }
func (o queueOwner) KeepRecent()            { o.p.deferred.KeepRecent() }

func (o queueOwner) AddDescriptors(n int32) {
	o.p.engine.eventLoops.Add(n)
	if n > 0 { // the engine may rest, where no doorbell wakes it
		o.p.engine.wake()
	}
}

// canBypass reports whether a new result can go to the poller directly, without being queued.
// The queue must be empty, so that no result is overtaken. The caller holds the lock of the
// result's endpoint. Calls that wait for results miss nothing: the poller takes this one.
func (q *completionQueue) canBypass() bool { return q.ring.IsEmpty() && !q.mustLock.Load() }

func (q *completionQueue) pop(results []nd.Result) (n int) {
	if !q.mu.LockBiased() {
		q.mu.Lock()
	}
	head, tail := q.ring.Head.Load(), q.ring.Tail.Load() // ORDER queue-tail: pairs with the store in pushSuccess
	for ; n < len(results) && head != tail; n++ {
		c := q.ring.At(head)
		c.Get(&results[n])
		c.Slots.Add(1)
		head++
	}
	asym.StoreRelease(&q.ring.Head, head) // ORDER queue-head: pairs with the load in pushSuccess
	if head == tail {
		q.events.NoteEmpty()
	}
	q.mu.Unlock()
	return n
}

// push adds a result of the endpoint that slots belongs to. solicited marks a result for which
// the sender requested a solicited event. The caller holds the endpoint's lock.
func (q *completionQueue) push(r *nd.Result, a *cq.Slots, solicited bool) {
	q.mu.Lock()
	if e := q.reserveSlot(a); e != nil {
		e.Set(r)
		asym.StoreRelease(&q.ring.Tail, q.ring.Tail.Load()+1)
		q.events.Note(r.Status != nd.Success, solicited)
		if q.operations != nil {
			countResult(q.operations, r)
		}
	}
	q.mu.Unlock()
	asym.Light() // ORDER asleep: between the store of the result and the load in Wake
	q.provider.waiters.Wake()
}

// pushResult adds ep.result to the queue, and counts it.
func (ep *queuePair) pushResult(q *completionQueue, a *cq.Slots, solicited bool) {
	if ep.counters.operations != nil {
		countResult(ep.counters.operations, &ep.result)
	}
	q.push(&ep.result, a, solicited)
}

// pushSuccess is push for a successful, unsolicited result of ep.
func (q *completionQueue) pushSuccess(ep *queuePair, request uint64, k nd.RequestType, n int, a *cq.Slots) {
	tail, head := q.ring.Tail.Load(), q.ring.Head.Load() // ORDER queue-head: pairs with the store in pop
	if !q.canAddResult(ep, tail, head) {
		ep.result = nd.Result{BytesTransferred: uint32(n), RequestContext: request, RequestType: k}
		ep.pushResult(q, a, false)
		return
	}
	q.ring.Prepare(tail, head, a).SetSuccess(k, uint64(n), request)
	asym.StoreRelease(&q.ring.Tail, tail+1) // ORDER queue-tail: pairs with the load in pop
	asym.Light()                            // ORDER asleep: between the store of the result and the load in Wake
	q.provider.waiters.Wake()
}

// canAddResult reports whether ep, whose lock the caller holds, may add a result without the queue's lock.
// The ring holds Size results: where it holds fewer, mustLock is set.
func (q *completionQueue) canAddResult(ep *queuePair, tail, head uint64) bool {
	return q.soleEndpoint == ep && !q.mustLock.Load() && tail-head != q.ring.Size()
}

// makeShared ends the time in which soleEndpoint adds results without the queue's lock. This is
// permanent. The caller holds no lock.
func (q *completionQueue) makeShared() {
	q.mu.Lock()
	q.isShared = true
	ep := q.soleEndpoint
	q.mu.Unlock()
	if ep == nil {
		return
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.soleEndpoint = nil
	q.events.CatchUp()
}

// reserveSlot returns the slot of the next result, nil if the queue is closed or full.
func (q *completionQueue) reserveSlot(a *cq.Slots) *cq.Result {
	if q.closed || q.hasOverrun || q.ring.IsFull() {
		q.overrun()
		return nil
	}
	return q.ring.Prepare(q.ring.Tail.Load(), q.ring.Head.Load(), a)
}

// overrun marks a full queue as overrun, permanently. It does nothing to a closed queue.
func (q *completionQueue) overrun() {
	if q.closed || q.hasOverrun {
		return
	}
	q.hasOverrun = true
	q.mustLock.Store(true)
	q.provider.events.QueueOverran(q.number, int(q.ring.Limit()))
	// Each endpoint fails under its own lock, when it is driven next. The engine drives it if
	// the program does not.
	for _, ep := range *q.endpoints.Load() {
		ep.stateWord.Or(overrunBit)
	}
	q.events.Overran()
	q.provider.engine.wake()
}

// failure returns why the queue gets no further results, nil if it does.
func (q *completionQueue) failure(op string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failureLocked(op)
}

// failureLocked is failure with q.mu held.
func (q *completionQueue) failureLocked(op string) error {
	switch {
	case q.closed:
		return q.opError(op, nd.Canceled, "the queue was closed", "")
	case q.hasOverrun:
		return q.opError(op, nd.BufferOverflow, "the queue overran, and results were lost", "create a deeper queue")
	}
	return nil
}

// capacity returns how many results the queue can hold.
func (q *completionQueue) capacity() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.ring.Limit())
}

// Resize changes the depth. Queued results and their order are kept.
func (q *completionQueue) Resize(depth int) error {
	const op = "resize"
	if most := q.provider.limits.cqDepth; depth < 1 || depth > most {
		return argument("depth", q.opError(op, nd.InvalidParameter, fmt.Sprintf("depth %d, allowed 1 to %d", depth, most), "choose a depth within the limits"))
	}
	results := cq.NewResults(depth)
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.opError(op, nd.InvalidHandle, "the queue is closed", "create another")
	}
	if n := q.ring.Tail.Load() - q.ring.Head.Load(); n > uint64(depth) {
		return q.opError(op, nd.BufferOverflow, fmt.Sprintf("depth %d, but %d results are queued", depth, n), "take results, then retry")
	}
	q.ring.SetResults(results, depth, q.provider.isStepwise)
	return nil
}

// Close discards the queued results and ends all waits. It blocks until the pending calls of
// Notify have returned, one after the other, the oldest first.
func (q *completionQueue) Close() error {
	q.adapter.disown(kindQueue, q)
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.mustLock.Store(true)
	q.ring.Clear()
	q.provider.waiters.Wake()
	q.events.EndCalls()
	q.closeDescriptorIfUnused()
	return nil
}

func (q *completionQueue) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "completion queue", Status: s, Detail: detail, Next: next}
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
	q.closeDescriptorIfUnused()
}

// closeDescriptorIfUnused closes the event descriptor if the queue is closed and no endpoint uses it.
func (q *completionQueue) closeDescriptorIfUnused() {
	if q.closed && len(*q.endpoints.Load()) == 0 {
		q.events.CloseDescriptor()
	}
}

// countResult counts a result by type. The caller adds the result to a queue. It is not inlined into
// the functions that add results, which rarely call it.
//
//go:noinline
func countResult(s *nd.OperationStats, r *nd.Result) {
	c := s.Of(r.RequestType)
	switch {
	case c == nil:
	case r.Status == nd.Success:
		c.Succeeded++
		c.Bytes += uint64(r.BytesTransferred)
	default:
		c.Failed++
	}
}
