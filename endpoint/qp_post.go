package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// smallTransfer is the number of bytes up to which a request runs inside the
// post. Larger ones proceed a part at a time, from polls and from the engine.
const smallTransfer = window.ChunkSize

// Send posts a message for the peer's oldest Receive.
func (ep *Endpoint) Send(reqCtx uint64, sge []nd.SGE, flags nd.OpFlags) error {
	if flags != 0 || len(sge) != 1 || uint(len(sge[0].Buffer))-1 >= inlinePayload {
		return ep.postSend(reqCtx, sge, flags)
	}
	if !ep.mu.LockBiased() {
		ep.mu.Lock()
	}
	c, n := ep.conn, uint64(len(sge[0].Buffer))
	// The peer is sure to take it if a receive is posted that has room for any small message.
	if ep.undisturbed() && (c.out.Pushed() < c.credit.limit || c.renewCredit()) && n <= uint64(c.credit.maxLen) {
		slot := c.out.NextSlot()
		slot[0] = plainSend | n<<16
		if ep.guard.Gather(slot.Bytes(1), sge[0].Token, sge[0].Buffer) {
			c.out.Publish()
			c.out.PrefetchForWrite()
			if !c.peer.Unarmed() {
				c.peer.Ring()
			}
			ep.unstall()
			if c.ref.Connected() { // ORDER conn-state: after the push; see published
				ep.succeedNow(nd.RequestSend, reqCtx, int(n))
			} else { // the connection is ending, and only the peer knows whether it has taken this
				ep.awaitNow(nd.RequestSend, reqCtx).total = n
			}
			ep.mu.Unlock()
			return nil
		}
	}
	ep.mu.Unlock()
	return ep.postSend(reqCtx, sge[:1:1], 0)
}

func (ep *Endpoint) postSend(reqCtx uint64, sge []nd.SGE, flags nd.OpFlags) error {
	return ep.answer(ep.postTransfer("send", nd.RequestSend, reqCtx, sge, 0, 0, flags, nd.InvalidParameter4, false))
}

// SendAndInvalidate posts a message that invalidates the peer's window as well.
func (ep *Endpoint) SendAndInvalidate(reqCtx uint64, sge []nd.SGE, remote nd.Token, flags nd.OpFlags) error {
	return ep.answer(ep.postTransfer("send and invalidate", nd.RequestSend, reqCtx, sge, 0, remote, flags, nd.InvalidParameter4, true))
}

// Write posts a copy into the peer's memory.
func (ep *Endpoint) Write(reqCtx uint64, sge []nd.SGE, remoteAddr uint64, remote nd.Token, flags nd.OpFlags) error {
	if flags == 0 && len(sge) == 1 && uint(len(sge[0].Buffer))-1 < smallTransfer {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := false
		if ep.undisturbed() && !ep.conn.hasUnsettled() {
			if !ep.initiates || ep.guard.KnownUnreachable(remote) {
				done = ep.passWrite(reqCtx, &sge[0], remoteAddr, remote)
			} else if done = ep.guard.Put(&ep.conn.ref, remote, remoteAddr, sge[0].Token, sge[0].Buffer); done {
				ep.succeedNow(nd.RequestWrite, reqCtx, len(sge[0].Buffer))
			}
		}
		ep.mu.Unlock()
		if done {
			return nil
		}
	}
	return ep.answer(ep.postTransfer("write", nd.RequestWrite, reqCtx, sge, remoteAddr, remote, flags, nd.InvalidParameter6, false))
}

// Read posts a copy out of the peer's memory.
func (ep *Endpoint) Read(reqCtx uint64, sge []nd.SGE, remoteAddr uint64, remote nd.Token, flags nd.OpFlags) error {
	if flags == 0 && len(sge) == 1 && ep.initiates && uint(len(sge[0].Buffer))-1 < smallTransfer {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		if ep.undisturbed() && !ep.conn.hasUnsettled() && ep.readLimit > 0 &&
			ep.guard.Get(&ep.conn.ref, remote, remoteAddr, sge[0].Token, sge[0].Buffer) {
			ep.succeedNow(nd.RequestRead, reqCtx, len(sge[0].Buffer))
			ep.mu.Unlock()
			return nil
		}
		ep.mu.Unlock()
	}
	return ep.answer(ep.postTransfer("read", nd.RequestRead, reqCtx, sge, remoteAddr, remote, flags, nd.InvalidParameter6, false))
}

func (ep *Endpoint) postTransfer(op string, k nd.RequestType, reqCtx uint64, sge []nd.SGE, remoteAddr uint64, remote nd.Token, flags nd.OpFlags, badFlags nd.Status, invalidate bool) error {
	if flags&^k.AllowedFlags() != 0 {
		return ep.fail(op, badFlags, "flags "+flags.String(), "use only flags that the request takes")
	}
	inline := flags.Has(nd.Inline)
	if inline {
		if err := ep.checkInline(op, sge); err != nil {
			return err
		}
	} else if len(sge) > ep.initiatorSGE {
		return ep.fail(op, nd.DataOverrun, fmt.Sprintf("%d scatter/gather entries, granted %d", len(sge), ep.initiatorSGE), "raise MaxInitiatorSGE or split the request")
	}
	if err := ep.checkLength(op, sge); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, k, flags, reqCtx)
	if err != nil {
		return err
	}
	if inline {
		r.capture(sge)
	} else {
		r.entries, r.total = setEntries(r.entries, sge)
		ep.adapter.resolvePrivileged(r.entries)
	}
	r.remote, r.token, r.invalidate = remoteAddr, remote, invalidate
	ep.enqueue(r)
	return nil
}

func (ep *Endpoint) checkLength(op string, sge []nd.SGE) error {
	total := uint64(0)
	for i := range sge {
		total += uint64(len(sge[i].Buffer))
	}
	if total > maxTransfer {
		return ep.fail(op, nd.BufferOverflow, fmt.Sprintf("%d bytes, at most %d", total, maxTransfer), "split the request")
	}
	return nil
}

// notConnected is the error of a request that is posted before the endpoint is connected,
// or after it has disconnected or was closed.
func (ep *Endpoint) notConnected(op string) error {
	detail, next := "the endpoint is not connected yet", "post when Connect and CompleteConnect, or Accept, have returned"
	switch s := ep.state(); {
	case ep.closedQ:
		detail, next = "the endpoint was closed", "connect a new endpoint"
	case s == closing || s == closed:
		detail, next = "the endpoint has been disconnected", "connect a new endpoint"
	}
	return ep.fail(op, nd.ConnectionInvalid, detail, next)
}

// newRequest takes the next slot of the initiator queue. The slot counts only
// once enqueue has been called.
func (ep *Endpoint) newRequest(op string, k nd.RequestType, flags nd.OpFlags, reqCtx uint64) (*request, error) {
	switch ep.state() {
	case connected, peerGone, failed:
		if ep.hasOverrun() {
			return nil, ep.overrunError(op)
		}
	default:
		return nil, ep.notConnected(op)
	}
	if !ep.hasSlot() {
		return nil, ep.noRoom[1]
	}
	r := &ep.requests[ep.tail&uint64(len(ep.requests)-1)]
	r.reset(k, flags, reqCtx)
	r.doomed = ep.state() != connected
	return r, nil
}

// hasSlot tells whether another request may be outstanding. A slot is free
// again when its result has been taken, or when it succeeded silently.
func (ep *Endpoint) hasSlot() bool {
	return ep.tail+ep.apart-ep.taken.freed.Load() < ep.initiatorDepth
}

// enqueue posts the request that newRequest returned. Unless it is deferred,
// it and those that were deferred before it may run.
func (ep *Endpoint) enqueue(r *request) {
	ep.tail++
	asym.StoreRelease32(&ep.open, uint32(ep.tail-ep.done))
	if (r.flags.Has(nd.Defer) || ep.batching) && ep.state() == connected {
		return
	}
	ep.pushOut()
}

// pushOut lets all posted requests run, at once if it is their turn and the
// last of them is small.
func (ep *Endpoint) pushOut() {
	if ep.ready == ep.tail {
		return
	}
	waiting := ep.next != ep.ready
	ep.ready = ep.tail
	if waiting && ep.state() == connected {
		return // polls and the engine get there
	}
	if last := &ep.requests[(ep.tail-1)&uint64(len(ep.requests)-1)]; last.total > smallTransfer && ep.state() == connected {
		ep.provider.wakeProgress()
		return
	}
	budget := uint64(quantum)
	ep.advance(&budget)
	if ep.next != ep.tail {
		ep.provider.wakeProgress() // it waits for something, perhaps for time only
	}
}

// answer is what a post returns. One that fails pushes out what was deferred
// before it: nobody may post anything afterwards.
func (ep *Endpoint) answer(err error) error {
	if err != nil {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		ep.pushOut()
	}
	return err
}

// Receive posts buffers for one message.
func (ep *Endpoint) Receive(reqCtx uint64, sge []nd.SGE) error {
	if len(sge) != 1 || uint64(len(sge[0].Buffer))-1 >= maxTransfer || ep.shared != nil {
		return ep.postReceive(reqCtx, sge)
	}
	if !ep.mu.LockBiased() {
		ep.mu.Lock()
	}
	if ep.now.Load() == uint32(connected) && ep.posted-ep.receivesTaken.freed.Load() < ep.receiveDepth && ep.adapter.privileged.Load() == 0 {
		ep.describe(reqCtx, &sge[0])
		ep.mu.Unlock()
		return nil
	}
	ep.mu.Unlock()
	return ep.postReceive(reqCtx, sge[:1:1])
}

func (ep *Endpoint) postReceive(reqCtx uint64, sge []nd.SGE) error {
	const op = "receive"
	if ep.shared != nil {
		return ep.fail(op, nd.InvalidDeviceRequest, "the endpoint takes its receives from a shared receive queue", "post to that queue")
	}
	if len(sge) > ep.receiveSGE {
		return ep.fail(op, nd.DataOverrun, fmt.Sprintf("%d scatter/gather entries, granted %d", len(sge), ep.receiveSGE), "raise MaxReceiveSGE or post fewer entries")
	}
	if err := ep.checkLength(op, sge); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.hasOverrun() {
		return ep.overrunError(op)
	}
	if ep.posted-ep.receivesTaken.freed.Load() >= ep.receiveDepth {
		return ep.noRoom[0]
	}
	r := &ep.receives[ep.posted&uint64(len(ep.receives)-1)]
	r.set(reqCtx, sge)
	ep.adapter.resolvePrivileged(r.entries())
	ep.posted++
	switch ep.state() {
	case failed, closing, closed:
		if ep.swept { // else it is canceled in its turn
			ep.cancelReceives()
		}
	default:
		ep.offer(r)
	}
	return nil
}

// offer shows a posted receive to the peer.
func (ep *Endpoint) offer(r *receive) {
	d, entries := ep.descriptor(), r.entries()
	d[0], d[1] = r.capacity, uint64(len(entries))
	room := min(r.capacity, inlinePayload)
	for i, e := range entries {
		d[2+2*i], d[3+2*i] = e.address, uint64(e.length)|uint64(e.token)<<32
		if !ep.canSink(e) {
			room = 0
		}
	}
	ep.show(room)
}

// descriptor is where the receive posted last is described. Plain stores will
// do: the peer reads a descriptor only after it has loaded posted, and its place
// is free again only when its receive has been delivered.
func (ep *Endpoint) descriptor() []uint64 {
	at := ((ep.posted - 1) & uint64(len(ep.receives)-1)) * ep.stride
	return ep.words[at : at+ep.stride]
}

// show lets the peer see the receive posted last, which can take room bytes of
// a small message for sure.
func (ep *Endpoint) show(room uint64) {
	if room < inlinePayload {
		ep.tighten(room)
	}
	c := ep.conn
	if c == nil || !c.attached {
		ep.half.posted.Swap(ep.posted) // ORDER receive-posted: pairs with the load in connection.hasReceive
		return
	}
	if c.out.Relaxed() {
		asym.StoreRelease(&ep.half.posted, ep.posted) // ORDER receive-posted: pairs with the load in connection.hasReceive
	} else {
		ep.half.posted.Swap(ep.posted) // ORDER receive-posted: pairs with the load in connection.hasReceive
	}
	if c.peerState.stalled.Load() != 0 { // ORDER stalled: after posted; pairs with the swap and the barrier in stall
		c.peer.Ring()
	}
}

// tighten tells the peer that it must not count a message as delivered that
// has more bytes than room before we have placed it: it might not fit.
func (ep *Endpoint) tighten(room uint64) {
	if int64(ep.tight-ep.delivered) > 0 { // there are others like that
		room = min(room, ep.roomy)
	}
	ep.tight, ep.roomy = ep.posted, room
	asym.StoreRelease(&ep.half.room, room)      // ORDER receive-room: before tight; pairs with the load in connection.hasReceive
	asym.StoreRelease(&ep.half.tight, ep.tight) // ORDER receive-tight: before posted; pairs with the load in connection.hasReceive
}

// canSink tells whether an entry may be filled, as things are now.
func (ep *Endpoint) canSink(e entry) bool {
	ep.sink = window.Operand{Token: e.token, Rights: window.Local | window.Write, Address: e.address}
	return ep.guard.Check(&ep.sink, uint64(e.length)) == window.NoFault
}

// Bind posts the grant of buf through mw.
func (ep *Endpoint) Bind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	return ep.answer(ep.postBind(reqCtx, mr, mw, buf, flags))
}

func (ep *Endpoint) postBind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	const op = "bind"
	region, ok := mr.(*MemoryRegion)
	if !ok || region == nil || region.adapter != ep.adapter {
		return ep.fail(op, nd.InvalidParameter2, "the region is not of this adapter", "register the memory with the endpoint's adapter")
	}
	win, ok := mw.(*MemoryWindow)
	if !ok || win == nil || win.adapter != ep.adapter {
		return ep.fail(op, nd.InvalidParameter3, "the window is not of this adapter", "create it with the endpoint's adapter")
	}
	if !region.isOpen() || !win.isOpen() {
		return ep.fail(op, nd.InvalidHandle, "the region or the window is closed", "create another")
	}
	if flags&^nd.RequestBind.AllowedFlags() != 0 {
		return ep.fail(op, nd.InvalidParameter6, "flags "+flags.String(), "use only flags that Bind takes")
	}
	var rights window.Rights
	if flags.Has(nd.AllowRead) {
		rights |= window.Read
	}
	if flags.Has(nd.AllowWrite) {
		rights |= window.Write
	}
	if flags&^(nd.AllowRead|nd.AllowWrite) == 0 {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := ep.bindNow(reqCtx, region.region, win.window, buf, rights)
		ep.mu.Unlock()
		if done {
			return nil
		}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, nd.RequestBind, flags, reqCtx)
	if err != nil {
		return err
	}
	r.loan = win.window
	binding, err := win.window.Prepare(region.region, buf, rights, ep.number, flags.Has(nd.ThisEndpointOnly))
	if err != nil {
		asked := window.Operand{Token: region.LocalToken(), Rights: window.Local, Address: shm.AddressOf(buf)}
		return ep.fail(op, nd.StatusOf(err), fmt.Sprintf("%v for %s", flags&(nd.AllowRead|nd.AllowWrite), ep.granting(&asked, uint64(len(buf)))),
			"pass a part of mr.Bytes(); AllowWrite needs a region with AllowLocalWrite")
	}
	r.binding = binding
	ep.enqueue(r)
	return nil
}

// Invalidate posts the end of mw's grant.
func (ep *Endpoint) Invalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	return ep.answer(ep.postInvalidate(reqCtx, mw, flags))
}

func (ep *Endpoint) postInvalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	const op = "invalidate"
	win, ok := mw.(*MemoryWindow)
	if !ok || win == nil || win.adapter != ep.adapter {
		return ep.fail(op, nd.InvalidParameter2, "the window is not of this adapter", "")
	}
	if !win.isOpen() {
		return ep.fail(op, nd.InvalidHandle, "the window is closed", "")
	}
	return ep.takeBack(op, win.window, reqCtx, flags)
}

// takeBack posts the end of a loan.
func (ep *Endpoint) takeBack(op string, l window.Invalidatable, reqCtx uint64, flags nd.OpFlags) error {
	if flags&^nd.RequestInvalidate.AllowedFlags() != 0 {
		return ep.fail(op, nd.InvalidParameter3, "flags "+flags.String(), "use only flags that Invalidate takes")
	}
	if flags == 0 {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := ep.takeBackNow(reqCtx, l)
		ep.mu.Unlock()
		if done {
			return nil
		}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, nd.RequestInvalidate, flags, reqCtx)
	if err != nil {
		return err
	}
	r.loan = l
	ep.enqueue(r)
	return nil
}

// StartRequestBatch defers all posts from here to SubmitRequestBatch.
func (ep *Endpoint) StartRequestBatch() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.batching = true
}

// SubmitRequestBatch lets them run.
func (ep *Endpoint) SubmitRequestBatch() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.batching = false
	ep.pushOut()
}
