package ndcheck

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// request is a request in flight.
type request struct {
	id     uint64 // its context for the provider: a program may give several requests one number
	ctx    uint64 // its context for the program
	kind   nd.RequestType
	flags  nd.OpFlags
	sge    []nd.SGE
	size   uint64
	site   string
	owner  object // the endpoint or the shared receive queue
	posted int64  // when

	address      uint64   // of a Read, a Write or an atomic
	token        nd.Token // of these, or of a SendAndInvalidate
	invalidate   bool     // a SendAndInvalidate
	hasImmediate bool     // a SendImmediate or WriteImmediate
	target       uint64   // first byte of a Read, a Write or an atomic, in addresses of the owner, 0 = unknown; guarded by checker.mu
	isOrdered    bool     // a later Send has ordered its access; guarded by checker.mu
	access       uint32   // number in the journal; guarded by checker.mu
	isUnchecked  bool     // its bytes are not compared; guarded by checker.mu
	answered     bool     // the peer may have told the program that it is complete; guarded by checker.mu

	hash  uint64   // of the bytes that a Send or Write takes
	image [][]byte // of a Receive: the last bytes of its buffers at the post

	window   *window // of a Bind or Invalidate
	region   *region // of a Bind, FastRegister or InvalidateRegion, or of the sink that a Read invalidates
	isMisuse bool    // of a Bind or Invalidate: the window was perhaps not as it must be; the result decides

	local, remote nd.Token // of the registration that an InvalidateRegion or a Read ends
}

func (c *checker) newRequest(owner object, kind nd.RequestType, ctx uint64, sge nd.SGL, flags nd.OpFlags) *request {
	r := &request{id: c.ids.Add(1), kind: kind, ctx: ctx, flags: flags, sge: sge.Entries(), site: here(), owner: owner, posted: now()}
	for _, e := range r.sge {
		r.size += uint64(len(e.Buffer))
	}
	return r
}

func (ep *endpoint) newRequest(kind nd.RequestType, ctx uint64, sge nd.SGL, flags nd.OpFlags) *request {
	return ep.checker.newRequest(ep, kind, ctx, sge, flags)
}

func (r *request) name() string {
	owner := r.owner.name()
	if ep, ok := r.owner.(*endpoint); ok {
		owner = ep.label()
	}
	call := typeName(r.kind)
	if r.hasImmediate {
		call += "Immediate"
	}
	text := fmt.Sprintf("%s %d on %s", call, r.ctx, owner)
	if r.size > 0 {
		text += fmt.Sprintf(" (%d bytes)", r.size)
	}
	return text
}

// typeName returns the name of a request without the prefix of the constant.
func typeName(t nd.RequestType) string { return strings.TrimPrefix(t.String(), "Request") }

func (r *request) silent() bool { return r.flags.Has(nd.SilentSuccess) }
func (r *request) inline() bool { return r.flags.Has(nd.Inline) }

// isSource reports whether the request takes bytes from its buffers until its result.
func (r *request) isSource() bool {
	return (r.kind == nd.RequestSend || r.kind == nd.RequestWrite) && !r.inline()
}

// isSink reports whether the request stores bytes into its buffers.
func (r *request) isSink() bool { return r.kind == nd.RequestReceive || r.fetches() }

// fetches reports whether the request brings bytes of the peer, for which ReadFence waits.
func (r *request) fetches() bool { return r.kind == nd.RequestRead || r.isAtomic() }

// isAtomic reports whether the request changes 8 bytes of the peer, and brings what they were.
func (r *request) isAtomic() bool {
	return r.kind == nd.RequestFetchAndAdd || r.kind == nd.RequestCompareAndSwap || r.kind == nd.RequestSwap
}

// sendsMessage reports whether the peer gets a result for the request.
func (r *request) sendsMessage() bool { return r.kind == nd.RequestSend || r.hasImmediate }

// uses reports whether an entry of the request has the token.
func (r *request) uses(token nd.Token) bool {
	return token != 0 && !r.inline() && slices.ContainsFunc(r.sge, func(e nd.SGE) bool { return e.Token == token && len(e.Buffer) > 0 })
}

// spans returns the ranges of its buffers.
func (r *request) spans() (all []span) {
	for _, e := range r.sge {
		all = append(all, span{addressOf(e.Buffer), uint64(len(e.Buffer))})
	}
	return all
}

// maxImage limits the copy of each buffer of a Receive. Larger ones are checked at their end only.
const maxImage = 4 << 10

// snapshot notes the bytes of the buffers at the post.
func (r *request) snapshot() {
	if !r.isSource() && r.kind != nd.RequestReceive {
		return
	}
	a := r.owner.home()
	a.mu.Lock()
	r.isUnchecked = !a.covers(r.sge)
	a.mu.Unlock()
	if r.isUnchecked {
		return
	}
	if r.isSource() {
		r.hash = r.sum()
		return
	}
	for _, e := range r.sge {
		tail := e.Buffer[max(0, len(e.Buffer)-maxImage):]
		r.image = append(r.image, bytes.Clone(peek(tail)))
	}
}

// covers reports whether the tokens of entries cover the buffers, as far as the checker knows. Else the request fails, and the
// process may have no access to them. The caller holds checker.mu.
func (a *adapter) covers(sge []nd.SGE) bool {
	for _, e := range sge {
		m := a.regions[e.Token]
		switch at, n := addressOf(e.Buffer), uint64(len(e.Buffer)); {
		case n == 0 || e.Token != 0 && e.Token == a.privileged:
		case m == nil, m.bytes != nil && !isWithin(at, n, addressOf(m.bytes), uint64(len(m.bytes))): // nil: pages that are not contiguous
			return false
		}
	}
	return true
}

func (r *request) sum() uint64 {
	d := xxhash.New()
	for _, e := range r.sge {
		_, _ = d.Write(peek(e.Buffer))
	}
	return d.Sum64()
}

// changedBehind returns the first byte behind the n bytes of the message that has changed since the post.
func (r *request) changedBehind(n uint64) (entry, index int, found bool) {
	for i, e := range r.sge {
		first := min(n, uint64(len(e.Buffer))) // bytes of the message in this entry
		n -= first
		skipped := len(e.Buffer) - len(r.image[i])
		now := peek(e.Buffer)
		for at := max(int(first), skipped); at < len(e.Buffer); at++ {
			if now[at] != r.image[i][at-skipped] {
				return i, at, true
			}
		}
	}
	return 0, 0, false
}

// commonBytes returns the first range that entries of both requests contain, up to limit bytes of r.
func commonBytes(r, other *request, limit uint64) (address, length uint64) {
	for _, e := range r.sge {
		n := min(limit, uint64(len(e.Buffer)))
		limit -= n
		at := addressOf(e.Buffer)
		for _, o := range other.sge {
			b, m := addressOf(o.Buffer), uint64(len(o.Buffer))
			if overlaps(at, n, b, m) {
				from := max(at, b)
				return from, min(at+n, b+m) - from
			}
		}
	}
	return 0, 0
}

// track stores a request that is about to be posted. The caller holds checker.mu.
func (c *checker) track(r *request) {
	c.requests[r.id] = r
	if r.kind.Initiator() {
		c.unanswered[r] = struct{}{}
	}
	if r.isSink() {
		c.sinks[r] = struct{}{}
	}
	for _, e := range r.sge {
		if m := c.regions[e.Token]; m != nil {
			m.uses++
		}
	}
	if r.kind == nd.RequestBind {
		r.region.uses++
	}
	ep, ok := r.owner.(*endpoint)
	if !ok {
		return
	}
	ep.pending++
	q := ep.receiveQueue
	if r.kind.Initiator() {
		ep.initiator = append(ep.initiator, r)
		q = ep.initiatorQueue
	}
	if q != nil {
		q.posts++
		*q.counter(r)++
	}
}

// untrack forgets a request, and returns its access. The caller holds checker.mu.
func (c *checker) untrack(r *request) (access uint32) {
	if c.requests[r.id] != r {
		return 0
	}
	delete(c.requests, r.id)
	delete(c.unanswered, r)
	delete(c.sinks, r)
	access, r.access = r.access, 0
	ep, ok := r.owner.(*endpoint)
	if !ok {
		return access
	}
	ep.pending--
	q := ep.receiveQueue
	if r.kind.Initiator() {
		if i := slices.Index(ep.initiator, r); i >= 0 {
			ep.initiator = slices.Delete(ep.initiator, i, i+1)
		}
		q = ep.initiatorQueue
	}
	if q != nil {
		*q.counter(r)--
	}
	return access
}
