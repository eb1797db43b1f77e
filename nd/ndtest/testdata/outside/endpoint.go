package tiny

import (
	"time"

	"github.com/softnd/softnd/nd"
)

type state int

const (
	idle       state = iota
	connecting       // until the active side completes
	connected
	peerGone // the peer has disconnected
	failed
	disconnected // from this side's Disconnect on
)

// endpoint is a queue pair.
type endpoint struct {
	nd.UnsupportedEndpoint
	adapter               *adapter
	cfg                   nd.EndpointConfig
	receiving, initiating *queue
	state                 state
	why                   nd.Status  // the reason for which it left the connected state; Success before
	peer                  *endpoint  // from the connection on
	connector             *connector // from the connection on
	reads                 int        // the outbound limit
	released              bool
	ended                 chan struct{} // closed when it has left the connected state

	receives, requests               []*request           // outstanding, the oldest first
	receivesInQueue, requestsInQueue int                  // slots in use
	windows                          map[nd.Token]*window // bound here
}

// request is a work request.
type request struct {
	kind    nd.RequestType
	context uint64
	flags   nd.OpFlags
	sge     []nd.SGE
	inline  []byte

	far    uint64   // of Read and Write
	token  nd.Token // of these, of SendAndInvalidate and of Bind
	also   bool     // the request is SendAndInvalidate
	win    *window  // of Bind and Invalidate
	access *access  // of Bind

	late  bool // posted after the peer had disconnected
	done  bool
	timer *time.Timer // of a Send without a Receive
}

// check checks a request, and copies inline data.
func (e *endpoint) check(op string, r *request) error {
	if bad := r.flags &^ r.kind.AllowedFlags(); bad != 0 {
		return refuse(op, nd.InvalidParameter, bad.String())
	}
	n, most := 0, e.cfg.MaxInitiatorSGE
	if r.kind == nd.RequestReceive {
		most = e.cfg.MaxReceiveSGE
	}
	for _, s := range r.sge {
		n += len(s.Buffer)
	}
	switch inline := r.flags.Has(nd.Inline); {
	case !inline && len(r.sge) > most:
		return refuse(op, nd.DataOverrun, "too many entries")
	case n > maxBytes, inline && n > e.cfg.InlineSize:
		return refuse(op, nd.BufferOverflow, "too many bytes")
	case inline:
		r.inline = make([]byte, 0, n)
		for _, s := range r.sge {
			r.inline = append(r.inline, s.Buffer...)
		}
	}
	return nil
}

// post queues an initiator request, and runs the requests that need not wait.
func (e *endpoint) post(op string, r *request) error {
	if err := e.check(op, r); err != nil {
		return err
	}
	switch {
	case e.released || e.state == idle || e.state == connecting || e.state == disconnected:
		return refuse(op, nd.ConnectionInvalid, "not connected")
	case e.requestsInQueue >= e.cfg.InitiatorDepth:
		return refuse(op, nd.NoMoreEntries, "the initiator queue is full")
	}
	e.requestsInQueue++
	r.late = e.state == peerGone
	e.requests = append(e.requests, r)
	if r.kind == nd.RequestBind {
		r.win.last = nd.WindowDescriptor{Address: r.access.base, Length: uint64(len(r.access.mem)), Token: r.token}
	}
	e.run()
	return nil
}

func (e *endpoint) Send(reqCtx uint64, sge nd.SGL, flags nd.OpFlags) error {
	defer e.adapter.lock()()
	return e.post("send", &request{kind: nd.RequestSend, context: reqCtx, sge: sge.Entries(), flags: flags})
}

func (e *endpoint) SendAndInvalidate(reqCtx uint64, sge nd.SGL, remoteToken nd.Token, flags nd.OpFlags) error {
	defer e.adapter.lock()()
	r := &request{kind: nd.RequestSend, context: reqCtx, sge: sge.Entries(), flags: flags, token: remoteToken, also: true}
	return e.post("send and invalidate", r)
}

func (e *endpoint) Receive(reqCtx uint64, sge nd.SGL) error {
	const op = "receive"
	defer e.adapter.lock()()
	r := &request{kind: nd.RequestReceive, context: reqCtx, sge: sge.Entries()}
	if err := e.check(op, r); err != nil {
		return err
	}
	switch {
	case e.released:
		return refuse(op, nd.InvalidHandle, "the endpoint is closed")
	case e.receivesInQueue >= e.cfg.ReceiveDepth:
		return refuse(op, nd.NoMoreEntries, "the receive queue is full")
	}
	e.receivesInQueue++
	e.receives = append(e.receives, r)
	if e.state == failed || e.state == disconnected {
		e.flush()
	} else if e.peer != nil {
		e.peer.run()
	}
	return nil
}

func (e *endpoint) Bind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	const op = "bind"
	defer e.adapter.lock()()
	m, mok := mr.(*region)
	w, wok := mw.(*window)
	switch {
	case !mok || m.adapter != e.adapter:
		return refuse(op, nd.InvalidParameter, "the region is of another adapter")
	case !wok || w.adapter != e.adapter:
		return refuse(op, nd.InvalidParameter, "the window is of another adapter")
	case w.closed:
		return refuse(op, nd.InvalidParameter, "the window is closed")
	}
	if _, ok := within(m.mem, address(m.mem), address(buf), len(buf)); !ok || len(buf) == 0 {
		return refuse(op, nd.AccessViolation, "not within the region")
	}
	if flags.Has(nd.AllowWrite) && !m.flags.LocalWrite() {
		return refuse(op, nd.AccessViolation, "the region has no right to write")
	}
	g := &access{
		region: m, window: w, endpoint: e, base: address(buf), mem: buf, only: flags.Has(nd.ThisEndpointOnly),
		read: flags.Has(nd.AllowRead), write: flags.Has(nd.AllowWrite),
	}
	r := &request{kind: nd.RequestBind, context: reqCtx, flags: flags, win: w, access: g, token: e.adapter.token()}
	return e.post(op, r)
}

func (e *endpoint) Invalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	const op = "invalidate"
	defer e.adapter.lock()()
	w, ok := mw.(*window)
	if !ok || w.adapter != e.adapter {
		return refuse(op, nd.InvalidParameter, "the window is of another adapter")
	}
	return e.post(op, &request{kind: nd.RequestInvalidate, context: reqCtx, flags: flags, win: w})
}

func (e *endpoint) InvalidateRegion(uint64, nd.MemoryRegion, nd.OpFlags) error {
	return refuse("invalidate region", nd.InvalidDeviceRequest, "there are no fast registrations")
}

func (e *endpoint) Read(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	defer e.adapter.lock()()
	r := &request{kind: nd.RequestRead, context: reqCtx, sge: sge.Entries(), far: remoteAddress, token: remoteToken, flags: flags}
	return e.post("read", r)
}

func (e *endpoint) Write(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	defer e.adapter.lock()()
	r := &request{kind: nd.RequestWrite, context: reqCtx, sge: sge.Entries(), far: remoteAddress, token: remoteToken, flags: flags}
	return e.post("write", r)
}

func (e *endpoint) Err() error {
	defer e.adapter.lock()()
	return refuse("connection", e.why, "")
}

func (e *endpoint) Done() <-chan struct{} { return e.ended }

func (e *endpoint) Connector() nd.Connector {
	defer e.adapter.lock()()
	if e.connector == nil {
		return nil
	}
	return e.connector
}

// setEnded records that the endpoint has left the connected state, and the first reason.
func (e *endpoint) setEnded(why nd.Status) {
	if e.why == nd.Success {
		e.why = why
		close(e.ended)
	}
}
