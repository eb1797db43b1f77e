package endpoint

import (
	"fmt"
	"time"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// quantum is how many bytes one look at an endpoint moves at the most, so that
// a large transfer keeps neither the program nor other endpoints waiting.
const quantum = 256 << 10

// motion is the outcome of driving endpoints.
type motion uint8

const (
	still      motion = iota // nothing to move
	held                     // another goroutine holds an endpoint, and may or may not serve it
	progressed               // something has moved, or may have
)

func motionOf(moved bool) motion {
	if moved {
		return progressed
	}
	return still
}

// drive moves what can be moved now, unless another goroutine holds the endpoint.
func (ep *Endpoint) drive() motion {
	_, m := ep.driveFor(nil, nil)
	return m
}

// driveFor is drive for one who takes results of a queue, and has room for some.
// It returns how many it has put there instead of into the queue; if any, there
// may be more to move.
func (ep *Endpoint) driveFor(q *CompletionQueue, room []nd.Result) (n int, m motion) {
	if s := ep.state(); s != connected && (s == failed || s == closed || s == idle && !ep.hasOverrun()) {
		return 0, still
	}
	if !ep.mu.LockBiased() && !ep.mu.TryLock() {
		return 0, held
	}
	// Messages go straight to the one who polls if there is nothing else to be done before, and no result before theirs.
	if q == ep.receiveCQ && ep.now.Load() == uint32(connected) && ep.done == ep.tail && !ep.halfway && q.canBypass() && ep.conn.ref.Connected() {
		in, polls := ep.conn.in, q.polls.Load()
		most := in.Size() / 4
		if polls-q.lastMessagePoll.Load() > 1 {
			most = 1 // the poll before has found none: it is the answer to something, and to look for another would delay the next
		}
		if n = ep.takeRow(in.Front(), room[:min(len(room), int(most))]); n > 0 {
			asym.StoreRelease(&q.lastMessagePoll, polls)
			ep.receivesTaken.add(uint64(n))
			ep.release(false) // the peer may hold requests back until it knows
		}
	}
	m = motionOf(n > 0 || ep.step())
	ep.mu.Unlock()
	return n, m
}

// calls tells, roughly and without the lock, whether there is something to do
// for drive but to notice that the peer has left or died, or that a queue overran,
// of which the engine has been told.
func (ep *Endpoint) calls() bool {
	return ep.now.Load() != uint32(connected) || ep.open.Load() != 0 || ep.inbound.Load().HasEntry() // a connected endpoint has one
}

// step is drive with the lock held.
func (ep *Endpoint) step() (moved bool) {
	if ep.hasOverrun() {
		ep.terminate(ep.overrunError("complete"))
		return true
	}
	c := ep.conn
	if c == nil || !c.attached {
		return false
	}
	switch ep.state() {
	case connecting:
		if c.side == active || c.state() != connEstablished {
			return false
		}
		ep.setState(connected) // whether or not Accept has looked yet
		moved = true
	case connected, peerGone, closing:
	default:
		return false
	}
	if c.record.left[1-c.side].Load() != 0 { // ORDER left: pairs with the store in Endpoint.beginDisconnect
		moved = ep.handlePeerDisconnect() || moved
	}
	if ep.state() == closing && time.Now().After(ep.deadline) {
		ep.late = true
		ep.terminate(ep.fail("disconnect", nd.IOTimeout, "the peer ("+c.peerName+") did not disconnect in time", ""))
		return true
	}
	if ep.state() != closed && (c.isPeerGone() || c.state() != connEstablished) {
		ep.peerAborted()
		return true
	}
	in, out := uint64(quantum), uint64(quantum) // one each, so that neither keeps the other waiting
	if s := ep.state(); s == connected || s == peerGone {
		moved = ep.serve(&in) || moved
		moved = ep.advance(&out) || moved
	}
	asym.StoreRelease32(&ep.open, uint32(ep.tail-ep.done))
	return moved
}

// busy tells whether the endpoint has something under way that no ring
// announces.
func (ep *Endpoint) busy() bool {
	switch ep.state() {
	case connected, peerGone, closing:
	default:
		return false
	}
	if !ep.mu.TryLock() {
		return true
	}
	defer ep.mu.Unlock()
	switch {
	case ep.state() == closing:
		return true
	case ep.next == ep.ready:
		return ep.revoking != nil
	}
	r := &ep.requests[ep.next&uint64(len(ep.requests)-1)]
	// A request in the ring continues when the peer has rung. So does an Invalidate behind such
	// requests, and a Send that waits for a receive without a limit; see stall.
	switch {
	case r.kind == nd.RequestSend && !r.started && ep.provider.options.ReceiveTimeout == NoLimit:
		return false
	case r.kind == nd.RequestInvalidate && !r.draining && ep.conn.hasUnacknowledged():
		return false
	}
	return r.draining || ep.state() == connected && !r.awaited
}

// outcome of an attempt to execute a request or to serve a message.
type outcome int

const (
	waits   outcome = iota // for the peer, or for time
	partial                // did some of it
	ready                  // executed; its status may still come from the peer
)

// advance executes posted requests in order, and completes those that are
// done.
func (ep *Endpoint) advance(budget *uint64) (moved bool) {
	for {
		moved = ep.retire() || moved
		if ep.next == ep.ready || ep.stuck {
			return moved
		}
		r := &ep.requests[ep.next&uint64(len(ep.requests)-1)]
		if r.doomed {
			r.cancel()
			ep.next++
			continue
		}
		// An Invalidate that has begun goes on even if the peer has left.
		if ep.state() != connected && !(r.draining && ep.state() == peerGone) || *budget == 0 {
			return moved
		}
		before := r.moved
		out := ep.execute(r, budget)
		if r.flags.Has(nd.ReadLocalInvalidate) && out == ready {
			out = ep.invalidateSink(r)
		}
		switch out {
		case waits:
			return moved || r.moved != before
		case partial:
			asym.StoreRelease32(&ep.parts, ep.parts.Load()+1)
			return true
		}
		// A failed request must be completed, after those before it, and not
		// be followed by another.
		ep.stuck = r.finished && r.status != nd.Success
		ep.next++
		moved = true
	}
}

func (r *request) finish(s nd.Status) { r.finished, r.status = true, s }

func (r *request) cancel() {
	if r.binding != nil {
		r.binding.Cancel()
		r.binding = nil
	}
	r.finish(nd.Canceled)
}

// retire completes executed requests in the order of posting.
func (ep *Endpoint) retire() (moved bool) {
	for ep.done != ep.next {
		r := &ep.requests[ep.done&uint64(len(ep.requests)-1)]
		if !r.finished {
			if ep.swept || int64(ep.conn.out.Consumed()-r.end) < 0 {
				return moved
			}
			r.finish(nd.Success)
		}
		ep.done++
		ep.complete(r)
		moved = true
		if r.status != nd.Success && !r.doomed {
			ep.terminate(ep.cause)
			return true
		}
	}
	return moved
}

// complete reports a finished request.
func (ep *Endpoint) complete(r *request) {
	if r.status == nd.Success && r.flags.Has(nd.SilentSuccess) {
		ep.apart--
		return
	}
	bytes := uint32(0)
	if r.status == nd.Success && (r.kind == nd.RequestSend || r.kind == nd.RequestRead || r.kind == nd.RequestWrite) {
		bytes = uint32(r.total)
	}
	if r.status == nd.Success {
		ep.initiatorCQ.pushSuccess(ep, r.context, r.kind, int(bytes), &ep.taken)
		return
	}
	ep.result = nd.Result{Status: r.status, BytesTransferred: bytes, RequestContext: r.context, RequestType: r.kind}
	ep.initiatorCQ.push(&ep.result, &ep.taken, false)
}

// reject ends a request with an error, and says why.
func (ep *Endpoint) reject(r *request, s nd.Status, format string, args ...any) outcome {
	r.finish(s)
	if ep.cause == nil {
		ep.cause = ep.fail(opName(r), s, fmt.Sprintf(format, args...), "the connection has ended; connect a new endpoint")
	}
	return ready
}

func opName(r *request) string {
	switch r.kind {
	case nd.RequestSend:
		if r.invalidate {
			return "send and invalidate"
		}
		return "send"
	case nd.RequestWrite:
		return "write"
	case nd.RequestRead:
		return "read"
	case nd.RequestBind:
		return "bind"
	case nd.RequestInvalidate:
		return "invalidate"
	case nd.RequestFastRegister:
		return "fast register"
	}
	return r.kind.String()
}

// settleDeliveries takes what peers have delivered to an adapter's endpoints
// already, before memory that it may lie in goes away.
func (p *Provider) settleDeliveries(a *Adapter) {
	for _, ep := range *p.endpoints.Load() {
		if ep.adapter == a {
			ep.mu.Lock()
			ep.step()
			ep.mu.Unlock()
		}
	}
}
