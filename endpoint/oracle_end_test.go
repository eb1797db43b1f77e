package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// disconnect ends the connection in an orderly way.
func (o *oracle) disconnect() {
	o.drain()
	ctx := proctest.Context(o.t)
	there := soon(func() error { return o.sides[1].connector.Disconnect(ctx) })
	o.must(o.sides[0].connector.Disconnect(ctx))
	o.must(<-there)
	o.cancel()
	o.finish()
}

// cancel notes that the receives that no message has taken are canceled.
func (o *oracle) cancel() {
	for _, p := range o.sides {
		for _, r := range p.receives {
			if p.shared == nil {
				r.Status, r.decided = nd.Canceled, true
			}
		}
		p.receives = nil
	}
}

// flush ends the connection in the middle of everything. Requests that are done by then have status Success,
// the rest is canceled; the test cannot know which request is which.
func (o *oracle) flush() {
	p := o.sides[o.IntN(2)]
	o.note("%s: flush", p.name)
	if o.one(2) {
		o.must(p.ep.Flush(context.Background()))
	} else {
		o.must(p.ep.Close())
	}
	for _, p := range o.sides {
		p.confused = true
		for end := time.Now().Add(proctest.Timeout); ; {
			for _, q := range p.queues {
				var results [8]nd.Result
				for _, r := range results[:q.Poll(results[:])] {
					p.flushed(r)
				}
			}
			if p.allFlushed() {
				break
			}
			if time.Now().After(end) {
				o.failf("%s: these results never come: %v", p.name, p.want)
			}
		}
	}
}

// flushed compares a result with the expected one, or with its cancellation.
func (p *oracleSide) flushed(r nd.Result) {
	p.o.note("%s: result %+v", p.name, r)
	q := receiveQueue
	if r.RequestType.Initiator() {
		q = initiatorQueue
	}
	for len(p.want[q]) > 0 && p.want[q][0].silent && p.want[q][0].RequestContext != r.RequestContext {
		p.take(q)
	}
	if len(p.want[q]) == 0 {
		p.o.failf("%s: result %+v, and none is owed", p.name, r)
	}
	e := p.want[q][0]
	asCanceled := nd.Result{Status: nd.Canceled, EndpointContext: e.EndpointContext, RequestContext: e.RequestContext, RequestType: e.RequestType}
	if q == receiveQueue {
		asCanceled.RequestType = nd.RequestReceive
	}
	if r != asCanceled && (!e.decided || r != e.Result) {
		p.o.failf("%s: result %+v after a flush, owed %v", p.name, r, e)
	}
	p.take(q)
}

// allFlushed reports whether nothing is owed but by requests that may have succeeded silently, and
// by receives of a shared queue, which stay there.
func (p *oracleSide) allFlushed() bool {
	for _, e := range p.want[initiatorQueue] {
		if !e.silent {
			return false
		}
	}
	if p.shared != nil {
		return true
	}
	return len(p.want[receiveQueue]) == 0
}

// violate makes a request that must fail, among others of the same side.
func (o *oracle) violate() {
	o.drain()
	p := o.sides[o.IntN(2)]
	far := p.far
	violation := violations[o.IntN(len(violations))]
	if o.one(2) {
		o.pause(far)
		p.some(4)
		o.goOn()
	} else {
		p.some(4)
	}
	for p.submit(); p.blocked() != nil; {
		o.unblock()
	}
	if !violation(p) {
		o.drain()
		return
	}
	o.cancel()
	p.submit()
	for range o.IntN(4) {
		p.postBehindFailure()
	}
	o.finish()
	o.compare()
}

// failing is a request that fails, without an effect.
func failing(k nd.RequestType, s nd.Status, what string) *oracleRequest {
	return &oracleRequest{expectation: &expectation{what: what, Result: nd.Result{Status: s, RequestType: k}}, apply: func(*oracleReceive) {}}
}

// withReceive makes it a message whose receive fails as well.
func (r *oracleRequest) withReceive(s nd.Status) *oracleRequest {
	r.message, r.apply = true, func(into *oracleReceive) { into.Status = s }
	return r
}

// some posts a few requests that take effect at the peer.
func (p *oracleSide) some(most int) {
	for range p.o.IntN(most) {
		switch p.o.IntN(4) {
		case 0:
			p.send()
		case 1:
			p.write()
		case 2:
			p.atomic()
		default:
			p.read()
		}
	}
}

// postBehindFailure posts a request behind one that fails: it is canceled, and has no effect.
func (p *oracleSide) postBehindFailure() {
	o := p.o
	parts := p.split(1, o.size(), p.limits.MaxInitiatorSGE)
	g, to := p.target(lengthOf(parts), func(g *oracleAccess) bool { return g.plain })
	f := p.flags() &^ nd.Defer
	if o.one(2) {
		p.post(failing(nd.RequestSend, nd.Canceled, "send behind a failure"), f, func(c uint64) error { return p.ep.Send(c, listOf(parts), f) })
		return
	}
	p.post(failing(nd.RequestWrite, nd.Canceled, "write behind a failure"), f, func(c uint64) error { return p.ep.Write(c, listOf(parts), g.addressOf(to), g.token, f) })
}

// violations post requests that fail. They report whether they could.
var violations = []func(p *oracleSide) bool{
	func(p *oracleSide) bool { // an unknown token
		return p.fail(nd.AccessViolation, true, func(g *oracleAccess, to *oraclePart) { g.token ^= 1 << 20 })
	},
	func(p *oracleSide) bool { // beyond the end
		return p.fail(nd.AccessViolation, true, func(g *oracleAccess, to *oraclePart) { to.off = g.off + g.n - to.n + 1 })
	},
	func(p *oracleSide) bool { // before the beginning
		return p.fail(nd.AccessViolation, true, func(g *oracleAccess, to *oraclePart) { to.off = g.off - 1 })
	},
	func(p *oracleSide) bool { // a local token that is none
		return p.fail(nd.AccessViolation, false, nil)
	},
	(*oracleSide).failWithoutRight,
	(*oracleSide).failStale,
	(*oracleSide).failOverflow,
	(*oracleSide).failBadReceive,
	(*oracleSide).failBind,
}

// fail posts a Read or Write of a few bytes, or with a bad local token a Send, that is refused.
func (p *oracleSide) fail(s nd.Status, remote bool, spoil func(g *oracleAccess, to *oraclePart)) bool {
	o := p.o
	g := *p.far.pick(func(g *oracleAccess) bool { return g.read && g.write })
	if g.plain {
		g.n = 2 * areaMiddle
	}
	n := 1 + o.IntN(min(g.n, []int{8, 48, 100, 5000, quantum + smallTransfer}[o.IntN(5)]))
	to := oraclePart{span{g.off + o.IntN(g.n-n+1), n}, g.area, g.token}
	if spoil != nil {
		spoil(&g, &to)
	}
	sge := listOf(p.split(1, n, p.limits.MaxInitiatorSGE))
	if !remote {
		sge.First.Token ^= 1 << 20
	}
	f := p.flags()
	address := g.address + uint64(to.off) - uint64(g.off)
	if o.one(2) {
		return p.must(failing(nd.RequestWrite, s, fmt.Sprintf("bad write to %v", to)), f, func(c uint64) error { return p.ep.Write(c, sge, address, g.token, f) })
	}
	return p.must(failing(nd.RequestRead, s, fmt.Sprintf("bad read from %v", to)), f, func(c uint64) error { return p.ep.Read(c, sge, address, g.token, f) })
}

// must is post once there is room.
func (p *oracleSide) must(r *oracleRequest, f nd.OpFlags, call func(c uint64) error) bool {
	for end := time.Now().Add(proctest.Timeout); !p.post(r, f, call); {
		if time.Now().After(end) {
			p.o.failf("%s: the queue stays full", p.name)
		}
		p.o.unblock()
	}
	return true
}

// failWithoutRight uses a window that does not allow it.
func (p *oracleSide) failWithoutRight() bool {
	if g := p.far.pick(func(g *oracleAccess) bool { return !g.write }); g != nil && p.o.one(2) {
		return p.failWrite(g, "write without the right")
	}
	if g := p.far.pick(func(g *oracleAccess) bool { return !g.atomic }); g != nil {
		return p.failAtomic(g, "atomic without the right")
	}
	return false
}

func (p *oracleSide) failWrite(g *oracleAccess, what string) bool {
	sge := listOf(p.split(1, 1+p.o.IntN(g.n), p.limits.MaxInitiatorSGE))
	return p.must(failing(nd.RequestWrite, nd.AccessViolation, what), 0, func(c uint64) error { return p.ep.Write(c, sge, g.address, g.token, 0) })
}

func (p *oracleSide) failAtomic(g *oracleAccess, what string) bool {
	kind, sge := nd.RequestFetchAndAdd+nd.RequestType(p.o.IntN(3)), listOf(p.split(1, 8, 1))
	return p.must(failing(kind, nd.AccessViolation, what), 0, func(c uint64) error { return p.postAtomic(kind, c, sge.First, (g.address+7)&^7, g.token, 1, 2, 0) })
}

// failStale uses a window after the end of its bind, with a message or without.
func (p *oracleSide) failStale() bool {
	far := p.far
	g := far.pick(func(g *oracleAccess) bool { return !g.plain && g.read && g.write && g.users == 0 })
	if g == nil {
		return false
	}
	far.invalidateNow(g)
	p.o.drain()
	if len(far.access) > 0 && p.o.one(2) {
		far.receive()
		if len(far.receives) == 0 {
			return false
		}
		r := failing(nd.RequestSend, nd.RemoteError, "send and invalidate what is invalid").withReceive(nd.InvalidDeviceRequest)
		return p.must(r, 0, func(c uint64) error { return p.ep.SendAndInvalidate(c, nd.SGL{}, g.token, 0) })
	}
	if p.o.one(2) {
		return p.failAtomic(g, "atomic on a window that is invalid")
	}
	return p.failWrite(g, "write to a window that is invalid")
}

// failOverflow sends more than the receive holds.
func (p *oracleSide) failOverflow() bool {
	far := p.far
	far.receive()
	if len(far.receives) == 0 || far.receives[0].capacity >= areaMiddle {
		return false
	}
	return p.failSend(far.receives[0].capacity+1, nd.BufferOverflow)
}

// failSend sends to a receive that fails.
func (p *oracleSide) failSend(n int, s nd.Status) bool {
	parts := p.split(1, n, p.limits.MaxInitiatorSGE)
	r := failing(nd.RequestSend, nd.RemoteError, fmt.Sprintf("send %v to a receive that fails", parts)).withReceive(s)
	return p.must(r, 0, func(c uint64) error { return p.ep.Send(c, listOf(parts), 0) })
}

// failBadReceive sends to a receive whose token is none.
func (p *oracleSide) failBadReceive() bool {
	far, o := p.far, p.o
	for len(far.receives) > 0 {
		r := &oracleRequest{message: true, expectation: &expectation{what: "empty send", Result: nd.Result{RequestType: nd.RequestSend}}, apply: func(*oracleReceive) {}}
		p.must(r, 0, func(c uint64) error { return p.ep.Send(c, nd.SGL{}, 0) })
	}
	o.drain()
	bad := far.split(0, 1+o.IntN(10_000), far.limits.MaxReceiveSGE)
	bad[0].token ^= 1 << 20
	far.postReceive(bad)
	if len(far.receives) != 1 {
		return false
	}
	return p.failSend(1+o.IntN(far.receives[0].capacity), nd.AccessViolation)
}

// failBind binds a window twice, or invalidates one that is not bound.
func (p *oracleSide) failBind() bool {
	w := p.windows[p.o.IntN(len(p.windows))]
	if w.busy {
		return p.must(failing(nd.RequestBind, nd.InvalidDeviceRequest, "bind a bound window"), 0, func(c uint64) error {
			return p.ep.Bind(c, p.areas[0].mr, w.mw, p.areas[0].mem[:10], nd.AllowRead)
		})
	}
	return p.must(failing(nd.RequestInvalidate, nd.InvalidDeviceRequest, "invalidate an unbound window"), 0, func(c uint64) error {
		return p.ep.Invalidate(c, w.mw, 0)
	})
}
