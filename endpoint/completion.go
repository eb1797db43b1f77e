package endpoint

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// CompletionQueue holds the results of the endpoints that use it. It is local
// to the process; polling it drives those endpoints. Safe for concurrent use.
type CompletionQueue struct {
	adapter  *Adapter
	provider *Provider
	users    atomic.Pointer[[]*Endpoint] // replaced as a whole

	mu      asym.Mutex    // guards the rest
	entries []completion  // a ring; its size is a power of two
	head    atomic.Uint64 // next to take; who does not hold the lock sees roughly whether there is anything
	tail    atomic.Uint64 // next to fill
	overrun bool
	closed  bool
	ended   atomic.Bool // either of the two

	polls atomic.Uint64 // roughly
	looks atomic.Uint64 // at the users, by those who take results; roughly
	first atomic.Uint32 // the user to look at first: the one after the latest that had something

	notifier
	moderator
	descriptor
}

// completion is a result, and the account to which its queue slot returns.
type completion struct {
	result  nd.Result
	account *account
}

// account counts the slots of one queue of an endpoint whose results have been
// taken. It changes under the completion queue's lock or, if nothing of it is in
// the queue, that of the endpoint.
type account struct{ taken atomic.Uint64 }

func (a *account) add(n uint64) { asym.Store(&a.taken, a.taken.Load()+n) }

// newCompletionQueue allots twice the depth, so that a program which counts on
// exactly its depth never overruns the queue.
func newCompletionQueue(a *Adapter, depth int) *CompletionQueue {
	q := &CompletionQueue{adapter: a, provider: a.provider, entries: makeRing(depth), descriptor: descriptor{fd: noDescriptor}}
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
// been asked for, a peer has to be woken, or another goroutine was at the queue
// or its endpoints before; see [asym.Mutex].
func (q *CompletionQueue) Poll(results []nd.Result) int {
	all := q.countPoll()%thorough == 0
	n := 0
	if all || q.isEmpty() {
		n = q.serveUsers(results, all)
		if q.isEmpty() {
			return n
		}
	}
	return n + q.take(asym.Current(), results[n:])
}

// passes tells whether a new result of an endpoint, whose lock the caller holds,
// may go past the queue to the one who polls it: there is none before it. Who
// waits for results misses nothing, because this one is taken.
func (q *CompletionQueue) passes() bool { return q.isEmpty() && !q.ended.Load() }

// isEmpty tells whether there is no result. Without the lock it may miss what
// happens at the same moment.
func (q *CompletionQueue) isEmpty() bool { return q.head.Load() == q.tail.Load() }

// thorough is how many polls it takes until one drives all endpoints, even if
// there are results, and those that do not seem to want it: a peer may have left,
// or died.
const thorough = 1024

// serveUsers drives the endpoints that have something to do, until there is a
// result; if all is true, it drives all of them. Results of messages may come
// back at once.
func (q *CompletionQueue) serveUsers(results []nd.Result, all bool) (n int) {
	asym.Store(&q.looks, q.looks.Load()+1)
	users := *q.users.Load()
	first := int(q.first.Load())
	for i := range users {
		at := i + first
		if at >= len(users) {
			if at -= len(users); at >= len(users) { // there were more of them
				at = i
			}
		}
		ep := users[at]
		if !all && !ep.calls() {
			continue
		}
		got, moved := ep.driveFor(q, results[n:])
		if !moved {
			continue
		}
		asym.Store32(&q.first, uint32(at+1)) // the next one's turn, so that none is left out
		if n += got; !all && (n > 0 || !q.isEmpty()) {
			break
		}
	}
	return n
}

func (q *CompletionQueue) driveUsers() (moved bool) {
	asym.Store(&q.looks, q.looks.Load()+1)
	for _, ep := range *q.users.Load() {
		moved = ep.drive() || moved
	}
	return moved
}

func (q *CompletionQueue) take(me asym.Goroutine, results []nd.Result) (n int) {
	q.mu.LockBy(me)
	head, tail := q.head.Load(), q.tail.Load()
	for n < len(results) && head != tail {
		c := &q.entries[head&uint64(len(q.entries)-1)]
		results[n] = c.result
		c.account.add(1)
		head++
		n++
	}
	asym.Store(&q.head, head)
	if head == tail {
		q.signaled = false
	}
	q.mu.Unlock()
	return n
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

// push adds a result. solicited marks one that its sender wants to be noticed.
// The caller holds the lock of the endpoint.
func (q *CompletionQueue) push(me asym.Goroutine, r *nd.Result, a *account, solicited bool) {
	q.mu.LockBy(me)
	if e := q.add(a); e != nil {
		e.result = *r
		q.announce(r.Status != nd.Success, solicited)
	}
	q.mu.Unlock()
	q.provider.sleep.wake()
}

// succeed is push for a success that nobody has asked to be told of.
func (q *CompletionQueue) succeed(me asym.Goroutine, endpoint, request uint64, k nd.RequestType, n int, a *account) {
	q.mu.LockBy(me)
	if e := q.add(a); e != nil {
		e.result = nd.Result{BytesTransferred: uint32(n), EndpointContext: endpoint, RequestContext: request, RequestType: k}
		if q.newest[nd.NotifyAny] = q.tail.Load(); q.isWatched() {
			q.announce(false, false)
		}
	}
	q.mu.Unlock()
	q.provider.sleep.wake()
}

// add makes a place for a result; nil if there can be none.
func (q *CompletionQueue) add(a *account) *completion {
	tail := q.tail.Load()
	if q.ended.Load() || tail-q.head.Load() == uint64(len(q.entries)) {
		q.refuse()
		return nil
	}
	e := &q.entries[tail&uint64(len(q.entries)-1)]
	e.account = a
	asym.Store(&q.tail, tail+1)
	return e
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
		ep.overrun.Store(true)
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
	me := asym.Current()
	werr := q.provider.wait(ctx, func() { q.countPoll(); q.driveUsers() }, func() bool {
		if n = q.take(me, results); n == 0 {
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

// Resize changes the depth. Results that are there, and their order, stay.
func (q *CompletionQueue) Resize(depth int) error {
	const op = "resize"
	if depth < 1 || depth > maxCQDepth {
		return q.fail(op, nd.InvalidParameter, fmt.Sprintf("depth %d, granted 1 to %d", depth, maxCQDepth), "choose a depth within the limits")
	}
	entries := makeRing(depth)
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
		entries[i&uint64(len(entries)-1)] = q.entries[i&uint64(len(q.entries)-1)]
	}
	q.entries = entries
	return nil
}

// Close discards the results that are left and ends all waits. It returns when
// the calls of Notify have ended, one after the other, the oldest first.
func (q *CompletionQueue) Close() error {
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
