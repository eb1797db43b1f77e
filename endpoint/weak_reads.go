package endpoint

import (
	"slices"

	"github.com/softnd/softnd/nd"
)

// A Read may be set aside: later requests run before its data arrives. Its result still comes before
// theirs, because requests complete in the order of posting.

// mayOvertake reports whether later requests may overtake Read r.
func (w *weakEndpoint) mayOvertake(r *request) bool {
	return r.Kind == nd.RequestRead && r.Total > 0 && !r.Flags.Has(nd.ReadFence) && !r.Flags.Has(nd.ReadLocalInvalidate) &&
		r.fault == nil && len(w.reads) < w.ep.req.readLimit
}

// hasReads reports whether Reads are set aside.
func (w *weakEndpoint) hasReads() bool { return w != nil && len(w.reads) > 0 }

// isAside reports whether a request is a Read that is set aside.
func (w *weakEndpoint) isAside(number uint64) bool {
	return w != nil && slices.Contains(w.reads, number)
}

// runReads runs the Reads that were set aside and are due, in any order. It transfers at most *budget bytes.
// A Read that has begun holds a bounce buffer, perhaps, so no other request runs before its end.
func (w *weakEndpoint) runReads(budget *uint64) (progressed bool) {
	ep := w.ep
	if ep.state() != connected {
		return false
	}
	if ep.req.next != ep.req.submitted {
		if r := ep.requestAt(ep.req.next); r.Transferred > 0 && (r.Transferred < r.Total || r.bounceIndex >= 0) {
			return false // the entries of a message are consecutive, and a bounce buffer with data is not used again
		} // a Read with all its bytes may wait to invalidate its sink, and that waits for the Reads
	}
	for at := 0; at < len(w.reads) && *budget > 0; {
		number := w.reads[at]
		r := ep.requestAt(number)
		if !w.begun && !w.isDue(&w.request(number).read, w.draw(ofReads, number)>>1%64) {
			at++
			continue
		}
		before := r.Transferred
		out := ep.execute(r, budget)
		progressed = progressed || out != blocked || r.Transferred != before
		w.begun = out != executed && r.Transferred > 0
		switch {
		case out == executed:
			w.reads = slices.Delete(w.reads, at, at+1)
			ep.req.hasFailed = ep.req.hasFailed || r.Finished && r.Status != nd.Success
			at = 0
		case w.begun:
			w.reads = slices.Insert(slices.Delete(w.reads, at, at+1), 0, number)
			return progressed
		default:
			at++
		}
	}
	return progressed
}

// dropReads forgets the Reads that are set aside, because all requests are canceled.
func (w *weakEndpoint) dropReads() {
	if w != nil {
		w.reads, w.begun = w.reads[:0], false
	}
}
