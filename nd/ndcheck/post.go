package ndcheck

import (
	"context"
	"fmt"
	"slices"

	"github.com/softnd/softnd/nd"
)

func (ep *endpoint) Receive(reqCtx uint64, sge nd.SGL) error {
	r := ep.newRequest(nd.RequestReceive, reqCtx, sge, 0)
	r.snapshot()
	ep.mu.Lock()
	suspect := ep.releaseSources(r)
	ep.track(r)
	ep.mu.Unlock()
	ep.reportChanges(suspect)
	load := ep.overload(r, ep.receiveQueue)
	if err := ep.Endpoint.Receive(r.id, sge); err != nil {
		ep.mu.Lock()
		ep.untrack(r)
		ep.mu.Unlock()
		return err
	}
	ep.foundAll(load)
	return nil
}

// post posts an initiator request. Its record exists before the post, because the result may be taken before the
// post has returned. Findings are reported after it.
func (ep *endpoint) post(r *request, call func() error) error {
	r.snapshot()
	ep.order.Lock()
	ep.mu.Lock()
	found := ep.checkBuffers(r)
	suspect := ep.releaseSources(r)
	ep.track(r)
	ordered := ep.orderedBy(r)
	ep.mu.Unlock()
	ep.journal.order(ordered) // before the peer can see the message
	found = append(found, ep.overload(r, ep.initiatorQueue)...)
	found = append(found, ep.openAccess(r)...)
	if r.invalidate {
		ep.journal.announce(r.token, ep.rank, r.site, r.posted)
	}
	err := call()
	if err == nil {
		ep.noteDeferred(r)
	} else if r.invalidate {
		ep.journal.retract(r.token, ep.rank, r.posted)
	}
	ep.order.Unlock()
	ep.reportChanges(suspect)
	if err != nil {
		ep.postFailed(r, err)
		return err
	}
	ep.foundAll(append(found, ep.posted(r)...))
	return nil
}

// foundAll reports findings about a post.
func (ep *endpoint) foundAll(found []Finding) {
	for _, f := range found {
		about := []object{ep}
		for _, q := range []*queue{ep.receiveQueue, ep.initiatorQueue} {
			if q != nil && f.Rule == overrunAhead {
				about = append(about, q)
			}
		}
		ep.found(f, about...)
	}
}

// noteDeferred keeps the first request that the provider may keep. The caller holds ep.order.
func (ep *endpoint) noteDeferred(r *request) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !r.flags.Has(nd.Defer) {
		ep.deferred = nil
	} else if ep.deferred == nil {
		ep.deferred = r
	}
}

// WaitSlot submits deferred requests if it waits, which it does if the queue is full.
func (ep *endpoint) WaitSlot(ctx context.Context) error {
	ep.mu.Lock()
	if len(ep.initiator) >= ep.depth {
		ep.deferred = nil
	}
	ep.mu.Unlock()
	return ep.Endpoint.WaitSlot(ctx)
}

// checkBuffers checks a request that is about to be posted against those before it. The caller holds checker.mu.
func (ep *endpoint) checkBuffers(r *request) (found []Finding) {
	if r.flags.Has(nd.ReadFence) && ep.fenced == nil {
		ep.fenced = r
	}
	if r.fetches() {
		ep.reads++
	}
	unfenced := ep.unfenced(r)
	for _, q := range unfenced {
		if r.invalidate && q.token == r.token {
			found = append(found, Finding{Rule: overtaken, Site: r.site, What: r.name() + " may invalidate the token first", OtherRank: ep.rank, Other: q.name() + " is in flight", OtherSite: q.site})
			break
		}
	}
	if r.kind != nd.RequestSend && r.kind != nd.RequestWrite {
		return found
	}
	for q := range ep.sinks {
		if at, n := commonBytes(r, q, r.size); n > 0 {
			r.isUnchecked = true                                                                      // its bytes may change after this post
			isOrdered := q.fetches() && q.owner == ep && !r.inline() && !slices.Contains(unfenced, q) // Inline takes the bytes at the post
			if isOrdered || q.answered {
				continue
			}
			f := Finding{Rule: receiveUsed, Site: r.site, What: r.name() + " takes its bytes", Address: at, Length: n,
				OtherRank: ep.rank, Other: q.name() + " may still store into them", OtherSite: q.site}
			if q.fetches() {
				f.Rule = readUsed
			}
			return append(found, f)
		}
	}
	return found
}

// releaseSources compares earlier sources for the last time, if a request that is about to be posted may store into them. The
// request may be a Receive for the peer's answer, or a Read behind a Write of the same endpoint. releaseSources returns the
// sources that have changed. The caller holds checker.mu.
func (c *checker) releaseSources(r *request) (suspect []suspicion) {
	if !r.isSink() || r.size == 0 {
		return nil
	}
	for q := range c.unanswered {
		if !q.isSource() || q.isUnchecked || r.fetches() && q.owner != r.owner { // requests of two endpoints have no order
			continue
		}
		if _, n := commonBytes(r, q, r.size); n > 0 {
			suspect = append(suspect, c.checkSource(q)...)
			q.isUnchecked = true
		}
	}
	return suspect
}

// unfenced returns the Reads and atomics in flight that r need not wait for. The caller holds checker.mu.
func (ep *endpoint) unfenced(r *request) (reads []*request) {
	if r.flags.Has(nd.ReadFence) {
		return nil
	}
	for _, q := range ep.initiator {
		if q.flags.Has(nd.ReadFence) {
			reads = nil // later requests wait, too
		}
		if q.fetches() && q != r && !q.answered {
			reads = append(reads, q)
		}
	}
	return reads
}

// orderedBy returns the accesses that a message orders: the peer may learn from it that the Writes and atomics before it
// are done, and the Reads that it waits for. They stay open until their results: a Write may store its bytes later. The
// caller holds checker.mu.
func (ep *endpoint) orderedBy(r *request) (numbers []uint32) {
	if !r.sendsMessage() {
		return nil
	}
	unfenced := ep.unfenced(r)
	for _, q := range ep.initiator {
		if q.access != 0 && !q.isOrdered && (q.isAtomic() || !slices.Contains(unfenced, q)) {
			numbers = append(numbers, q.access)
			q.isOrdered = true
		}
	}
	return numbers
}

// overload reports a queue that cannot hold the results of all requests in flight.
func (ep *endpoint) overload(r *request, q *queue) []Finding {
	if q == nil || r.silent() {
		return nil
	}
	ep.mu.Lock()
	load, depth := q.load+q.receives, q.depth
	ep.mu.Unlock()
	if load <= depth {
		return nil
	}
	return []Finding{{Rule: overrunAhead, Site: r.site, What: fmt.Sprintf("%s is result %d of %s, whose depth is %d", r.name(), load, q.name(), depth),
		OtherRank: ep.rank, Other: "created the queue", OtherSite: q.site}}
}

// openAccess notes a Read, a Write or an atomic in flight, and returns those that conflict with it.
func (ep *endpoint) openAccess(r *request) (found []Finding) {
	if !r.fetches() && r.kind != nd.RequestWrite || r.size == 0 {
		return nil
	}
	a := access{write: r.kind != nd.RequestRead, atomic: r.isAtomic(), rank: ep.rank, endpoint: ep.id, address: r.address, size: r.size, posted: r.posted, site: r.site}
	peer := int(ep.peerRank.Load()) - 1
	number, conflicts, isKnown := ep.journal.openRemote(r.token, &a, peer)
	if !isKnown {
		return nil
	}
	if number == 0 { // the table is full
		number, conflicts = ep.journal.reopen(a, ep.executed())
	}
	if number == 0 {
		found = append(found, Finding{Rule: sightLost, What: fmt.Sprintf("%s is not watched, because %d Reads and Writes of all ranks are in flight", r.name(), maxAccesses)})
	}
	ep.mu.Lock()
	learnedAt := ep.learnedAt
	r.access, r.target = number, a.address
	r.isOrdered = r.hasImmediate // its own number says that its bytes are there
	for _, q := range ep.unfenced(r) {
		if a.write && q.kind == nd.RequestRead && q.target != 0 && overlaps(a.address, a.size, q.target, q.size) {
			found = append(found, Finding{Rule: overtaken, Site: r.site, What: r.name() + " may store first", Address: a.address, Length: a.size, OtherRank: ep.rank, Other: q.name() + " reads some of the bytes", OtherSite: q.site})
			break
		}
	}
	ep.mu.Unlock()
	if r.hasImmediate && number != 0 {
		ep.journal.order([]uint32{number})
	}
	for _, other := range conflicts {
		// The program may have learned that the other access is complete.
		if isFlag(a, other) || learnedAt >= other.posted || ep.unwatchedMayHaveWritten(nil) {
			continue
		}
		from := max(a.address, other.address)
		f := Finding{Rule: conflict, Site: r.site, What: r.name() + " has no order", Address: from, Length: min(a.address+a.size, other.address+other.size) - from,
			OtherRank: other.rank, Other: fmt.Sprintf("%s of %d bytes on endpoint %d is in flight", accessName(other), other.size, other.endpoint), OtherSite: other.site}
		switch {
		case a.write && other.write && a.atomic != other.atomic:
			f.Rule = writeBesideAtomic
		case other.rank == ep.rank && a.write != other.write:
			f.Rule = readBesideWrite
		}
		found = append(found, f)
	}
	return found
}

// executed returns the accesses of silent requests that the provider must have executed, because its queues do not hold as
// many. The places of these accesses are free for others.
func (c *checker) executed() (numbers []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ep := range c.endpoints {
		for _, q := range ep.initiator[:max(0, len(ep.initiator)-2*ep.depth)] { // a provider may round the depth up
			if q.silent() && q.access != 0 {
				numbers = append(numbers, q.access)
				q.access = 0
			}
		}
	}
	return numbers
}

// isFlag reports whether two accesses are a Write or an atomic of a word and a Read that polls it.
func isFlag(a, b access) bool {
	return a.write != b.write && a.address == b.address && a.size == b.size && (a.size == 1 || a.size == 2 || a.size == 4 || a.size == 8) && a.address%a.size == 0
}

func accessName(a access) string {
	switch {
	case a.atomic:
		return "an atomic"
	case a.write:
		return "a Write"
	}
	return "a Read"
}

// posted checks a request that has just been posted.
func (ep *endpoint) posted(r *request) (found []Finding) {
	ep.mu.Lock()
	if ep.hasFailed && ep.failedOn.polls.Load() > ep.failedPoll { // before, the program may still read its results
		ep.ignored++
	}
	ignored := ep.ignored
	surplus, first := ep.surplus()
	ep.mu.Unlock()
	ep.journal.close(surplus)
	if first {
		found = append(found, Finding{Rule: silentSurplus, Site: r.site, What: fmt.Sprintf("%s is more than %d requests after the last one whose result was taken", r.name(), ep.depth)})
	}
	if threshold := uint64(ep.adapter.info.InlineRequestThreshold); r.inline() && threshold > 0 && r.size > threshold {
		found = append(found, Finding{Rule: slowInline, Site: r.site, What: fmt.Sprintf("%s has Inline, and the threshold is %d", r.name(), threshold)})
	}
	if ignored == ep.depth { // another goroutine may still read its results, and post for each that is a success
		found = append(found, Finding{Rule: failedIgnored, Site: r.site, What: fmt.Sprintf("%s is post %d since the program took a failed result", r.name(), ignored)})
	}
	return found
}

// surplus reports whether the endpoint has more requests than its queue holds. If there are more than any queue holds,
// it forgets the first silent one, which the provider must have executed, and returns its access. The caller holds
// checker.mu.
func (ep *endpoint) surplus() (access uint32, found bool) {
	if len(ep.initiator) <= ep.depth || ep.hasFailed || ep.ending {
		return 0, false
	}
	if len(ep.initiator) > int(ep.adapter.info.MaxInitiatorQueueDepth) {
		if i := slices.IndexFunc(ep.initiator, (*request).silent); i >= 0 {
			access = ep.untrack(ep.initiator[i])
		}
	}
	return access, true
}

// postFailed forgets a request that the provider has refused. Such a post submits the deferred requests.
func (ep *endpoint) postFailed(r *request, err error) {
	ep.mu.Lock()
	access := ep.untrack(r)
	ep.deferred = nil
	silent := len(ep.initiator) >= ep.depth // else the queue was full of other requests, whose results were taken just now
	for _, q := range ep.initiator {
		silent = silent && q.silent()
	}
	n := len(ep.initiator)
	ep.mu.Unlock()
	ep.journal.close(access)
	if nd.StatusOf(err) == nd.NoMoreEntries && silent && ep.Err() == nil { // those of a failed endpoint have results
		ep.found(Finding{Rule: onlySilent, Site: r.site, What: fmt.Sprintf("%s was refused: the last %d requests are silent", r.name(), n)}, ep)
	}
}
