package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// handle returns the outcome of a request or an entry about which the hook has decided. It reports false if the
// caller goes on with it.
func handle(a mode.Answer) (out outcome, handled bool) {
	switch a {
	case mode.Hold:
		return blocked, true
	case mode.Split:
		return partial, true
	case mode.Done:
		return executed, true
	}
	return executed, false
}

// nextBytes returns which of the next n bytes of r travel now: m of them from byte at on. If m is 0, out is the outcome of r.
func (ep *queuePair) nextBytes(r *request, n uint64) (at, m uint64, out outcome) {
	if ep.hook == nil {
		return r.Transferred, n, executed
	}
	at, m, a := ep.hook.Bytes(&r.Request, n)
	out, _ = handle(a)
	return at, m, out
}

// travelsWhole reports whether all bytes of r travel at once.
func (ep *queuePair) travelsWhole(r *request) bool {
	_, n, _ := ep.nextBytes(r, r.Total)
	return n == r.Total
}

// copyRequest copies n bytes of r from ep.source to ep.sink. It reports false if their hash is wrong, and r has been rejected.
func (ep *queuePair) copyRequest(r *request, n uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	if r.Hashed {
		return ep.hook.Copy(&r.Request, n)
	}
	_, sinkFault, sourceFault = ep.guard.Copy(&ep.sink, &ep.source, n)
	return true, sinkFault, sourceFault
}

// countCopied counts n bytes of r as copied by this process.
func (ep *queuePair) countCopied(r *request, n uint64) {
	r.advance(n)
	if ep.hook != nil {
		ep.hook.Copied(&r.Request, n)
	}
}

// settleArrived stores the results of atomics that have arrived, and tells the hook of the Reads whose data has, although requests
// before them may not be complete yet. It is called before a local token is revoked. It reports false if a Read has failed.
func (ep *queuePair) settleArrived() (match bool) {
	match = true
	ep.takeResults()
	if ep.hook == nil || ep.life.teardown != usesPeerState {
		return match
	}
	for number := ep.sq.completed; number != ep.req.next; number++ {
		r := ep.requestAt(number)
		if r.Kind == nd.RequestRead && (r.State == mode.Finished || r.State != mode.SetAside && ep.conn.out.IsReleased(r.EndEntry)) {
			ep.hook.Arrived(&r.Request)
		}
		match = match && r.Status == nd.Success
	}
	return match
}

// waitsForHook reports whether a request or a message waits for the hook, which no ring announces.
func (ep *queuePair) waitsForHook() bool {
	return ep.hook != nil && ep.hook.Waits(ep.sq.completed != ep.req.submitted || ep.serving)
}

// hasFailedReceive reports whether the hook has failed r, which has received n bytes of the message in entry.
func (ep *queuePair) hasFailedReceive(entry *wire.Entry, r *receive, n uint64) bool {
	return ep.hook != nil && !ep.hook.Received(entry, r.sges(), n)
}
