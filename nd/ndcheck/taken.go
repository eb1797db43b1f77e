package ndcheck

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/nd"
)

// take notes that the program takes results, and gives them the program's contexts.
func (q *queue) take(results []nd.Result) {
	for i := range results {
		q.taken(&results[i])
	}
}

func (c *checker) taken(res *nd.Result) {
	c.mu.Lock()
	ep := c.endpoints[res.EndpointContext]
	if ep == nil {
		c.mu.Unlock()
		return // of an endpoint that was not made by the checker
	}
	res.EndpointContext = ep.context
	var done []*request // silent requests before it, which have succeeded
	r := c.requests[res.RequestContext]
	if r != nil {
		res.RequestContext = r.ctx
		if r.kind.Initiator() {
			done = ep.silentBefore(r)
		}
	}
	var accesses []uint32
	for _, q := range done {
		accesses = append(accesses, c.untrack(q))
	}
	if r != nil {
		accesses = append(accesses, c.untrack(r))
	}
	answered := r != nil && r.answered
	if res.Status == nd.Success && !res.RequestType.Initiator() {
		c.syncedAt = now()
		ep.answered()
	}
	isBroken := res.Status != nd.Success && !ep.hasFailed
	ep.hasFailed = ep.hasFailed || isBroken
	ep.leave()
	c.mu.Unlock()
	c.journal.close(accesses...)
	for _, q := range done {
		c.succeeded(ep, q, nd.Result{Status: nd.Success, BytesTransferred: uint32(q.size)}, q.answered)
	}
	switch {
	case r == nil:
	case res.Status == nd.Success:
		r.invalidated = res.InvalidatedToken
		c.succeeded(ep, r, *res, answered)
	case res.Status != nd.Canceled:
		c.failed(ep, r, *res)
	}
	if isBroken {
		ep.ended(here())
	}
}

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

// answered notes that a message of the peer has arrived. It may be the answer to the last Send, and then all
// requests up to that Send are complete. The caller holds checker.mu.
func (ep *endpoint) answered() {
	last := -1
	for i, q := range ep.initiator {
		if q.kind == nd.RequestSend {
			last = i
		}
	}
	for _, q := range ep.initiator[:last+1] {
		q.answered = true
	}
}

// succeeded checks a request that has succeeded.
func (c *checker) succeeded(ep *endpoint, r *request, res nd.Result, answered bool) {
	switch {
	case r.isGone: // it is not in flight, so the field does not change
	case r.isSource() && !answered && r.hash != r.sum():
		c.found(Finding{Rule: sourceChanged, Site: r.site, What: r.name() + ": its bytes are not those of the post", Address: firstAddress(r.sge), Length: r.size})
	case r.isSink():
		c.checkSink(r, uint64(res.BytesTransferred))
	}
	switch {
	case r.kind == nd.RequestWrite:
		c.journal.wrote(r.token, r.posted)
	case r.invalidate:
		c.journal.withdraw(r.token, c.rank, r.site, r.posted)
	case r.kind == nd.RequestInvalidate && r.region != nil:
		r.region.ended(r.site)
	case r.kind == nd.RequestRead && r.flags.Has(nd.ReadLocalInvalidate) && ep.adapter.info.AdapterFlags.Has(nd.ReadLocalInvalidateSupported):
		if i := slices.IndexFunc(r.sge, func(e nd.SGE) bool { return len(e.Buffer) > 0 }); i >= 0 {
			c.mu.Lock()
			region := c.regions[r.sge[i].Token]
			c.mu.Unlock()
			if region != nil {
				region.ended(r.site)
			}
		}
	case res.RequestType == nd.RequestReceiveAndInvalidate:
		c.invalidatedByPeer(r)
	}
}

// checkSink reports bytes that another request stores too, and bytes that the program has changed.
func (c *checker) checkSink(r *request, n uint64) {
	if r.kind == nd.RequestRead {
		n = r.size
	}
	var other *request
	var at, length uint64
	c.mu.Lock()
	for q := range c.sinks {
		if at, length = commonBytes(r, q, n); length > 0 {
			other = q
			break
		}
	}
	c.mu.Unlock()
	if other != nil {
		c.found(Finding{Rule: sinksOverlap, Site: r.site, What: r.name() + " has stored data", Address: at, Length: length,
			OtherRank: c.rank, Other: other.name() + " is in flight for the same bytes", OtherSite: other.site})
		return
	}
	if r.kind != nd.RequestReceive || n == 0 { // a message without bytes tells something about other bytes
		return
	}
	if entry, index, changed := r.changedBehind(n); changed {
		c.found(Finding{Rule: receiveUsed, Site: r.site, What: fmt.Sprintf("%s: byte %d of entry %d, behind the message of %d bytes, has changed since the post", r.name(), index, entry, n),
			Address: addressOf(r.sge[entry].Buffer) + uint64(index), Length: 1})
	}
}

func firstAddress(sge []nd.SGE) uint64 {
	if len(sge) == 0 {
		return 0
	}
	return addressOf(sge[0].Buffer)
}
