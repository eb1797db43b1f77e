package endpoint

import (
	"cmp"
	"slices"

	"github.com/softnd/softnd/nd"
)

// Most counters are derived from the words that posting and completing change anyway. The fast path
// counts nothing else. With Options.CountOperations, each result is added under the completion queue's
// lock, where it is counted by type. TWIN c/src/endpoint/stats.c.

// stall counts, once for a request and a cause, that the request waits.
func (ep *queuePair) stall(r *request, cause stallCause) outcome {
	if r.stalls&(1<<cause) == 0 {
		r.stalls |= 1 << cause
		ep.counters.stalls[cause]++
	}
	return blocked
}

// Stats returns the counters of the endpoint.
func (ep *queuePair) Stats() nd.EndpointStats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.statsLocked()
}

// statsLocked is Stats for a caller that holds ep.mu. It reads private memory only, so it may be called
// after the arena was unmapped.
func (ep *queuePair) statsLocked() nd.EndpointStats {
	k := &ep.counters
	immediate := ep.sq.slotsTaken + k.silent - ep.sq.posted // requests of the fast path, which posted omits
	s := nd.EndpointStats{
		Number: ep.number, State: ep.state().String(),
		RequestsPosted: ep.sq.posted + immediate, RequestsCompleted: ep.sq.completed + immediate, RequestsImmediate: immediate,
		ReceivesPosted: ep.rq.posted, ReceivesCompleted: ep.rq.completed,
		PostsRefused: k.postsRefused, AccessesRefused: k.accessRefused,
		Fragments: k.fragments, Retries: k.retries,
		Stalls: nd.Stalls{Receive: k.stalls[stallReceive], SharedReceive: k.sharedStalls, Queue: k.stalls[stallQueue], Order: k.stalls[stallOrder], Drain: k.stalls[stallDrain]},
	}
	if ep.conn != nil {
		s.Peer = ep.conn.peerName
	}
	if k.operations != nil {
		operations := *k.operations
		s.Operations = &operations
	}
	return s
}

// Stats returns the counters of the completion queue.
func (q *completionQueue) Stats() nd.CompletionQueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	tail := q.ring.Tail.Load()
	s := nd.CompletionQueueStats{
		Number: q.number, Depth: int(q.ring.Limit()), Queued: tail - q.ring.Head.Load(), Results: tail,
		Polls: q.polls.Load(), Overrun: q.hasOverrun,
	}
	if q.operations != nil {
		operations := *q.operations
		s.Operations = &operations
	}
	return s
}

// Stats are the counters of a provider.
type Stats struct {
	Endpoints        []nd.EndpointStats        // open endpoints, in the order of their numbers
	Closed           nd.EndpointStats          // sums of the closed ones
	ClosedEndpoints  int                       // number of the closed ones
	CompletionQueues []nd.CompletionQueueStats // that open endpoints use, in the order of their numbers
}

// Stats returns the counters of all endpoints and of their completion queues, without those of hidden adapters.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	s := Stats{Closed: p.freedStats, ClosedEndpoints: p.freedEndpoints}
	if s.Closed.Operations != nil {
		operations := *s.Closed.Operations
		s.Closed.Operations = &operations
	}
	open, unfreed := *p.endpoints.Load(), slices.Clone(p.unfreed)
	p.mu.Unlock()
	queues := make(map[*completionQueue]bool)
	for _, ep := range open {
		if ep.adapter.isHidden {
			continue
		}
		queues[ep.sq.cq], queues[ep.rq.cq] = true, true
		s.Endpoints = append(s.Endpoints, ep.Stats())
	}
	for _, ep := range unfreed {
		addStats(&s.Closed, ep.Stats())
		s.ClosedEndpoints++
	}
	for q := range queues {
		s.CompletionQueues = append(s.CompletionQueues, q.Stats())
	}
	slices.SortFunc(s.Endpoints, func(a, b nd.EndpointStats) int { return cmp.Compare(a.Number, b.Number) })
	slices.SortFunc(s.CompletionQueues, func(a, b nd.CompletionQueueStats) int { return cmp.Compare(a.Number, b.Number) })
	return s
}

// firstHidden is less than the numbers of all endpoints of hidden adapters.
const firstHidden = 1 << 20

// Hide tells Provider.Stats and the fault plan that the objects of this handle are not the program's. Stats leaves out its
// endpoints. Calls that create or connect them meet no rule, and change no number of another endpoint. Hide has to be called
// before the handle has any.
func (a *adapter) Hide() { a.isHidden = true }

// nextEndpoint returns the number of a new endpoint.
func (a *adapter) nextEndpoint() uint64 {
	if a.isHidden {
		return firstHidden + a.provider.hiddenCreated.Add(1)
	}
	return a.provider.endpointsCreated.Add(1)
}

// countFreed adds the counters of an endpoint, which change no more, to those of the freed ones. The
// caller holds ep.mu.
func (p *Provider) countFreed(ep *queuePair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.unfreed, ep); i >= 0 {
		p.unfreed = slices.Delete(p.unfreed, i, i+1)
		addStats(&p.freedStats, ep.statsLocked())
		p.freedEndpoints++
	}
}

// addStats adds the counters of one endpoint to a sum.
func addStats(sum *nd.EndpointStats, s nd.EndpointStats) {
	sum.RequestsPosted += s.RequestsPosted
	sum.RequestsCompleted += s.RequestsCompleted
	sum.RequestsImmediate += s.RequestsImmediate
	sum.ReceivesPosted += s.ReceivesPosted
	sum.ReceivesCompleted += s.ReceivesCompleted
	sum.PostsRefused += s.PostsRefused
	sum.AccessesRefused += s.AccessesRefused
	sum.Fragments += s.Fragments
	sum.Retries += s.Retries
	sum.Stalls.Receive += s.Stalls.Receive
	sum.Stalls.SharedReceive += s.Stalls.SharedReceive
	sum.Stalls.Queue += s.Stalls.Queue
	sum.Stalls.Order += s.Stalls.Order
	sum.Stalls.Drain += s.Stalls.Drain
	if s.Operations == nil {
		return
	}
	if sum.Operations == nil {
		sum.Operations = new(nd.OperationStats)
	}
	for _, t := range [...]nd.RequestType{nd.RequestSend, nd.RequestWrite, nd.RequestRead, nd.RequestBind, nd.RequestInvalidate, nd.RequestFastRegister, nd.RequestSwap, nd.RequestReceive} {
		to, from := sum.Operations.Of(t), s.Operations.Of(t)
		to.Succeeded += from.Succeeded
		to.Failed += from.Failed
		to.Bytes += from.Bytes
	}
}
