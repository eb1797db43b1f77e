package endpoint

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// CompletionQueue holds the results of the endpoints that use it. It is local
// to the process; polling it drives those endpoints. Safe for concurrent use.
type CompletionQueue struct {
	provider *Provider
	users    atomic.Pointer[[]*Endpoint] // replaced as a whole

	mu      sync.Mutex
	entries []completion // a ring; its size is a power of two
	head    uint64       // next to take
	tail    uint64       // next to fill
	overrun bool
	closed  bool
	polls   uint64
}

// completion is a result, and the account to which its queue slot returns.
type completion struct {
	result  nd.Result
	account *account
}

// account counts the slots of one queue of an endpoint whose results have been
// taken. It is guarded by the completion queue's lock.
type account struct{ taken uint64 }

// newCompletionQueue allots twice the depth, so that a program which counts on
// exactly its depth never overruns the queue.
func newCompletionQueue(p *Provider, depth int) *CompletionQueue {
	q := &CompletionQueue{provider: p, entries: make([]completion, 1<<bits.Len(uint(2*depth-1)))}
	q.users.Store(new([]*Endpoint))
	return q
}

// Poll takes up to len(results) results and never blocks. It allocates
// nothing and makes no system call.
func (q *CompletionQueue) Poll(results []nd.Result) int {
	if n := q.take(results); n > 0 {
		return n
	}
	if !q.driveUsers() {
		return 0
	}
	return q.take(results)
}

func (q *CompletionQueue) driveUsers() (moved bool) {
	for _, ep := range *q.users.Load() {
		moved = ep.drive() || moved
	}
	return moved
}

func (q *CompletionQueue) take(results []nd.Result) (n int) {
	q.mu.Lock()
	for n < len(results) && q.head != q.tail {
		c := &q.entries[q.head&uint64(len(q.entries)-1)]
		results[n] = c.result
		c.account.taken++
		q.head++
		n++
	}
	// The engine asks only whether the program polls at all, so one poll in
	// many is enough to tell it.
	if q.polls++; q.polls%16 == 1 {
		q.provider.engine.polls.Store(q.polls)
	}
	q.mu.Unlock()
	return n
}

// push adds a result. The caller holds the lock of the endpoint.
func (q *CompletionQueue) push(r *nd.Result, a *account) {
	q.mu.Lock()
	switch {
	case q.overrun || q.closed:
	case q.tail-q.head == uint64(len(q.entries)):
		q.overrun = true
		// Each endpoint fails on its own, under its own lock.
		for _, ep := range *q.users.Load() {
			ep.overrun.Store(true)
		}
	default:
		q.entries[q.tail&uint64(len(q.entries)-1)] = completion{*r, a}
		q.tail++
	}
	q.mu.Unlock()
	q.provider.sleep.wake()
}

// takenOf reads an account.
func (q *CompletionQueue) takenOf(a *account) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return a.taken
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
	werr := q.provider.wait(ctx, func() { q.driveUsers() }, func() bool {
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
	switch {
	case q.closed:
		return q.fail(op, nd.Canceled, "the queue was closed", "")
	case q.overrun:
		return q.fail(op, nd.BufferOverflow, "the queue overran, and results were lost", "create a deeper queue")
	}
	return nil
}

// Notify is not built yet; Wait blocks until a result is there.
func (q *CompletionQueue) Notify(context.Context, nd.NotifyType) error {
	return q.fail("notify", nd.NotSupported, notBuilt, "use Wait")
}

// EventFD is not built yet.
func (q *CompletionQueue) EventFD() (int, error) {
	return -1, q.fail("get event descriptor", nd.NotSupported, notBuilt, "use Wait")
}

// Resize is not built yet.
func (q *CompletionQueue) Resize(int) error {
	return q.fail("resize", nd.NotSupported, notBuilt, "create a queue that is deep enough")
}

// NotifyAffinity is not built yet.
func (q *CompletionQueue) NotifyAffinity() (uint16, uint64, error) {
	return 0, 0, q.fail("get notify affinity", nd.NotSupported, notBuilt, "use Wait, which runs on its caller's core")
}

// Close discards the results that are left and ends all waits.
func (q *CompletionQueue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.head = q.tail
	q.mu.Unlock()
	q.provider.sleep.wake()
	return nil
}

func (q *CompletionQueue) fail(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "completion queue", Status: s, Detail: detail, Next: next}
}
