package endpoint

// TWIN c/src/endpoint/srq.c.

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// sharedReceiveQueue holds receives for several endpoints of one adapter. It is local to the
// process. Peers know only that their messages have to travel by ring and wait there for a
// receive. Safe for concurrent use.
type sharedReceiveQueue struct {
	nd.UnsupportedSharedReceiveQueue
	adapter *adapter
	sge     int // maximum per receive

	mu           sync.Mutex
	receives     []receive // a ring; its size is a power of two
	head         uint64    // number of the oldest
	tail         uint64    // number of the next to post
	depth        uint64
	lowThreshold uint64
	fullError    error        // made when the depth is set, so that Receive does not allocate
	waiting      []*queuePair // endpoints with a message that found no receive, oldest first
	events       uint64       // how often the number of receives fell below the threshold
	closed       bool
}

// CreateSharedReceiveQueue makes a queue of receives for several endpoints.
func (a *adapter) CreateSharedReceiveQueue(ctx context.Context, cfg nd.SharedReceiveQueueConfig) (nd.SharedReceiveQueue, error) {
	const op = "create shared receive queue"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	most := a.provider.limits
	depth, sge := cfg.Depth, max(cfg.MaxSGE, most.leastSGE)
	if depth == 0 {
		depth = defaultQueueDepth
	}
	switch {
	case depth < 0 || depth > most.sharedDepth:
		return nil, argument("Depth", a.opError(op, nd.InvalidParameter, fmt.Sprintf("Depth %d, at most %d", depth, most.sharedDepth), "see Adapter.Query for the limits"))
	case cfg.MaxSGE < 0 || cfg.MaxSGE > most.sge:
		return nil, argument("MaxSGE", a.opError(op, nd.InvalidParameter, fmt.Sprintf("MaxSGE %d, at most %d", cfg.MaxSGE, most.sge), "see Adapter.Query for the limits"))
	case cfg.Threshold < 0 || cfg.Threshold > depth:
		return nil, argument("Threshold", a.opError(op, nd.InvalidParameter, fmt.Sprintf("Threshold %d, at most the depth of %d", cfg.Threshold, depth), "choose a threshold of at most the depth"))
	}
	q := &sharedReceiveQueue{adapter: a, sge: sge, lowThreshold: uint64(cfg.Threshold)}
	q.setDepth(uint64(depth))
	return adopt[nd.SharedReceiveQueue](a, op, kindQueue, q)
}

// setDepth makes room for depth receives, and keeps those that are posted.
func (q *sharedReceiveQueue) setDepth(depth uint64) {
	q.depth = depth
	q.fullError = q.opError("receive", nd.NoMoreEntries, fmt.Sprintf("%d receives are outstanding", depth), "poll for results, then retry, or create the queue with a greater depth")
	size := ceilPowerOfTwo(depth)
	if size <= uint64(len(q.receives)) {
		return
	}
	receives := newReceives(size, q.sge)
	for i := q.head; i != q.tail; i++ {
		from, to := &q.receives[i&uint64(len(q.receives)-1)], &receives[i&(size-1)]
		to.copyFrom(from)
	}
	q.receives = receives
}

// outstanding returns the number of posted receives that no message has taken. The caller holds
// q.mu, also for isLow.
func (q *sharedReceiveQueue) outstanding() uint64 { return q.tail - q.head }

func (q *sharedReceiveQueue) isLow() bool { return q.outstanding() < q.lowThreshold }

// Receive posts buffers for one message to any of the endpoints.
func (q *sharedReceiveQueue) Receive(reqCtx uint64, sge nd.SGL) error {
	const op = "receive"
	if sge.Len() > q.sge {
		return q.opError(op, nd.DataOverrun, fmt.Sprintf("%d scatter/gather entries, granted %d", sge.Len(), q.sge), "raise MaxSGE or post fewer entries")
	}
	q.mu.Lock()
	switch {
	case q.closed || q.adapter.provider.waiters.IsClosed():
		q.mu.Unlock()
		return q.opError(op, nd.InvalidHandle, "the queue is closed", "create another")
	case q.outstanding() >= q.depth:
		defer q.mu.Unlock()
		return q.fullError
	}
	r := &q.receives[q.tail&uint64(len(q.receives)-1)]
	if r.set(reqCtx, &sge); r.capacity > maxTransfer {
		defer q.mu.Unlock()
		return q.opError(op, nd.BufferOverflow, fmt.Sprintf("%d bytes, at most %d", r.capacity, maxTransfer), "post smaller buffers")
	}
	if err := q.adapter.provider.ask(context.Background(), mode.Call{Op: op, Object: q.String(), Peer: shm.NoRank, Size: r.capacity}); err != nil {
		q.mu.Unlock()
		return err
	}
	q.adapter.resolvePrivileged(r.sges())
	q.tail++
	wanted := len(q.waiting) > 0
	q.mu.Unlock()
	if wanted {
		q.adapter.provider.wakeProgress()
	}
	return nil
}

// assignReceive gives the oldest receive to an endpoint at which a message has begun. It returns
// false if the endpoint has to wait. The endpoint that has waited longest is served first,
// because otherwise an endpoint with a steady stream of messages could starve the others. The
// caller holds the endpoint's lock.
func (q *sharedReceiveQueue) assignReceive(ep *queuePair) bool {
	q.mu.Lock()
	place := slices.Index(q.waiting, ep)
	ahead := place
	if place < 0 {
		ahead = len(q.waiting)
	}
	if uint64(ahead) >= q.outstanding() {
		if place < 0 {
			q.waiting = append(q.waiting, ep)
			ep.counters.sharedStalls++
		}
		q.mu.Unlock()
		return false
	}
	if place >= 0 {
		q.waiting = slices.Delete(q.waiting, place, place+1)
	}
	ep.rq.receives[0].copyFrom(&q.receives[q.head&uint64(len(q.receives)-1)])
	ep.rq.posted++
	wasLow := q.isLow()
	q.head++
	event := q.countLow(wasLow)
	q.mu.Unlock()
	if event {
		q.adapter.provider.waiters.Wake()
	}
	return true
}

// countLow counts an event if the number of receives has just fallen below the threshold. The
// caller holds q.mu, and wakes all waits afterwards if it returns true.
func (q *sharedReceiveQueue) countLow(wasLow bool) bool {
	event := !wasLow && q.isLow()
	if event {
		q.events++
	}
	return event
}

// removeWaiter removes an endpoint from the waiting ones because its connection has ended. The
// next one gets its receive.
func (q *sharedReceiveQueue) removeWaiter(ep *queuePair) {
	q.mu.Lock()
	place := slices.Index(q.waiting, ep)
	if place >= 0 {
		q.waiting = slices.Delete(q.waiting, place, place+1)
	}
	wanted := place >= 0 && len(q.waiting) > 0 && q.outstanding() > 0
	q.mu.Unlock()
	if wanted {
		q.adapter.provider.wakeProgress()
	}
}

// Notify blocks until fewer receives are outstanding than the threshold. It returns at once if
// that is already true. A call that waits when it becomes true returns even if receives are
// posted before it checks.
func (q *sharedReceiveQueue) Notify(ctx context.Context) error {
	const op = "notify"
	q.mu.Lock()
	seen, closed := q.events, false
	q.mu.Unlock()
	err := q.adapter.provider.wait(ctx, statuspage.Call{Op: op, Object: q.String()}, nil, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		closed = q.closed
		return closed || q.events != seen || q.isLow()
	})
	switch {
	case err != nil:
		return Canceled(ctx, err, op, q.String())
	case closed:
		return q.opError(op, nd.Canceled, "the queue was closed", "")
	}
	return nil
}

// Modify changes depth and threshold; 0 keeps a value.
func (q *sharedReceiveQueue) Modify(depth, threshold int) error {
	const op = "modify"
	q.mu.Lock()
	defer q.mu.Unlock()
	if depth == 0 {
		depth = int(q.depth)
	}
	if threshold == 0 {
		threshold = int(q.lowThreshold)
	}
	switch {
	case q.closed:
		return q.opError(op, nd.InvalidHandle, "the queue is closed", "create another")
	case depth < 0 || depth > q.adapter.provider.limits.sharedDepth:
		return argument("depth", q.opError(op, nd.InvalidParameter, fmt.Sprintf("depth %d, at most %d", depth, q.adapter.provider.limits.sharedDepth), "see Adapter.Query for the limits"))
	case uint64(depth) < q.outstanding():
		return q.opError(op, nd.BufferOverflow, fmt.Sprintf("depth %d, and %d receives are outstanding", depth, q.outstanding()), "retry when messages have taken some")
	case threshold < 0 || threshold > depth:
		return argument("threshold", q.opError(op, nd.InvalidParameter, fmt.Sprintf("threshold %d, at most the depth of %d", threshold, depth), "choose a threshold of at most the depth"))
	}
	wasLow := q.isLow()
	q.setDepth(uint64(depth))
	q.lowThreshold = uint64(threshold)
	if q.countLow(wasLow) {
		q.adapter.provider.waiters.Wake()
	}
	return nil
}

// NotifyAffinity returns the processors that this process may run on.
func (q *sharedReceiveQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	return notifyAffinity(q.String())
}

// Close ends all waits and refuses further receives. Posted receives continue to serve the
// endpoints of the queue.
func (q *sharedReceiveQueue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.adapter.disown(kindQueue, q)
	q.adapter.provider.waiters.Wake()
	return nil
}

func (q *sharedReceiveQueue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func (q *sharedReceiveQueue) String() string { return "shared receive queue" }

func (q *sharedReceiveQueue) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: q.String(), Status: s, Detail: detail, Next: next}
}
