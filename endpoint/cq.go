package endpoint

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/nd"
)

// CompletionQueue holds the results of the endpoints that use it. It is local
// to the process; polling it drives those endpoints. Safe for concurrent use.
type CompletionQueue struct {
	adapter  *Adapter
	provider *Provider
	users    atomic.Pointer[[]*Endpoint] // replaced as a whole

	// sole is the one endpoint that has ever used the queue, as long as nothing has
	// been asked of it but results. It adds them with its own lock alone. sole is
	// set before the endpoint is in use, and taken back with both locks held.
	sole   *Endpoint
	common bool // there never again is such a one; guarded by mu

	mu      asym.Mutex    // guards the rest
	entries []completion  // a ring; its size is a power of two
	base    uint64        // the result that lies, or lay, at its beginning: the first since the queue was empty, so that a queue that mostly is takes few cache lines. Who adds a result to an empty queue sets it
	head    atomic.Uint64 // next to take; who does not hold the lock sees roughly whether there is anything
	tail    atomic.Uint64 // next to fill
	overrun bool
	closed  bool
	ended   atomic.Bool // either of the two

	polls   atomic.Uint64 // roughly
	foundAt atomic.Uint64 // the poll that was the last to take messages; roughly
	looks   atomic.Uint64 // at the users, by those who take results; roughly
	near    atomic.Uint32 // the user to look at first: the one after the latest that had something
	far     atomic.Uint32 // the first of those that are looked at besides
	driven  atomic.Uint32 // the first of those that the next thorough poll drives

	notifier
	moderator
	descriptor

	number    uint64 // in this process
	pollsSeen uint64 // by the engine, whose own it is
	pollsAt   time.Time
}

// completion is a result, and the account to which its queue slot returns. It is
// written and read in the same whole words: a processor has to wait for a store
// before it can load more bytes at once than were stored at once.
type completion struct {
	brief   uint64 // the type of the request; detailed, or 0; above them how many bytes
	request uint64 // its context
	account *account
	status  nd.Status // of what is detailed
	token   nd.Token  // likewise: what died
}

// detailed says in completion.brief that there is more to say than of most results:
// that a request of that type has succeeded.
const detailed = 1 << 31

func (c *completion) put(r *nd.Result) {
	c.brief, c.request = uint64(r.RequestType)|detailed|uint64(r.BytesTransferred)<<32, r.RequestContext
	c.status, c.token = r.Status, r.InvalidatedToken
}

func (c *completion) get(r *nd.Result) {
	setSuccess(r, nd.RequestType(c.brief&(detailed-1)), c.brief>>32, c.account.context, c.request)
	if c.brief&detailed != 0 {
		r.Status, r.InvalidatedToken = c.status, c.token
	}
}

// setSuccess sets a result to that of a request that has succeeded, in whole words.
func setSuccess(r *nd.Result, k nd.RequestType, bytes, endpoint, request uint64) {
	outcome := uint64(nd.Success) | bytes<<32
	r.Status, r.BytesTransferred = nd.Status(outcome), uint32(outcome>>32)
	r.EndpointContext, r.RequestContext = endpoint, request
	r.RequestType, r.InvalidatedToken = k, 0
}

// account counts the slots of one queue of an endpoint whose results have been
// taken. It changes under the completion queue's lock or, if nothing of it is in
// the queue, that of the endpoint.
type account struct {
	taken   atomic.Uint64
	context uint64 // of the endpoint; never changes
}

func (a *account) add(n uint64) { asym.Store(&a.taken, a.taken.Load()+n) }

// newCompletionQueue allots twice the depth, so that a program which counts on
// exactly its depth never overruns the queue.
func newCompletionQueue(a *Adapter, depth int) *CompletionQueue {
	q := &CompletionQueue{adapter: a, provider: a.provider, number: a.provider.queues.Add(1), entries: makeRing(depth), descriptor: descriptor{fd: noDescriptor}}
	q.users.Store(new([]*Endpoint))
	q.left.L = &q.mu
	q.look = q.lookAtClock
	return q
}

func (q *CompletionQueue) isOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.closed
}

func makeRing(depth int) []completion { return make([]completion, 1<<bits.Len(uint(2*depth-1))) }

// Poll takes up to len(results) results and never blocks. It allocates
// nothing. It makes no system call unless an event descriptor or moderation has
// been asked for, a peer has to be woken, another goroutine was at the queue or
// its endpoints before, or the stack of this one has moved; see [asym.Mutex].
func (q *CompletionQueue) Poll(results []nd.Result) (n int) {
	switch thorough := q.countPoll()%thoroughEach == 0; {
	case thorough:
		q.driveNext()
	case q.isEmpty():
		asym.Store(&q.looks, q.looks.Load()+1)
		if users := *q.users.Load(); len(users) != 1 {
			n = q.serveUsers(results, users)
		} else if users[0].calls() { // the rule
			n, _ = users[0].driveFor(q, results)
		}
		if q.isEmpty() {
			return n
		}
		return n + q.take(results[n:])
	}
	return q.take(results)
}

// passes tells whether a new result of an endpoint, whose lock the caller holds,
// may go past the queue to the one who polls it: there is none before it. Who
// waits for results misses nothing, because this one is taken.
func (q *CompletionQueue) passes() bool { return q.isEmpty() && !q.ended.Load() }

// isEmpty tells whether there is no result. Without the lock it may miss what
// happens at the same moment.
func (q *CompletionQueue) isEmpty() bool { return q.head.Load() == q.tail.Load() }

// One poll in thoroughEach drives thoroughUsers endpoints, even if there are
// results, and even endpoints that do not seem to want it: a peer may have left, or
// died. It does not drive all of many: that would take microseconds.
const (
	thoroughEach  = 1024
	thoroughUsers = 8
)

// serveUsers drives the endpoints that have something to do, until there is a
// result. Results of messages may come back at once. Of many endpoints it looks
// at some only: those behind the one that had something last, because programs
// often use theirs in turn, and a few others, which are different ones each time.
func (q *CompletionQueue) serveUsers(results []nd.Result, users []*Endpoint) (n int) {
	if len(users) <= nearLooks+farLooks {
		n, _ = q.serveSome(results, users, int(q.near.Load()), len(users))
		return n
	}
	n, found := q.serveSome(results, users, int(q.near.Load()), nearLooks)
	if found {
		return n
	}
	at := q.far.Load()
	if n, found = q.serveSome(results, users, int(at), farLooks); found {
		asym.Store32(&q.far, q.near.Load()) // behind the one that had something
	} else {
		asym.Store32(&q.far, (at+farLooks)%uint32(len(users)))
	}
	return n
}

// How many endpoints a poll looks at, of more than that.
const (
	nearLooks = 2
	farLooks  = 4
)

// serveSome drives those of a number of users that have something to do, from one
// of them on, until there is a result. n results have come back at once.
func (q *CompletionQueue) serveSome(results []nd.Result, users []*Endpoint, at, looks int) (n int, found bool) {
	for range looks {
		if at >= len(users) {
			at = 0
		}
		ep := users[at]
		at++
		if !ep.calls() {
			continue
		}
		n, m := ep.driveFor(q, results)
		if m == still {
			continue
		}
		asym.Store32(&q.near, uint32(at)) // the next one's turn, so that none is left out
		if n > 0 || !q.isEmpty() {
			return n, true
		}
	}
	return 0, false
}

// driveNext drives some users, the next ones each time.
func (q *CompletionQueue) driveNext() {
	asym.Store(&q.looks, q.looks.Load()+1)
	users := *q.users.Load()
	at := int(q.driven.Load())
	for range min(len(users), thoroughUsers) {
		if at >= len(users) {
			at = 0
		}
		users[at].drive()
		at++
	}
	asym.Store32(&q.driven, uint32(at))
}

func (q *CompletionQueue) driveUsers() {
	asym.Store(&q.looks, q.looks.Load()+1)
	for _, ep := range *q.users.Load() {
		ep.drive()
	}
}

func (q *CompletionQueue) take(results []nd.Result) (n int) {
	if !q.mu.Enter() {
		q.mu.Lock()
	}
	head, tail := q.head.Load(), q.tail.Load() // ORDER queue-tail: pairs with the store in succeed
	for ; n < len(results) && head != tail; n++ {
		c := q.at(head)
		c.get(&results[n])
		c.account.add(1)
		head++
	}
	asym.Store(&q.head, head) // ORDER queue-head: pairs with the load in succeed
	if head == tail {
		q.signaled = false
	}
	q.mu.Unlock()
	return n
}

// claim readies the place of the next result, for which there is room.
func (q *CompletionQueue) claim(tail, head uint64, a *account) *completion {
	if tail == head {
		q.base = tail
	}
	e := q.at(tail)
	if e.account != a { // as a rule it is; while the garbage collector marks, it would be told of each pointer stored
		e.account = a
	}
	return e
}

// at is the place of a result.
func (q *CompletionQueue) at(number uint64) *completion {
	return &q.entries[(number-q.base)&uint64(len(q.entries)-1)]
}

// countPoll tells the engine that the program polls. It asks only whether it
// does so at all, so one poll in many is enough to tell it.
func (q *CompletionQueue) countPoll() uint64 {
	polls := q.polls.Load() + 1
	asym.Store(&q.polls, polls)
	if polls%16 == 1 {
		asym.Store(&q.provider.engine.polls, polls)
	}
	return polls
}

// push adds a result, whose endpoint is that of the account. solicited marks one
// that its sender wants to be noticed. The caller holds the lock of the endpoint.
func (q *CompletionQueue) push(r *nd.Result, a *account, solicited bool) {
	q.mu.Lock()
	if e := q.add(a); e != nil {
		e.put(r)
		asym.Store(&q.tail, q.tail.Load()+1)
		q.announce(r.Status != nd.Success, solicited)
	}
	q.mu.Unlock()
	asym.Light() // ORDER asleep: between the result and the load in wake
	q.provider.sleep.wake()
}

// succeed is push for a success of ep that nobody has asked to be told of.
func (q *CompletionQueue) succeed(ep *Endpoint, request uint64, k nd.RequestType, n int, a *account) {
	tail, head := q.tail.Load(), q.head.Load() // ORDER queue-head: pairs with the store in take
	if q.sole != ep || q.ended.Load() || tail-head == uint64(len(q.entries)) {
		ep.result = nd.Result{BytesTransferred: uint32(n), RequestContext: request, RequestType: k}
		q.push(&ep.result, a, false)
		return
	}
	e := q.claim(tail, head, a)
	e.brief, e.request = uint64(k)|uint64(n)<<32, request
	asym.Store(&q.tail, tail+1) // ORDER queue-tail: pairs with the load in take
	asym.Light()                // ORDER asleep: between the result and the load in wake
	q.provider.sleep.wake()
}

// share makes the queue one that others than its endpoint may change, for good.
// The caller holds no lock.
func (q *CompletionQueue) share() {
	q.mu.Lock()
	q.common = true
	ep := q.sole
	q.mu.Unlock()
	if ep == nil {
		return
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sole = nil
	q.newest[nd.NotifyAny] = q.tail.Load()
}

// add makes a place for a result, behind the last; nil if there can be none.
func (q *CompletionQueue) add(a *account) *completion {
	tail, head := q.tail.Load(), q.head.Load()
	if q.ended.Load() || tail-head == uint64(len(q.entries)) {
		q.refuse()
		return nil
	}
	return q.claim(tail, head, a)
}

// refuse takes no further result. If that is because the queue is full, it is
// broken for good.
func (q *CompletionQueue) refuse() {
	if q.ended.Load() {
		return
	}
	q.overrun = true
	q.ended.Store(true)
	// Each endpoint fails on its own, under its own lock; the engine sees to it
	// if nobody else does.
	for _, ep := range *q.users.Load() {
		ep.now.Or(overran)
	}
	q.signal()
	q.provider.engine.nudge()
}

// Wait is Poll that blocks until there is a result, the queue has failed, or
// ctx ends.
func (q *CompletionQueue) Wait(ctx context.Context, results []nd.Result) (int, error) {
	const op = "wait"
	if len(results) == 0 {
		return 0, q.fail(op, nd.InvalidParameter, "no room for results", "pass a slice of length 1 at least")
	}
	if n := q.Poll(results); n > 0 {
		return n, nil
	}
	n, err := 0, error(nil)
	werr := q.provider.wait(ctx, testimony.Call{Op: op, Queue: q.number}, func() { q.countPoll(); q.driveUsers() }, func() bool {
		if n = q.take(results); n == 0 {
			err = q.failed(op)
		}
		return n > 0 || err != nil
	})
	if werr != nil {
		return 0, canceled(ctx, werr, op, "completion queue")
	}
	return n, err
}

// failed tells why no further result will come.
func (q *CompletionQueue) failed(op string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.broken(op)
}

// broken is failed with the lock held.
func (q *CompletionQueue) broken(op string) error {
	switch {
	case q.closed:
		return q.fail(op, nd.Canceled, "the queue was closed", "")
	case q.overrun:
		return q.fail(op, nd.BufferOverflow, "the queue overran, and results were lost", "create a deeper queue")
	}
	return nil
}

// room is how many results the queue can hold.
func (q *CompletionQueue) room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

// Resize changes the depth. Results that are there, and their order, stay.
func (q *CompletionQueue) Resize(depth int) error {
	const op = "resize"
	if depth < 1 || depth > maxCQDepth {
		return q.fail(op, nd.InvalidParameter, fmt.Sprintf("depth %d, granted 1 to %d", depth, maxCQDepth), "choose a depth within the limits")
	}
	entries := makeRing(depth)
	q.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.fail(op, nd.InvalidHandle, "the queue is closed", "create another")
	}
	head, tail := q.head.Load(), q.tail.Load()
	if n := tail - head; n > uint64(depth) {
		return q.fail(op, nd.BufferOverflow, fmt.Sprintf("depth %d for the %d results that are there", depth, n), "take results, then retry")
	}
	for i := head; i != tail; i++ {
		entries[(i-q.base)&uint64(len(entries)-1)] = *q.at(i)
	}
	q.entries = entries
	return nil
}

// Close discards the results that are left and ends all waits. It returns when
// the calls of Notify have ended, one after the other, the oldest first.
func (q *CompletionQueue) Close() error {
	q.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ended.Store(true)
	q.head.Store(q.tail.Load())
	q.provider.sleep.wake()
	q.dismiss()
	q.closeDescriptor()
	return nil
}

func (q *CompletionQueue) fail(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "completion queue", Status: s, Detail: detail, Next: next}
}
