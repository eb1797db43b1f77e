package endpoint

// TWIN c/src/endpoint/cq.c.

import (
	"context"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// Poll takes up to len(results) results. It never blocks and does not allocate. It makes a
// system call only if an event descriptor or moderation is in use, or if it must wake a peer. It
// also makes one after another goroutine has used the queue or its endpoints, and after this
// goroutine's stack has moved; see [asym.BiasedMutex].
func (q *completionQueue) Poll(results []nd.Result) (n int) {
	switch thorough := q.countPoll()%thoroughInterval == 0; {
	case thorough:
		q.progressSome()
	case q.ring.IsEmpty():
		asym.StoreRelease(&q.scans, q.scans.Load()+1)
		if users := *q.endpoints.Load(); len(users) != 1 {
			n = q.scanEndpoints(results, users)
		} else if users[0].hasWork() { // the common case
			n, _ = users[0].progressInto(q, results)
		}
		if q.ring.IsEmpty() {
			return n
		}
		return n + q.pop(results[n:])
	}
	return q.pop(results)
}

// One poll in thoroughInterval drives thoroughEndpoints endpoints even if results are queued,
// and even endpoints without visible work: a peer may have disconnected or died. It does not
// drive all endpoints of a large queue, which would take microseconds.
const (
	thoroughInterval  = 1024
	thoroughEndpoints = 8
)

// scanEndpoints drives endpoints that have work until there is a result. Results of messages may
// be returned directly: n of them are in results. It scans only some endpoints of a large queue:
// those after the latest that had a result, because programs often use endpoints in turn, and a
// few others that rotate.
func (q *completionQueue) scanEndpoints(results []nd.Result, users []*queuePair) (n int) {
	if len(users) <= likelyEndpoints+otherEndpoints {
		n, _ = q.scanSome(results, users, int(q.nextLikely.Load()), len(users))
		return n
	}
	n, found := q.scanSome(results, users, int(q.nextLikely.Load()), likelyEndpoints)
	if found {
		return n
	}
	at := q.nextOther.Load()
	if n, found = q.scanSome(results, users, int(at), otherEndpoints); found {
		asym.StoreRelease32(&q.nextOther, q.nextLikely.Load()) // continue behind the endpoint that had a result
	} else {
		asym.StoreRelease32(&q.nextOther, (at+otherEndpoints)%uint32(len(users)))
	}
	return n
}

// How many endpoints a poll scans if the queue has more than the sum of both.
const (
	likelyEndpoints = 2
	otherEndpoints  = 4
)

// scanSome scans count endpoints from index at on. It drives those that have work until there is
// a result. It returns the number of results stored directly, and whether there is any result.
func (q *completionQueue) scanSome(results []nd.Result, users []*queuePair, at, looks int) (n int, found bool) {
	for range looks {
		if at >= len(users) {
			at = 0
		}
		ep := users[at]
		at++
		if !ep.hasWork() {
			continue
		}
		n, m := ep.progressInto(q, results)
		if m == noProgress {
			continue
		}
		asym.StoreRelease32(&q.nextLikely, uint32(at)) // the next endpoint goes first, so that no endpoint starves
		if n > 0 || !q.ring.IsEmpty() {
			return n, true
		}
	}
	return 0, false
}

// progressSome drives the next thoroughEndpoints endpoints in rotation.
func (q *completionQueue) progressSome() {
	asym.StoreRelease(&q.scans, q.scans.Load()+1)
	users := *q.endpoints.Load()
	at := int(q.nextThorough.Load())
	for range min(len(users), thoroughEndpoints) {
		if at >= len(users) {
			at = 0
		}
		users[at].progress()
		at++
	}
	asym.StoreRelease32(&q.nextThorough, uint32(at))
}

func (q *completionQueue) progressAll() {
	asym.StoreRelease(&q.scans, q.scans.Load()+1)
	for _, ep := range *q.endpoints.Load() {
		ep.progress()
	}
}

// countPoll counts a poll. It tells the engine of one poll in 16: the engine needs to know only
// that the program polls.
func (q *completionQueue) countPoll() uint64 {
	polls := q.polls.Load() + 1
	asym.StoreRelease(&q.polls, polls)
	if polls%16 == 1 {
		asym.StoreRelease(&q.provider.engine.polls, polls)
	}
	return polls
}

// Wait is Poll that blocks until there is a result, the queue is closed or has overrun, or ctx
// ends.
func (q *completionQueue) Wait(ctx context.Context, results []nd.Result) (int, error) {
	return q.wait(ctx, results, nil)
}

// WaitEndpoint is Wait that also returns, with 0 and nil, when the queue gets no further result of ep. It
// implements [nd.EndpointWaiter].
func (q *completionQueue) WaitEndpoint(ctx context.Context, results []nd.Result, ep nd.Endpoint) (int, error) {
	own, ok := ep.(*queuePair)
	if !ok || own.provider != q.provider {
		return 0, q.opError("wait", nd.NotSupported, "the endpoint is not of this provider", "call Wait")
	}
	return q.wait(ctx, results, own)
}

// wait is WaitEndpoint, and Wait if ep is nil.
func (q *completionQueue) wait(ctx context.Context, results []nd.Result, ep *queuePair) (int, error) {
	const op = "wait"
	if len(results) == 0 {
		return 0, argument("results", q.opError(op, nd.InvalidParameter, "results is empty", "pass a slice of length 1 or more"))
	}
	if n := q.Poll(results); n > 0 {
		return n, nil
	}
	n, err := 0, error(nil)
	werr := q.provider.wait(ctx, statuspage.Call{Op: op, Queue: q.number}, func() { q.countPoll(); q.progressAll() }, func() bool {
		if n = q.pop(results); n > 0 {
			return true
		}
		if err = q.failure(op); err == nil && (ep == nil || !ep.hasNoMoreResults()) {
			return false
		}
		if n = q.pop(results); n > 0 { // a result may have been added since the first pop
			err = nil
		}
		return true
	})
	if werr != nil {
		return 0, Canceled(ctx, werr, op, "completion queue")
	}
	return n, err
}
