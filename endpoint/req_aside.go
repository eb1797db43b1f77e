package endpoint

import (
	"slices"

	"github.com/softnd/softnd/nd"
)

// The hook may set a Read aside: later requests run before its data arrives. Its result still comes before
// theirs, because requests complete in the order of posting.

// setAside sets Read r aside, which is the next to run. It reports false if later requests must not overtake it.
func (ep *queuePair) setAside(r *request) bool {
	if r.Kind != nd.RequestRead || r.Total == 0 || r.Flags&(nd.ReadFence|nd.ReadLocalInvalidate) != 0 || r.InOrder || len(ep.req.aside) >= ep.req.readLimit {
		return false
	}
	r.IsAside = true
	ep.req.aside = append(ep.req.aside, r.Number)
	return true
}

// hasAside reports whether Reads are set aside.
func (ep *queuePair) hasAside() bool { return len(ep.req.aside) > 0 }

// hasBegunAside reports whether one of them, the first, has transferred some bytes. It may hold a bounce buffer, so no other
// request runs before its end.
func (ep *queuePair) hasBegunAside() bool {
	return ep.hasAside() && ep.requestAt(ep.req.aside[0]).Transferred > 0
}

// runAside runs the Reads that are set aside when the hook lets them, in any order. It transfers at most *budget bytes.
func (ep *queuePair) runAside(budget *uint64) (progressed bool) {
	if ep.state() != connected {
		return false
	}
	if ep.req.next != ep.req.submitted {
		if r := ep.requestAt(ep.req.next); r.Transferred > 0 && (r.Transferred < r.Total || r.bounceIndex >= 0) {
			return false // the entries of a message are consecutive, and a bounce buffer with data is not used again
		} // a Read with all its bytes may wait to invalidate its sink, and that waits for the Reads
	}
	for at := 0; at < len(ep.req.aside) && *budget > 0; {
		number := ep.req.aside[at]
		r := ep.requestAt(number)
		before := r.Transferred
		out, handled := ep.askHook(r)
		if !handled {
			out = ep.execute(r, budget)
		}
		progressed = progressed || out != blocked || r.Transferred != before
		switch {
		case out == executed:
			r.IsAside = false
			ep.req.aside = slices.Delete(ep.req.aside, at, at+1)
			ep.req.hasFailed = ep.req.hasFailed || r.Finished && r.Status != nd.Success
			at = 0
		case r.Transferred > 0:
			ep.req.aside = slices.Insert(slices.Delete(ep.req.aside, at, at+1), 0, number)
			return progressed
		default:
			at++
		}
	}
	return progressed
}
