package ndcheck

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/nd"
)

// queue watches a completion queue.
type queue struct {
	nd.CompletionQueue
	*checker
	adapter *adapter
	id      uint32
	site    string // that created it

	// Guarded by checker.mu.
	depth     int
	load      int   // requests whose result the program has not taken, without silent ones
	silent    int   // silent requests in flight
	receives  int   // posted Receives, without those of shared receive queues
	shared    bool  // an endpoint with a shared receive queue uses it
	posts     int   // requests so far
	trouble   int64 // when a wait of the program has last failed, 0 = never, or it has gone on since
	isClosing bool  // the program has called Close
	closed    bool

	polls atomic.Uint64 // calls that take results
}

// counter returns the number that a request counts in.
func (q *queue) counter(r *request) *int {
	switch {
	case !r.kind.Initiator():
		return &q.receives
	case r.silent():
		return &q.silent
	}
	return &q.load
}

func (q *queue) isClosed() bool { return q != nil && q.closed }

func (q *queue) name() string   { return fmt.Sprintf("completion queue %d", q.id) }
func (q *queue) home() *adapter { return q.adapter }
func (q *queue) self() *queue   { return q }

// checkedQueue is a queue with the optional interfaces of the one below.
type checkedQueue interface{ self() *queue }

type (
	countingQueue struct {
		*queue
		nd.CountingCompletionQueue
	}
	moderatedQueue struct {
		*queue
		nd.InterruptModerator
	}
	fullQueue struct {
		*queue
		nd.CountingCompletionQueue
		nd.InterruptModerator
	}
)

func (q *queue) withOptions() nd.CompletionQueue {
	counting, counts := q.CompletionQueue.(nd.CountingCompletionQueue)
	moderator, moderates := q.CompletionQueue.(nd.InterruptModerator)
	switch {
	case counts && moderates:
		return &fullQueue{q, counting, moderator}
	case counts:
		return &countingQueue{q, counting}
	case moderates:
		return &moderatedQueue{q, moderator}
	}
	return q
}

func (q *queue) Poll(results []nd.Result) int {
	q.polls.Add(1)
	n := q.CompletionQueue.Poll(results)
	q.take(results[:n])
	return n
}

func (q *queue) Wait(ctx context.Context, results []nd.Result) (int, error) {
	q.polls.Add(1)
	defer q.watchWait("Wait")()
	n, err := q.CompletionQueue.Wait(ctx, results)
	q.take(results[:n])
	q.waited(err)
	return n, err
}

// WaitEndpoint lets WaitOne end as over the provider alone. It implements [nd.EndpointWaiter].
func (q *queue) WaitEndpoint(ctx context.Context, results []nd.Result, ep nd.Endpoint) (int, error) {
	waiter, ok := q.CompletionQueue.(nd.EndpointWaiter)
	checked, ours := ep.(checkedEndpoint)
	if !ok || !ours {
		return 0, &nd.OpError{Op: "wait", Object: "completion queue", Status: nd.NotSupported}
	}
	q.polls.Add(1)
	defer q.watchWait("Wait")()
	n, err := waiter.WaitEndpoint(ctx, results, checked.self().Endpoint)
	q.take(results[:n])
	q.waited(err)
	return n, err
}

func (q *queue) Notify(ctx context.Context, t nd.NotifyType) error {
	if t == nd.NotifyAny {
		defer q.watchWait("Notify")()
	}
	err := q.CompletionQueue.Notify(ctx, t)
	q.waited(err)
	return err
}

// waitLimit is the time after which the checker looks for the reason of a wait.
const waitLimit = 500 * time.Millisecond

// watchWait reports a wait for results that cannot come. The result ends the watch.
func (q *queue) watchWait(call string) func() {
	site := here()
	q.mu.Lock()
	posts := q.posts
	q.mu.Unlock()
	timer := time.AfterFunc(waitLimit, func() {
		q.mu.Lock()
		hopeless, silent := q.load == 0 && q.receives == 0 && q.silent > 0 && !q.shared && q.posts == posts, q.silent
		q.mu.Unlock()
		if hopeless && isAlone() { // else another goroutine may post
			q.found(Finding{Rule: waitForSilence, Site: site, What: fmt.Sprintf("%s of %s, whose %d requests are all silent", call, q.name(), silent)}, q)
		}
	})
	return func() { timer.Stop() }
}

func (q *queue) Resize(depth int) error {
	err := q.CompletionQueue.Resize(depth)
	if err == nil {
		q.mu.Lock()
		q.depth = depth
		q.mu.Unlock()
	}
	return err
}

// closing counts the results that the program has not taken, which the queue then drops.
func (q *queue) closing(site string) {
	q.mu.Lock()
	q.isClosing = true // so the results below are no news to the program
	inTrouble := q.inTrouble()
	q.mu.Unlock()
	var results [16]nd.Result
	var left int
	var first nd.Result
	for {
		n := q.CompletionQueue.Poll(results[:])
		missed := q.missed(results[:n])
		q.take(results[:n])
		for _, i := range missed {
			if left++; left == 1 {
				first = results[i]
			}
		}
		if n < len(results) {
			break
		}
	}
	if left > 0 && !inTrouble {
		q.found(Finding{Rule: neverTaken, Site: site, What: fmt.Sprintf("closes %s with %d results, the first of %s %d: %v", q.name(), left, typeName(first.RequestType), first.RequestContext, first.Status)}, q)
	}
}

func (q *queue) gone(string) { q.dropped() }

func (q *queue) Close() error { return q.adapter.close(q, q.CompletionQueue.Close) }

// missed returns the indices of results that the program needs. It knows about flushed requests, about requests that a
// message has answered, and about endpoints that have failed.
func (q *queue) missed(results []nd.Result) (missed []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, res := range results {
		r, ep := q.requests[res.RequestContext], q.endpoints[res.EndpointContext]
		if ep != nil && ep.hasFailed {
			continue
		}
		if res.Status != nd.Canceled && !(r != nil && r.answered && res.Status == nd.Success) {
			missed = append(missed, i)
		}
	}
	return missed
}

// sharedQueue watches a shared receive queue.
type sharedQueue struct {
	nd.SharedReceiveQueue
	*checker
	adapter *adapter
	id      uint32

	closed bool // guarded by checker.mu
}

func (q *sharedQueue) name() string   { return fmt.Sprintf("shared receive queue %d", q.id) }
func (q *sharedQueue) home() *adapter { return q.adapter }

func (q *sharedQueue) Receive(reqCtx uint64, sge nd.SGL) error {
	r := q.newRequest(q, nd.RequestReceive, reqCtx, sge, 0)
	r.snapshot()
	q.mu.Lock()
	suspect := q.releaseSources(r)
	q.track(r)
	q.mu.Unlock()
	q.reportChanges(suspect)
	err := q.SharedReceiveQueue.Receive(r.id, sge)
	if err != nil {
		q.mu.Lock()
		q.untrack(r)
		q.mu.Unlock()
	}
	return err
}

func (q *sharedQueue) closing(string) {}

func (q *sharedQueue) gone(string) {
	q.mu.Lock()
	q.closed = true
	q.leave()
	q.mu.Unlock()
}

func (q *sharedQueue) Close() error { return q.adapter.close(q, q.SharedReceiveQueue.Close) }

// leave forgets the Receives if the queue is closed and no endpoint can take them. The caller holds checker.mu.
func (q *sharedQueue) leave() {
	if !q.closed {
		return
	}
	for _, ep := range q.endpoints {
		if ep.shared == q {
			return
		}
	}
	for _, r := range q.requests {
		if r.owner == q {
			q.untrack(r)
		}
	}
}
