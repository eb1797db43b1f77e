package endpoint

// TWIN c/src/endpoint/progress.c.

import (
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// progress runs the requests and serves the ring entries that can proceed, unless another goroutine
// holds the endpoint's lock.
func (ep *queuePair) progress() progressResult {
	_, m := ep.progressInto(nil, nil)
	return m
}

// progressInto is progress for a poll of queue q. It may store results of receives in room instead of
// adding them to q, and returns how many it has stored. If it has stored any, there may be more to do.
func (ep *queuePair) progressInto(q *completionQueue, room []nd.Result) (n int, m progressResult) {
	if s := ep.state(); s != cm.QPConnected && (s == cm.QPFailed || s == cm.QPClosed || s == cm.QPIdle && !ep.hasOverrun()) {
		return 0, noProgress
	}
	if !ep.mu.LockBiased() && !ep.mu.TryLock() {
		return 0, contended
	}
	if ep.stateWord.Load()&slowBit != 0 && ep.hook != nil { // slowBit first: its cache line is in use anyway
		ep.hook.Step()
	}
	// Results of messages bypass the queue if nothing else is to be done before them and q has no earlier result.
	if q == ep.rq.cq && ep.stateWord.Load() == uint32(cm.QPConnected) && ep.sq.completed == ep.sq.posted && !ep.serving && q.canBypass() && ep.conn.far.IsOpen() {
		in, polls := ep.conn.in, q.polls.Load()
		most := in.Size() / 4
		if polls-q.lastMessagePoll.Load() > 1 {
			most = 1 // the previous poll was empty: the message is an answer, and a check for a second one would delay the program's next request
		}
		if n = ep.serveSendsFast(in.Front(), room[:min(len(room), int(most))]); n > 0 {
			asym.StoreRelease(&q.lastMessagePoll, polls)
			ep.rq.slots.Add(uint64(n))
			ep.releaseEntries(false) // later requests of the peer may wait for this
		}
	}
	m = progressIf(n > 0 || ep.progressLocked())
	ep.mu.Unlock()
	return n, m
}

// hasWork reports, approximately and without the lock, whether progress has something to do. It ignores
// the peer's disconnect or death, and overruns: the progress engine notices those.
func (ep *queuePair) hasWork() bool {
	return ep.stateWord.Load() != uint32(cm.QPConnected) || ep.uncompleted.Load() != 0 || ep.inbound.Load().HasEntry() // a connected endpoint has one
}

// progressLocked is progress for a caller that holds ep.mu.
func (ep *queuePair) progressLocked() (progressed bool) {
	if ep.hasOverrun() {
		ep.terminate(ep.overrunError("complete"))
		return true
	}
	c := ep.conn
	if c == nil || !c.attached {
		return false
	}
	switch ep.state() {
	case cm.QPConnecting:
		if c.record.Side == cm.Active || c.state() != cm.ConnEstablished {
			return false
		}
		ep.on(cm.Completes) // Accept may not have returned yet
		progressed = true
	case cm.QPConnected, cm.QPPeerDisconnected, cm.QPDisconnecting:
	default:
		return false
	}
	if c.record.Shared.Disconnected[1-c.record.Side].Load() != 0 { // ORDER disconnected: pairs with the store in queuePair.beginDisconnect
		progressed = ep.handlePeerDisconnect() || progressed
	}
	if ep.state() == cm.QPDisconnecting && time.Now().After(ep.life.disconnectDeadline) {
		ep.life.disconnectTimedOut = true
		ep.terminate(ep.opError("disconnect", nd.IOTimeout, "the peer ("+c.peerName+") did not disconnect in time", ""))
		return true
	}
	if ep.state() != cm.QPClosed && (c.record.IsPeerGone() || c.state() != cm.ConnEstablished) {
		ep.peerAborted()
		return true
	}
	in, out := uint64(quantum), uint64(quantum) // one each, so that neither direction delays the other
	if s := ep.state(); s == cm.QPConnected || s == cm.QPPeerDisconnected {
		if !ep.forwards() {
			progressed = ep.serveRing(&in) || progressed
		}
		progressed = ep.runRequests(&out) || progressed
	}
	asym.StoreRelease32(&ep.uncompleted, uint32(ep.sq.posted-ep.sq.completed))
	return progressed
}

// needsPolling reports whether the endpoint has work in progress whose continuation no ring announces.
func (ep *queuePair) needsPolling() bool {
	if ep.slotWaits.Load() > 0 {
		return true
	}
	switch ep.state() {
	case cm.QPConnected, cm.QPPeerDisconnected, cm.QPDisconnecting:
	default:
		return false
	}
	if !ep.mu.TryLock() {
		return true
	}
	defer ep.mu.Unlock()
	switch {
	case ep.state() == cm.QPDisconnecting, ep.waitsForHook():
		return true
	case ep.req.next == ep.req.submitted:
		return ep.resp.invalidating != nil
	}
	r := ep.requestAt(ep.req.next)
	// The peer rings when a request in the ring can continue. That also continues an Invalidate behind such
	// requests, and a Send that waits for a receive without a time-out; see requestWakeup.
	switch {
	case r.takesReceive() && !r.hasReceive && ep.provider.options.ReceiveTimeout == NoLimit:
		return false
	case r.awaitsParts(): // the program continues it
		return false
	case r.Kind == nd.RequestInvalidate && r.State != mode.Draining && ep.conn.hasUnexecutedRequests():
		return false
	}
	return r.State == mode.Draining || ep.state() == cm.QPConnected && !r.needsAck
}

// settleDeliveries receives the messages that have arrived at an adapter's endpoints, before memory of
// their receives is unmapped or freed.
func (p *Provider) settleDeliveries(a *adapter) {
	for _, ep := range *p.endpoints.Load() {
		if ep.adapter == a {
			ep.mu.Lock()
			ep.progressLocked()
			ep.mu.Unlock()
		}
	}
}
