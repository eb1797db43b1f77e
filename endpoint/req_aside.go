package endpoint

// TWIN c/src/endpoint/req_aside.h, c/src/endpoint/req_aside.c.

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/nd"
)

// The hook may set a Read aside: later requests run before its data arrives. Its result still comes before
// theirs, because requests complete in the order of posting.

// setAside sets Read r aside, which is the next to run. It reports false if later requests must not overtake it.
func (ep *queuePair) setAside(r *request) bool {
	if r.Kind != nd.RequestRead || r.Total == 0 || r.Flags&(nd.ReadFence|nd.ReadLocalInvalidate) != 0 || r.InOrder || len(ep.req.aside) >= ep.req.readLimit {
		return false
	}
	r.State = mode.SetAside
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
