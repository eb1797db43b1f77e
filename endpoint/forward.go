package endpoint

import (
	"context"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// The endpoints of a relay, see package relayhook. Requests of the peer stay in the ring until the program has taken
// them, and their entries are released when it says so. Everything else is as for any endpoint: only serveRing does not run
// for such a one.

var (
	_ relayhook.Endpoint  = (*queuePair)(nil)
	_ relayhook.Adapter   = (*adapter)(nil)
	_ relayhook.Connector = (*connector)(nil)
	_ relayhook.Listener  = (*listener)(nil)
)

// ListenForOtherHosts makes the member the relay of its arena.
func (a *adapter) ListenForOtherHosts(ctx context.Context) (relayhook.Listener, error) {
	const op = "listen for other hosts"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	p := a.provider
	if !p.options.Forward {
		return nil, a.opError(op, nd.NotSupported, "the provider is not that of a relay", "set Options.Forward")
	}
	l := &listener{adapter: a, state: listening, backlog: maxBacklog}
	if !p.ports.SetOtherHosts(l) {
		return nil, a.opError(op, nd.SharingViolation, "this relay has such a listener", "close it first")
	}
	if err := p.member.BecomeRelay(); err != nil {
		l.close()
		return nil, &nd.OpError{Op: op, Object: "adapter", Status: nd.SharingViolation, Err: err, Next: "start one relay for each arena"}
	}
	return l, nil
}

// Serve calls step while there is work, and when there may be some.
func (a *adapter) Serve(ctx context.Context, step func() bool) error {
	return a.provider.serve(ctx, statuspage.Call{Op: "relay"}, step)
}

// HasDied reports whether the process with a rank has died.
func (a *adapter) HasDied(rank int) bool { return a.provider.arena.HasDied(rank) }

// TakeRequest puts the oldest request into c, if one waits.
func (l *listener) TakeRequest(c nd.Connector) (bool, error) {
	l.mu.Lock()
	conn := l.nextRequest()
	l.mu.Unlock()
	if conn == nil {
		return false, nil
	}
	return true, c.(*connector).takeRequest(conn)
}

// IsWanted reports whether the peer waits for an answer to its request.
func (c *connector) IsWanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == cm.PhaseRequested && c.conn.state() == cm.ConnRequested && !c.conn.record.IsPeerGone()
}

// HasNext reports, approximately, whether the ring has an entry that Next has not returned.
func (ep *queuePair) HasNext() bool {
	in := ep.inbound.Load()
	return in != nil && ep.forwards() && in.HasEntry()
}

// Next takes the peer's oldest ring entry.
func (ep *queuePair) Next(r *relayhook.Request) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.forwards() || ep.state() != cm.QPConnected {
		return false
	}
	c, e := ep.conn, &ep.resp.entry
	slot := c.in.Front()
	if slot == nil {
		return false
	}
	words := *slot // the peer can overwrite the slot
	if !e.Decode(&words) || !isForwarded(e) {
		ep.terminate(ep.protocolError("a ring entry of kind %d, flags %#x and length %d to a relay", e.Kind, e.Flags, e.PayloadLength))
		return false
	}
	*r = relayhook.Request{
		Number: c.in.Advance(), Kind: forwardKind(e.Kind),
		First: e.Flags&wire.FlagFirst != 0, Last: e.Flags&wire.FlagLast != 0,
		Invalidate: e.Flags&wire.FlagInvalidate != 0, Solicited: e.Flags&wire.FlagSolicited != 0, Hashed: e.Flags&wire.FlagHashed != 0,
		Token: e.Token, Address: e.ReceiverAddress, Length: e.FragmentLength, Total: e.RequestLength,
		LocalAddress: e.SenderAddress, LocalToken: e.SenderToken, Hash: e.Hash,
		HasImmediate: e.Flags&wire.FlagImmediate != 0, Immediate: e.Immediate,
	}
	switch e.Kind {
	case wire.SendInEntry, wire.WriteInEntry:
		r.InEntry, r.Data = true, e.Payload
		r.Length, r.Total = uint64(e.PayloadLength), uint64(e.PayloadLength)
	case wire.Atomic:
		r.Length, r.Total = 8, 8
		r.Change, r.ResultIndex = relayhook.Change{Type: e.Operation.Request(), Operand: e.Operand, Swap: e.Swap}, e.ResultIndex
	}
	return true
}

// isForwarded reports whether an entry is one that a correct peer sends to a relay: it needs an acknowledgement, and
// does not report data that the peer has placed itself.
func isForwarded(e *wire.Entry) bool {
	return e.Kind != wire.SendPlaced && e.Kind != wire.SendFailed && e.Kind != wire.WritePlaced && e.Flags&wire.FlagAckRequest != 0
}

func forwardKind(k wire.Kind) relayhook.Kind {
	switch k {
	case wire.WriteFragment, wire.WriteInEntry:
		return relayhook.Write
	case wire.ReadFragment:
		return relayhook.Read
	case wire.Atomic:
		return relayhook.Atomic
	}
	return relayhook.Send
}

// Fetch copies bytes of a request from the peer's memory.
func (ep *queuePair) Fetch(r *relayhook.Request, at uint64, to []byte) nd.Status {
	if at > r.Length || uint64(len(to)) > r.Length-at {
		return nd.AccessViolation
	}
	if r.InEntry {
		copy(to, r.Data[at:])
		return nd.Success
	}
	return ep.copyForwarded(r, at, to, window.Read, &ep.source, &ep.sink)
}

// Store copies bytes of a Read to the peer's memory.
func (ep *queuePair) Store(r *relayhook.Request, at uint64, from []byte) nd.Status {
	if at > r.Length || uint64(len(from)) > r.Length-at {
		return nd.AccessViolation
	}
	return ep.copyForwarded(r, at, from, window.Write, &ep.sink, &ep.source)
}

// copyForwarded copies between the peer's memory and own memory that needs no token. peer is the operand for the
// peer's memory, whose token has to grant the right.
func (ep *queuePair) copyForwarded(r *relayhook.Request, at uint64, own []byte, right window.Rights, peer, local *window.Operand) nd.Status {
	if len(own) == 0 {
		return nd.Success
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state() != cm.QPConnected {
		return nd.ConnectionAborted
	}
	*peer = window.Operand{Token: r.LocalToken, Rights: window.Local | right, Address: r.LocalAddress + at, Far: &ep.conn.far, BindCheck: &r.BindCheck}
	*local = window.Operand{Mem: own}
	_, sinkFault, sourceFault := ep.guard.Copy(&ep.sink, &ep.source, uint64(len(own)))
	local.Mem = nil // it is the caller's
	switch sinkFault | sourceFault {
	case window.NoFault:
		return nd.Success
	case window.FaultDisconnected:
		return nd.ConnectionAborted
	}
	return nd.AccessViolation
}

// AnswerHash tells the peer the hash of the data of its Read.
func (ep *queuePair) AnswerHash(r *relayhook.Request, hash uint64) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.forwards() && ep.state() == cm.QPConnected {
		ep.payloadChecks().AnswerRead(r.Hash, hash)
	}
}

// AnswerAtomic tells the peer what the bytes were that its atomic has changed.
func (ep *queuePair) AnswerAtomic(r *relayhook.Request, old uint64) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.forwards() && ep.state() == cm.QPConnected {
		ep.localQP.Results[r.ResultIndex].Store(old) // ORDER result-stored: before the release of the entry; pairs with the load in takeResult
		failpoint.Reach(failpoint.ResultStored)
	}
}

// Complete completes the peer's requests before ring entry number end.
func (ep *queuePair) Complete(end uint64) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.forwards() || ep.state() != cm.QPConnected {
		return // after an end, a release would tell the peer that later requests have succeeded
	}
	c := ep.conn
	c.in.ReleaseTo(end)
	failpoint.Reach(failpoint.SlotsReleased)
	c.record.Peer.Wake()
}

// Fail fails the peer's request with a ring entry, and ends the connection.
func (ep *queuePair) Fail(number uint64, status nd.Status, why string) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.forwards() || ep.state() != cm.QPConnected {
		return
	}
	ep.conn.in.ReleaseTo(number)
	ep.failEntry(number, status, ep.opError("relay", nd.ConnectionAborted, why, ""))
}

// Abort ends the connection.
func (ep *queuePair) Abort(why string) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.terminate(ep.opError("relay", nd.ConnectionAborted, why, ""))
}

// Begin posts a request in parts.
func (ep *queuePair) Begin(o *relayhook.Order, data []byte) error {
	kind, flags := nd.RequestSend, nd.OpFlags(0)
	switch o.Kind {
	case relayhook.Write:
		kind = nd.RequestWrite
	case relayhook.Read:
		kind = nd.RequestRead
	case relayhook.Atomic:
		kind = o.Change.Type
	}
	if o.Solicited {
		flags = nd.SendAndSolicitEvent
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest("relay", kind, flags, o.Context)
	if err != nil {
		return err
	}
	r.Total, r.Invalidate, r.HasImmediate, r.Immediate = o.Total, o.Invalidate, o.HasImmediate, o.Immediate
	r.RemoteAddress, r.RemoteToken = o.Address, o.Token
	if r.HasImmediate && kind == nd.RequestSend {
		r.RemoteToken = nd.Token(o.Immediate)
	}
	if r.IsAtomic() {
		r.operand, r.swap, r.oldTo = o.Change.Operand, o.Change.Swap, o.Old
	} else {
		r.parts = ep.parts
	}
	if o.Total > 0 {
		r.SGEs = append(r.SGEs, wire.SGE{Length: uint32(o.Total)})
	}
	if o.Hashed && o.Total > 0 {
		ep.payloadChecks().Expect(&r.Request, o.Hash)
	}
	ep.sq.posted++
	ep.sq.slotsTaken++
	ep.req.submitted = ep.sq.posted
	ep.give(data)
	return nil
}

// Give passes the next bytes of the Sends and Writes that were begun.
func (ep *queuePair) Give(data []byte) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.give(data)
}

func (ep *queuePair) give(data []byte) {
	ep.parts.given = data
	ep.runParts()
	if ep.state() == cm.QPConnected {
		ep.parts.hold()
	}
	ep.parts.given = nil
}

// runParts runs requests after the program has passed bytes or room. It wakes no other goroutine: this one waits or polls next.
func (ep *queuePair) runParts() {
	budget := uint64(quantum)
	ep.runRequests(&budget)
	asym.StoreRelease32(&ep.uncompleted, uint32(ep.sq.posted-ep.sq.completed))
}

// Take stores the next bytes of a Read in to.
func (ep *queuePair) Take(context uint64, to []byte) (n int) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	p := ep.parts
	if ep.req.next == ep.req.submitted {
		return 0
	}
	if r := ep.requestAt(ep.req.next); r.Kind != nd.RequestRead || r.context != context {
		return 0 // an earlier request is not executed
	}
	p.room = to
	ep.runParts()
	n = len(to) - len(p.room)
	p.room = nil
	return n
}

// Used returns how many bytes of those given have been used.
func (ep *queuePair) Used() uint64 { return ep.parts.used.Load() }
