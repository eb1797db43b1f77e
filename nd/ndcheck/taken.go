package ndcheck

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/nd"
)

// batch is what the results of one call mean for the journal, which is told once.
type batch struct {
	closed []uint32 // accesses
	wrote  []wrote
}

// take notes that the program takes results, and gives them the program's contexts.
func (q *queue) take(results []nd.Result) {
	var b batch
	for i := range results {
		q.taken(&results[i], &b)
	}
	q.journal.finish(q.rank, b)
}

// taken checks the bytes of the requests that a result completes, before another goroutine can know about them: until
// then, it holds checker.mu.
func (q *queue) taken(res *nd.Result, b *batch) {
	c := q.checker
	c.mu.Lock()
	ep := c.endpoints[res.EndpointContext]
	if ep == nil {
		c.mu.Unlock()
		return // of an endpoint that was not made by the checker
	}
	res.EndpointContext = ep.context
	var done []*request // that have succeeded: silent requests before it, and itself
	r := c.requests[res.RequestContext]
	if r != nil {
		res.RequestContext = r.ctx
		if r.kind.Initiator() {
			done = ep.silentBefore(r)
		}
		if res.Status == nd.Success {
			done = append(done, r)
		}
	}
	for _, d := range done {
		b.closed = append(b.closed, c.untrack(d))
	}
	if r != nil {
		b.closed = append(b.closed, c.untrack(r))
	}
	var suspect []suspicion
	for _, d := range done {
		switch d.kind {
		case nd.RequestReceive:
			suspect = append(suspect, c.checkSink(d, received(res))...)
		case nd.RequestRead, nd.RequestFetchAndAdd, nd.RequestCompareAndSwap, nd.RequestSwap:
			suspect = append(suspect, c.checkSink(d, d.size)...)
		default:
			suspect = append(suspect, c.checkSource(d)...)
		}
	}
	if res.Status != nd.Success || !slices.Contains(silentTypes, res.RequestType) {
		suspect = append(suspect, c.learned()...)
	}
	isBroken := res.Status != nd.Success && !ep.hasFailed
	switch {
	case q.isClosing: // the program does not see the result
	case isBroken:
		ep.hasFailed, ep.failedOn, ep.failedPoll = true, q, q.polls.Load()
		if res.Status != nd.Canceled || !ep.ending { // else the program has ended the connection
			ep.adapter.fails()
		}
	case res.Status == nd.Success && r != nil:
		q.goesOn(r)
	}
	ep.leave()
	c.mu.Unlock()
	c.reportChanges(suspect)
	for _, d := range done {
		c.succeeded(ep, d, *res, b)
	}
	if r != nil && r.invalidate && res.Status != nd.Success {
		c.journal.retract(r.token, c.rank, r.posted)
	}
	if r != nil && res.Status != nd.Success && res.Status != nd.Canceled {
		c.failed(ep, r, *res)
	}
	switch {
	case isBroken && res.Status == nd.Canceled:
		ep.leftByPeer(here())
	case isBroken:
		ep.ended(here())
	}
}

// received returns how many bytes a Receive has stored in its buffers.
func received(res *nd.Result) uint64 {
	switch res.RequestType {
	case nd.RequestReceive, nd.RequestReceiveAndInvalidate, nd.RequestReceiveImmediate:
		return uint64(res.BytesTransferred)
	case nd.RequestReceiveWriteImmediate: // the Write has stored them elsewhere
	}
	return 0
}

// silentTypes are requests whose success says nothing about what the peer has done.
var silentTypes = []nd.RequestType{nd.RequestSend, nd.RequestWrite, nd.RequestBind, nd.RequestFastRegister}

// silentBefore returns the silent requests before r. The caller holds checker.mu.
func (ep *endpoint) silentBefore(r *request) (before []*request) {
	for _, q := range ep.initiator {
		if q == r {
			break
		}
		if q.silent() {
			before = append(before, q)
		}
	}
	return before
}

// learned notes that the program is about to learn something about other processes. It may be that requests in flight
// are complete. So this compares their bytes, which may change from now on. The caller holds checker.mu.
func (c *checker) learned() (suspect []suspicion) {
	c.learnedAt = now()
	c.journal.learn(c.rank, c.learnedAt)
	for r := range c.unanswered {
		if r.fetches() && !r.isFencedOff() {
			continue // its sink may still change
		}
		suspect = append(suspect, c.checkSource(r)...)
		r.answered = true
		delete(c.unanswered, r)
	}
	return suspect
}

// isFencedOff reports whether a later request waits for a Read. The caller holds checker.mu.
func (r *request) isFencedOff() bool {
	ep, ok := r.owner.(*endpoint)
	if !ok {
		return false
	}
	i := slices.Index(ep.initiator, r)
	return i >= 0 && slices.ContainsFunc(ep.initiator[i+1:], func(q *request) bool { return q.flags.Has(nd.ReadFence) })
}

// suspicion is a finding that a Write of a peer may explain.
type suspicion struct {
	Finding
	request *request
}

// reportChanges reports changes of bytes, unless a peer may have made them.
func (c *checker) reportChanges(suspect []suspicion) {
	for _, s := range suspect {
		if s.Rule == sinksOverlap || !c.peersMayHaveWritten(s.request) {
			c.found(s.Finding, s.request.owner)
		}
	}
}

// peersMayHaveWritten reports whether a peer may have written to the buffers of a request since its post.
func (c *checker) peersMayHaveWritten(r *request) bool {
	bytes := r.spans()
	return c.journal.mayHaveChanged(c.rank, r.posted, bytes) || c.unwatchedMayHaveWritten(bytes)
}

// unwatchedMayHaveWritten reports whether a peer that is not watched has the right to write to some bytes; nil = to any.
func (c *checker) unwatchedMayHaveWritten(bytes []span) bool {
	isIn := func(memory []byte) bool {
		granted := span{addressOf(memory), uint64(len(memory))}
		return bytes == nil || memory == nil || slices.ContainsFunc(bytes, granted.overlaps)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := false
	for _, m := range c.regions {
		granted = granted || (m.flags.RemoteWrite() || m.flags.RemoteAtomic()) && isIn(m.bytes)
	}
	for w := range c.windows {
		granted = granted || (w.write || w.atomic) && isIn(w.bytes)
	}
	unwatched := false
	for _, ep := range c.endpoints {
		unwatched = unwatched || ep.peer.IsValid() && ep.peerRank.Load() == 0
	}
	return granted && unwatched
}

// succeeded notes the effects of a request that has succeeded. res is the result that says so.
func (c *checker) succeeded(ep *endpoint, r *request, res nd.Result, b *batch) {
	switch {
	case r.kind == nd.RequestWrite || r.isAtomic():
		w := wrote{token: r.token, posted: r.posted, isAtomic: r.isAtomic(), isKnown: r.target != 0 || r.size == 0}
		if !w.isKnown {
			w.owner = int(ep.peerRank.Load()) - 1
		}
		b.wrote = append(b.wrote, w)
	case r.invalidate:
		c.journal.withdraw(r.token, c.rank, r.site, r.posted)
	case r.local != 0:
		r.region.invalidated(r.local, r.remote, r.site)
	case r.kind == nd.RequestReceive && res.RequestType == nd.RequestReceiveAndInvalidate:
		c.invalidatedByPeer(r, res.InvalidatedToken)
	}
}

// checkSource reports a source whose bytes the program has changed. The caller holds checker.mu.
func (c *checker) checkSource(r *request) []suspicion {
	if !r.isSource() || r.answered || r.isUnchecked || r.hash == r.sum() {
		return nil
	}
	return []suspicion{{Finding{Rule: sourceChanged, Site: r.site, What: r.name() + ": its bytes are not those of the post",
		Address: firstAddress(r.sge), Length: r.size}, r}}
}

// checkSink reports bytes that another request stores too, and bytes that the program has changed. The caller holds
// checker.mu.
func (c *checker) checkSink(r *request, n uint64) []suspicion {
	if r.isUnchecked {
		return nil
	}
	for q := range c.sinks {
		if at, length := commonBytes(r, q, n); length > 0 && !q.answered {
			return []suspicion{{Finding{Rule: sinksOverlap, Site: r.site, What: r.name() + " has stored data", Address: at, Length: length,
				OtherRank: c.rank, Other: q.name() + " is in flight for the same bytes", OtherSite: q.site}, r}}
		}
	}
	if r.kind != nd.RequestReceive || n == 0 { // a message without bytes tells something about other bytes
		return nil
	}
	entry, index, changed := r.changedBehind(n)
	if !changed {
		return nil
	}
	what := fmt.Sprintf("%s: byte %d of entry %d, behind the message of %d bytes, has changed since the post", r.name(), index, entry, n)
	return []suspicion{{Finding{Rule: receiveUsed, Site: r.site, What: what, Address: addressOf(r.sge[entry].Buffer) + uint64(index), Length: 1}, r}}
}

func firstAddress(sge []nd.SGE) uint64 {
	if len(sge) == 0 {
		return 0
	}
	return addressOf(sge[0].Buffer)
}
