package tiny

import (
	"slices"
	"time"

	"github.com/softnd/softnd/nd"
)

// run executes requests in the order of posting until one has to wait.
func (e *endpoint) run() {
	for len(e.requests) > 0 {
		r := e.requests[0]
		switch {
		case e.state == failed, e.state == peerGone && r.late:
			e.requests = e.requests[1:]
			e.complete(r, nd.Result{Status: nd.Canceled})
		case e.state != connected:
			return
		case r.kind == nd.RequestSend && len(e.peer.receives) == 0 && e.fetchable(r):
			e.await(r)
			return
		default:
			e.requests = e.requests[1:]
			e.execute(r)
		}
	}
}

// await fails a Send if the peer posts no Receive in time.
func (e *endpoint) await(r *request) {
	if r.timer != nil {
		return
	}
	r.timer = time.AfterFunc(orDefault(e.adapter.ReceiveTimeout), func() {
		defer e.adapter.lock()()
		if !r.done && e.state == connected {
			e.requests = e.requests[1:] // this is r: the requests before it have run
			e.complete(r, nd.Result{Status: nd.IOTimeout})
			e.fail(nd.IOTimeout, nd.IOTimeout)
		}
	})
}

// execute runs one request, and ends the connection if it fails.
func (e *endpoint) execute(r *request) {
	var result nd.Result
	switch r.kind {
	case nd.RequestSend:
		e.deliver(r)
		return
	case nd.RequestBind:
		if r.win.access != nil || r.win.closed || r.access.region.mem == nil {
			result.Status = nd.InvalidDeviceRequest
		} else {
			r.win.bind(r.access, r.token)
		}
	case nd.RequestInvalidate:
		if r.win.access == nil || r.win.access.endpoint != e {
			result.Status = nd.InvalidDeviceRequest
		} else {
			r.win.end()
		}
	default:
		result = e.reach(r)
	}
	e.complete(r, result)
	if result.Status != nd.Success {
		e.fail(result.Status, result.Status)
	}
}

// deliver copies a message into the peer's oldest receive.
func (e *endpoint) deliver(r *request) {
	data, ok := e.fetch(r)
	if !ok {
		e.complete(r, nd.Result{Status: nd.AccessViolation})
		e.fail(nd.AccessViolation, nd.AccessViolation)
		return
	}
	p := e.peer
	recv := p.receives[0]
	p.receives = p.receives[1:]
	g := p.adapter.remote[r.token]
	theirs := nd.Result{BytesTransferred: uint32(len(data))}
	switch destinations, room := p.destinations(recv); {
	case r.also && (g == nil || g.endpoint != p):
		theirs.Status = nd.InvalidDeviceRequest
	case destinations == nil:
		theirs.Status = nd.AccessViolation
	case len(data) > room:
		theirs.Status = nd.BufferOverflow
	default:
		scatter(destinations, data)
	}
	if theirs.Status != nd.Success {
		p.complete(recv, nd.Result{Status: theirs.Status})
		e.complete(r, nd.Result{Status: nd.RemoteError})
		e.fail(nd.RemoteError, theirs.Status)
		return
	}
	if r.also {
		g.window.end()
		theirs.InvalidatedToken = r.token
		recv.kind = nd.RequestReceiveAndInvalidate
	}
	recv.flags = r.flags & nd.SendAndSolicitEvent
	p.complete(recv, theirs)
	e.complete(r, nd.Result{BytesTransferred: uint32(len(data))})
}

// reach runs a Read or a Write.
func (e *endpoint) reach(r *request) nd.Result {
	n := 0
	for _, s := range r.sge {
		n += len(s.Buffer)
	}
	read := r.kind == nd.RequestRead
	if read && e.reads == 0 {
		return nd.Result{Status: nd.InvalidDeviceRequest}
	}
	if n == 0 {
		return nd.Result{}
	}
	g := e.peer.adapter.remote[r.token]
	if g == nil || g.only && g.endpoint != e.peer || read && !g.read || !read && !g.write {
		return nd.Result{Status: nd.AccessViolation}
	}
	at, ok := within(g.mem, g.base, r.far, n)
	if !ok {
		return nd.Result{Status: nd.AccessViolation}
	}
	if read {
		destinations, _ := e.destinations(r)
		if destinations == nil {
			return nd.Result{Status: nd.AccessViolation}
		}
		scatter(destinations, slices.Clone(g.mem[at:at+n]))
	} else {
		data, ok := e.fetch(r)
		if !ok {
			return nd.Result{Status: nd.AccessViolation}
		}
		copy(g.mem[at:], data)
	}
	return nd.Result{BytesTransferred: uint32(n)}
}

// isPermitted reports whether the token of an entry permits the access to its buffer.
func (e *endpoint) isPermitted(s nd.SGE, write bool) bool {
	if len(s.Buffer) == 0 {
		return true
	}
	m := e.adapter.local[s.Token]
	if m == nil || write && !m.flags.LocalWrite() {
		return false
	}
	_, ok := within(m.mem, address(m.mem), address(s.Buffer), len(s.Buffer))
	return ok
}

func (e *endpoint) fetchable(r *request) bool {
	return r.flags.Has(nd.Inline) || !slices.ContainsFunc(r.sge, func(s nd.SGE) bool { return !e.isPermitted(s, false) })
}

// fetch returns a copy of the bytes to be sent.
func (e *endpoint) fetch(r *request) (data []byte, ok bool) {
	if r.flags.Has(nd.Inline) {
		return r.inline, true
	}
	for _, s := range r.sge {
		data = append(data, s.Buffer...)
	}
	return data, e.fetchable(r)
}

// destinations returns the buffers to write, and their size. It returns nil if one may not be written.
func (e *endpoint) destinations(r *request) (destinations [][]byte, room int) {
	destinations = [][]byte{}
	for _, s := range r.sge {
		if !e.isPermitted(s, true) {
			return nil, 0
		}
		destinations = append(destinations, s.Buffer)
		room += len(s.Buffer)
	}
	return destinations, room
}

func scatter(destinations [][]byte, data []byte) {
	for _, b := range destinations {
		data = data[copy(b, data):]
	}
}

// complete adds the result of a request to the queue, unless the request is silent and has succeeded.
func (e *endpoint) complete(r *request, result nd.Result) {
	r.done = true
	if r.timer != nil {
		r.timer.Stop()
	}
	q, slot := e.initiating, &e.requestsInQueue
	if !r.kind.Initiator() {
		q, slot = e.receiving, &e.receivesInQueue
	}
	if result.Status == nd.Success && r.flags.Has(nd.SilentSuccess) {
		*slot--
		return
	}
	result.RequestType, result.RequestContext, result.EndpointContext = r.kind, r.context, e.cfg.Context
	q.add(entry{Result: result, slot: slot, solicited: r.flags.Has(nd.SendAndSolicitEvent) && !r.kind.Initiator()})
}
