package ndcheck

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/softnd/softnd/nd"
)

// end notes that the program ends the connection by a call. It reports what that call gives up.
func (ep *endpoint) end(call, site string) {
	hasEnded := ep.Err() != nil // the peer may have died
	ep.mu.Lock()
	first := !ep.ending && !ep.inTrouble() && !hasEnded
	ep.ending = true
	deferred := ep.deferred
	ep.deferred = nil
	var left *request
	n := 0
	for _, q := range ep.initiator {
		if !q.silent() && !q.answered {
			if n++; left == nil {
				left = q
			}
		}
	}
	ep.mu.Unlock()
	if deferred != nil && first {
		ep.found(Finding{Rule: neverSubmitted, Site: deferred.site, What: deferred.name() + " was deferred", OtherRank: ep.rank, Other: ep.name() + " ended: " + call, OtherSite: site}, ep)
	} else if left != nil && first && call == "Close" {
		ep.found(Finding{Rule: endpointInUse, Site: site, What: fmt.Sprintf("closes %s with %d requests whose result was not taken", ep.name(), n),
			OtherRank: ep.rank, Other: "the first is " + left.name(), OtherSite: left.site}, ep)
	}
}

// ended notes that the connection has ended: its windows and fast registrations are invalid, and its accesses are over.
func (ep *endpoint) ended(site string) {
	ep.release()
	var ended []*window
	registered := make(map[nd.Token]*region) // by the tokens that are invalid
	ep.mu.Lock()
	for w := range ep.windows {
		if w.boundOn == ep {
			ended = append(ended, w)
		}
	}
	for local, m := range ep.regions {
		if r := m.registration(local); r.on == ep {
			registered[local], registered[r.remote] = m, m
			m.forget(local)
		}
	}
	ep.mu.Unlock()
	for _, w := range ended {
		ep.journal.cutOff(w.unbound(site))
	}
	for token, m := range registered { // the program may still hear of Writes to it
		m.endToken(token, site)
		ep.journal.cutOff(token)
	}
}

// leftByPeer is ended for an end that the program has not asked for. After a Disconnect of the peer alone, the windows and fast
// registrations stay valid for other connections until this side ends the connection, too, which calls ended.
func (ep *endpoint) leftByPeer(site string) {
	if nd.StatusOf(ep.Err()) == nd.ConnectionDisconnected {
		ep.release()
	} else {
		ep.ended(site)
	}
}

// release notes that the accesses of the connection are over. The program may use the buffers of its requests, although it has
// not taken their results.
func (ep *endpoint) release() {
	var accesses []uint32
	ep.mu.Lock()
	for _, q := range ep.requests {
		if q.owner == ep {
			accesses = append(accesses, q.access)
			q.access, q.isUnchecked = 0, true
			delete(ep.sinks, q)
		}
	}
	ep.mu.Unlock()
	ep.journal.close(accesses...)
}

// leave forgets the endpoint if it is closed and no result of it can follow. The caller holds checker.mu.
func (ep *endpoint) leave() {
	if !ep.closed || ep.pending > 0 || ep.shared != nil && !ep.receiveQueue.isClosed() {
		return
	}
	delete(ep.endpoints, uint64(ep.id))
	delete(ep.expected, ep.name())
	if ep.shared != nil {
		ep.shared.leave()
	}
}

// dropped forgets the requests of a queue that has dropped their results.
func (q *queue) dropped() {
	var accesses []uint32
	q.mu.Lock()
	q.closed = true
	for _, r := range q.requests {
		ep, ok := r.owner.(*endpoint)
		if ok && (r.kind.Initiator() && ep.initiatorQueue == q || !r.kind.Initiator() && ep.receiveQueue == q) {
			accesses = append(accesses, ep.untrack(r))
		}
	}
	for _, ep := range q.endpoints {
		ep.leave()
	}
	q.mu.Unlock()
	q.journal.close(accesses...)
}

// invalidatedByPeer notes that a message has invalidated a token of this process.
func (c *checker) invalidatedByPeer(r *request, token nd.Token) {
	c.mu.Lock()
	var ended *window
	for w := range c.windows {
		if w.token == token {
			ended = w
		}
	}
	var m *region
	for _, r := range c.regions {
		if r.remote == token {
			m = r
		}
	}
	c.mu.Unlock()
	switch {
	case ended != nil:
		ended.unbound(r.site)
	case m != nil:
		m.ended(r.site)
	}
}

func (ep *endpoint) Flush(ctx context.Context) error {
	site := here()
	ep.end("Flush", site)
	err := ep.Endpoint.Flush(ctx)
	ep.ended(site)
	return err
}

func (ep *endpoint) closing(site string) { ep.end("Close", site) }

func (ep *endpoint) gone(site string) {
	ep.ended(site)
	ep.reportFences()
	ep.mu.Lock()
	ep.closed = true
	ep.leave()
	ep.mu.Unlock()
}

func (ep *endpoint) Close() error {
	err := ep.adapter.close(ep, ep.Endpoint.Close)
	ep.mu.Lock()
	for _, c := range ep.connectors {
		if c, ok := c.(interface{ self() *connector }); ok {
			delete(ep.adapter.open, c.self()) // it ends with its endpoint
		}
	}
	ep.mu.Unlock()
	return err
}

// End reports the objects that the program has left behind, and ends the watch of this process. Close calls it.
func (p *Provider) End() {
	var accesses []uint32
	p.mu.Lock()
	if p.isEnding {
		p.mu.Unlock()
		return
	}
	p.isEnding = true
	adapters := p.adapters
	left := slices.Collect(maps.Values(p.endpoints))
	open := slices.Collect(maps.Values(p.regions))
	for _, r := range p.requests {
		accesses = append(accesses, r.access)
		r.access = 0
	}
	p.mu.Unlock()
	p.journal.close(accesses...)
	p.journal.setWait(p.rank, wait{})
	for _, a := range adapters {
		a.leaks()
	}
	for _, ep := range left {
		ep.reportFences()
	}
	for _, m := range open {
		m.reportUnheard()
	}
	if p.journal.use(-1) {
		for _, f := range p.journal.Unmet() {
			if !slices.Contains(p.ignored, f.Rule) {
				p.report(f)
			}
		}
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
}

// reportFences reports fences that have had nothing to wait for. The endpoint is closed, or the job ends.
func (ep *endpoint) reportFences() {
	ep.mu.Lock()
	fenced := ep.fenced
	if ep.reads > 0 {
		fenced = nil
	}
	ep.fenced = nil
	ep.mu.Unlock()
	if fenced != nil {
		ep.found(Finding{Rule: uselessFence, Site: fenced.site, What: fenced.name() + " has ReadFence, and the endpoint has posted no Read"}, ep)
	}
}
