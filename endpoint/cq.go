package endpoint

// TWIN c/src/endpoint/cq.c.

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

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
	entries    []completion     // a ring; its size is a power of two
	limit      uint64           // results that the queue holds; len(entries) unless mustLock is set
	firstIndex uint64           // number of the result in entries[0]; see prepareSlot
	head       atomic.Uint64    // number of the next result to take; approximate for readers without the lock
	tail       atomic.Uint64    // number of the next result to add
	hasOverrun bool
	closed     bool
	mustLock   atomic.Bool // results are added under mu only: hasOverrun, closed, operations != nil, or a weak order

	polls           atomic.Uint64 // number of polls; approximate
	lastMessagePoll atomic.Uint64 // number of the latest poll that took messages; approximate
	scans           atomic.Uint64 // how often callers that take results scanned the endpoints; approximate
	nextLikely      atomic.Uint32 // index of the endpoint to scan first: the one after the latest that had a result
	nextOther       atomic.Uint32 // index of the first of the other endpoints to scan
	nextThorough    atomic.Uint32 // index of the first endpoint that the next thorough poll drives

	notifier
	moderator
	eventDescriptor

	number          uint64 // of the queue in this process
	reportedPolls   uint64 // value of polls when the status page was last updated; owned by the housekeeper
	reportedPollsAt time.Time
	reportedIn      uint64 // the reporter's latest sample that has found the queue polled; owned by the housekeeper

	operations *nd.OperationStats // results by type; nil = not counted; guarded by mu
}

// completion is a queued result and the slot counter that it increments when it is taken. It is
// written and read in the same whole words: a load that spans several earlier stores stalls
// until they reach the cache.
type completion struct {
	header  uint64 // bits 0..30: request type; bit 31: hasDetails; bits 32..63: bytes
	request uint64 // context of the request
	slots   *slotCounter
	status  nd.Status // valid with hasDetails
	token   nd.Token  // invalidated token; valid with hasDetails
}

// hasDetails is set in completion.header if status and token are valid. Otherwise the request
// succeeded and invalidated nothing.
const hasDetails = 1 << 31

func (c *completion) set(r *nd.Result) {
	c.header, c.request = uint64(r.RequestType)|hasDetails|uint64(r.BytesTransferred)<<32, r.RequestContext
	c.status, c.token = r.Status, r.InvalidatedToken
}

func (c *completion) get(r *nd.Result) {
	setSuccess(r, nd.RequestType(c.header&(hasDetails-1)), c.header>>32, c.slots.context, c.request)
	if c.header&hasDetails != 0 {
		r.Status, r.InvalidatedToken = c.status, c.token
	}
}

// setSuccess sets a result to that of a successful request. It writes whole words.
func setSuccess(r *nd.Result, k nd.RequestType, bytes, endpoint, request uint64) {
	outcome := uint64(nd.Success) | bytes<<32
	r.Status, r.BytesTransferred = nd.Status(outcome), uint32(outcome>>32)
	r.EndpointContext, r.RequestContext = endpoint, request
	r.RequestType, r.InvalidatedToken = k, 0
}

// slotCounter counts the slots of one queue of an endpoint that are free again because their
// results were taken. The completion queue's lock guards it. When none of its results is in the
// queue, the endpoint's lock guards it.
type slotCounter struct {
	freed   atomic.Uint64
	context uint64 // of the endpoint; never changes
}

func (a *slotCounter) add(n uint64) { asym.StoreRelease(&a.freed, a.freed.Load()+n) }

// newCompletionQueue allocates twice the depth. A program that counts on exactly its depth then
// never overruns the queue. With a weak order, the queue holds exactly its depth.
func newCompletionQueue(a *adapter, depth int) *completionQueue {
	q := &completionQueue{adapter: a, provider: a.provider, number: a.provider.queuesCreated.Add(1), eventDescriptor: eventDescriptor{fd: noDescriptor}}
	q.setEntries(makeRing(depth), depth)
	q.endpoints.Store(new([]*queuePair))
	q.callEnded.L = &q.mu
	q.timer = q.checkModeration
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

// setEntries sets the ring of a queue of a depth.
func (q *completionQueue) setEntries(entries []completion, depth int) {
	q.entries, q.limit = entries, uint64(len(entries))
	if q.provider.isStepwise {
		q.limit = uint64(depth)
	}
}

func makeRing(depth int) []completion { return make([]completion, 1<<bits.Len(uint(2*depth-1))) }

// canBypass reports whether a new result can go to the poller directly, without being queued.
// The queue must be empty, so that no result is overtaken. The caller holds the lock of the
// result's endpoint. Calls that wait for results miss nothing: the poller takes this one.
func (q *completionQueue) canBypass() bool { return q.isEmpty() && !q.mustLock.Load() }

// isEmpty reports whether the queue holds no result. Without the lock it can miss a concurrent
// change.
func (q *completionQueue) isEmpty() bool { return q.head.Load() == q.tail.Load() }

func (q *completionQueue) pop(results []nd.Result) (n int) {
	if !q.mu.LockBiased() {
		q.mu.Lock()
	}
	head, tail := q.head.Load(), q.tail.Load() // ORDER queue-tail: pairs with the store in pushSuccess
	for ; n < len(results) && head != tail; n++ {
		c := q.slot(head)
		c.get(&results[n])
		c.slots.add(1)
		head++
	}
	asym.StoreRelease(&q.head, head) // ORDER queue-head: pairs with the load in pushSuccess
	if q.signaled && head == tail {
		q.signaled = false
	}
	q.mu.Unlock()
	return n
}

// reusedSlots is how many slots a queue uses as long as it is usually empty, so that it touches few cache lines.
const reusedSlots = 16

// prepareSlot returns the slot of the next result. The caller has checked that it is free.
func (q *completionQueue) prepareSlot(tail, head uint64, a *slotCounter) *completion {
	if tail == head && tail-q.firstIndex >= reusedSlots {
		q.firstIndex = tail
	}
	e := q.slot(tail)
	if e.slots != a { // usually equal; skipping the store avoids the garbage collector's write barrier
		e.slots = a
	}
	return e
}

// slot returns the slot of the result with a number.
func (q *completionQueue) slot(number uint64) *completion {
	return &q.entries[(number-q.firstIndex)&uint64(len(q.entries)-1)]
}

// push adds a result of the endpoint that slots belongs to. solicited marks a result for which
// the sender requested a solicited event. The caller holds the endpoint's lock.
func (q *completionQueue) push(r *nd.Result, a *slotCounter, solicited bool) {
	q.mu.Lock()
	if e := q.reserveSlot(a); e != nil {
		e.set(r)
		asym.StoreRelease(&q.tail, q.tail.Load()+1)
		q.noteResult(r.Status != nd.Success, solicited)
		if q.operations != nil {
			countResult(q.operations, r)
		}
	}
	q.mu.Unlock()
	asym.Light() // ORDER asleep: between the store of the result and the load in Wake
	q.provider.waiters.Wake()
}

// pushResult adds ep.result to the queue, and counts it.
func (ep *queuePair) pushResult(q *completionQueue, a *slotCounter, solicited bool) {
	if ep.counters.operations != nil {
		countResult(ep.counters.operations, &ep.result)
	}
	q.push(&ep.result, a, solicited)
}

// pushSuccess is push for a successful, unsolicited result of ep.
func (q *completionQueue) pushSuccess(ep *queuePair, request uint64, k nd.RequestType, n int, a *slotCounter) {
	tail, head := q.tail.Load(), q.head.Load() // ORDER queue-head: pairs with the store in pop
	if !q.canPublish(ep, tail, head) {
		ep.result = nd.Result{BytesTransferred: uint32(n), RequestContext: request, RequestType: k}
		ep.pushResult(q, a, false)
		return
	}
	e := q.prepareSlot(tail, head, a)
	e.header, e.request = uint64(k)|uint64(n)<<32, request
	asym.StoreRelease(&q.tail, tail+1) // ORDER queue-tail: pairs with the load in pop
	asym.Light()                       // ORDER asleep: between the store of the result and the load in Wake
	q.provider.waiters.Wake()
}

// canPublish reports whether ep, whose lock the caller holds, may add a result without the queue's lock.
func (q *completionQueue) canPublish(ep *queuePair, tail, head uint64) bool {
	return q.soleEndpoint == ep && !q.mustLock.Load() && tail-head != uint64(len(q.entries))
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
	q.latest[nd.NotifyAny] = q.tail.Load()
}

// reserveSlot returns the slot of the next result, nil if the queue is closed or full.
func (q *completionQueue) reserveSlot(a *slotCounter) *completion {
	tail, head := q.tail.Load(), q.head.Load()
	if q.closed || q.hasOverrun || tail-head == q.limit {
		q.overrun()
		return nil
	}
	return q.prepareSlot(tail, head, a)
}

// overrun marks a full queue as overrun, permanently. It does nothing to a closed queue.
func (q *completionQueue) overrun() {
	if q.closed || q.hasOverrun {
		return
	}
	q.hasOverrun = true
	q.mustLock.Store(true)
	q.provider.events.QueueOverran(q.number, len(q.entries))
	// Each endpoint fails under its own lock, when it is driven next. The engine drives it if
	// the program does not.
	for _, ep := range *q.endpoints.Load() {
		ep.stateWord.Or(overrunBit)
	}
	q.signal()
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
	return int(q.limit)
}

// Resize changes the depth. Queued results and their order are kept.
func (q *completionQueue) Resize(depth int) error {
	const op = "resize"
	if most := q.provider.limits.cqDepth; depth < 1 || depth > most {
		return argument("depth", q.opError(op, nd.InvalidParameter, fmt.Sprintf("depth %d, allowed 1 to %d", depth, most), "choose a depth within the limits"))
	}
	entries := makeRing(depth)
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.opError(op, nd.InvalidHandle, "the queue is closed", "create another")
	}
	head, tail := q.head.Load(), q.tail.Load()
	if n := tail - head; n > uint64(depth) {
		return q.opError(op, nd.BufferOverflow, fmt.Sprintf("depth %d, but %d results are queued", depth, n), "take results, then retry")
	}
	for i := head; i != tail; i++ {
		entries[(i-q.firstIndex)&uint64(len(entries)-1)] = *q.slot(i)
	}
	q.setEntries(entries, depth)
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
	q.head.Store(q.tail.Load())
	q.provider.waiters.Wake()
	q.endNotifyCalls()
	q.closeDescriptor()
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
	q.closeDescriptor()
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
