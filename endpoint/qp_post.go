package endpoint

// TWIN c/src/endpoint/qp_post.c.

import (
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// Send posts a message for the peer's oldest posted receive.
func (ep *queuePair) Send(reqCtx uint64, sge nd.SGL, flags nd.OpFlags) error {
	if flags&^fastFlags != 0 || len(sge.More) != 0 || uint(len(sge.First.Buffer))-1 >= wire.MaxSendInEntry { // also true for length 0
		return ep.postSend(reqCtx, &sge, flags)
	}
	if !ep.mu.LockBiased() { // Lock does the same, with one more call
		ep.mu.Lock()
	}
	c, n := ep.conn, uint64(len(sge.First.Buffer))
	// FastLimit: the peer has posted a receive for each entry before this number, and the ring has a slot for
	// it. Each of these receives can hold FastMaxLength bytes. renewCredit raises the limit, if it can.
	if ep.canRunFast() && (c.out.Published() < c.credit.FastLimit || c.renewCredit()) && n <= uint64(c.credit.FastMaxLength) {
		entry := c.out.NextEntry()
		entry[0] = wire.PlainSend(n)
		if ep.guard.CopyToEntry(entry.Bytes(1), &sge.First) { // the payload begins at word 1
			c.out.Publish() // counts as a Send of the fast path: the credit needs CountEntry for other entries only
			c.out.PrefetchForWrite()
			if c.record.Peer.HasWaiter() {
				c.record.Peer.Wake()
			}
			ep.cancelWakeup()   // an earlier request may have waited for the peer, and asked it for a wake-up
			if c.far.IsOpen() { // ORDER conn-state: after the push; see completeIfOpen
				if flags&nd.SilentSuccess != 0 {
					ep.succeedSilently(nd.RequestSend, int(n))
				} else {
					ep.completeFast(nd.RequestSend, reqCtx, int(n)) // inlined: a function that decides would be called
				}
			} else { // the connection is ending: only the peer knows whether it has received the message
				ep.enqueuePushed(nd.RequestSend, reqCtx, flags).Total = n
			}
			ep.mu.Unlock()
			return nil
		}
	}
	ep.mu.Unlock()
	return ep.postSend(reqCtx, &sge, flags)
}

// postSend is Send on the slow path.
func (ep *queuePair) postSend(reqCtx uint64, sge *nd.SGL, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postTransfer(transfer{op: "send", kind: nd.RequestSend}, reqCtx, sge, flags))
}

// SendAndInvalidate posts a message that also invalidates the peer's window or region with remoteToken.
func (ep *queuePair) SendAndInvalidate(reqCtx uint64, sge nd.SGL, remoteToken nd.Token, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postTransfer(transfer{op: "send and invalidate", kind: nd.RequestSend, invalidate: true, remoteToken: remoteToken}, reqCtx, &sge, flags))
}

// SendImmediate posts a message with a number for the result of the peer's receive.
func (ep *queuePair) SendImmediate(reqCtx uint64, sge nd.SGL, immediate uint32, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postTransfer(transfer{op: "send immediate", kind: nd.RequestSend, hasImmediate: true, immediate: immediate,
		remoteToken: nd.Token(immediate)}, reqCtx, &sge, flags)) // ring entries have it in the place of the token
}

// WriteImmediate posts a Write that also completes the peer's oldest receive, with a number for its result.
func (ep *queuePair) WriteImmediate(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, immediate uint32, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postTransfer(transfer{op: "write immediate", kind: nd.RequestWrite, hasImmediate: true, immediate: immediate,
		remoteAddress: remoteAddress, remoteToken: remoteToken}, reqCtx, &sge, flags))
}

// Write posts a copy of the bytes in sge to the peer's memory at remoteAddress. It calls no function for a Write of one word, if the
// endpoint knows both tokens already: the conditions of the short path are those of canRunFast, copyWouldOvertake, canAddResult and IsOpen.
// It loads what they compare before each of them, because the compiler makes much better code of a condition without inlined calls.
func (ep *queuePair) Write(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	if flags == 0 && len(sge.More) == 0 && len(sge.First.Buffer) == 8 && remoteAddress%8 == 0 && ep.mu.LockBiased() {
		done, q, guard := false, ep.sq.cq, ep.guard
		state, freed, mustLock := ep.stateWord.Load(), ep.sq.slots.Freed.Load(), q.mustLock.Load()
		if state == uint32(cm.QPConnected) && ep.sq.completed == ep.sq.posted && ep.sq.slotsTaken-freed < ep.sq.depth && ep.requesterCopies &&
			q.soleEndpoint == ep && !mustLock {
			c, far := ep.conn, &ep.conn.far
			published, tail, head := c.out.Published(), q.ring.Tail.Load(), q.ring.Head.Load() // ORDER queue-head: pairs with the store in pop
			bind, source := far.Known(remoteToken), shm.AddressOf(sge.First.Buffer)
			hasWord, hasSource := bind.HasWord(remoteToken, remoteAddress), guard.HasSource(sge.First.Token, source)
			if c.overtaken == published && tail-head != q.ring.Size() && hasWord && hasSource {
				p, isSame := guard.Begin(remoteToken, sge.First.Token)
				isPresent, state, disconnected := bind.IsPresent(), far.State.Load(), far.Disconnected.Load() // ORDER hazard: as in IsOpen
				if isPresent && isSame && p != nil && state == far.Established && disconnected == 0 {
					bind.PutWord(remoteAddress, sge.First.Buffer)
					done = bind.IsPresent()
				}
				if done = guard.End(p, done); done { // then as in completeFast
					ep.sq.slotsTaken++
					q.ring.Prepare(tail, head, &ep.sq.slots).SetSuccess(nd.RequestWrite, 8, reqCtx)
					asym.StoreRelease(&q.ring.Tail, tail+1) // ORDER queue-tail: pairs with the load in pop
					asym.Light()                            // ORDER asleep: between the store of the result and the load in Wake
					q.provider.waiters.Wake()
				}
			}
		}
		if done {
			ep.mu.Unlock()
			return nil
		}
		return ep.writeAny(reqCtx, &sge, remoteAddress, remoteToken, flags, true)
	}
	return ep.writeAny(reqCtx, &sge, remoteAddress, remoteToken, flags, false)
}

// writeAny is Write of any length. hasLock says that the caller has locked ep.mu, for a small Write.
func (ep *queuePair) writeAny(reqCtx uint64, sge *nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags, hasLock bool) error {
	if flags&^fastFlags == 0 && len(sge.More) == 0 && uint(len(sge.First.Buffer))-1 < smallTransfer {
		if !hasLock && !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := false
		// The Write must not overtake a message whose data the peer has not taken out of the ring yet.
		if ep.canRunFast() && !ep.conn.copyWouldOvertake() {
			if !ep.requesterCopies || ep.unreachable == remoteToken && remoteToken != 0 {
				done = ep.pushWriteFast(reqCtx, &sge.First, remoteAddress, remoteToken, flags)
			} else {
				switch ep.guard.Put(&ep.conn.far, &sge.First, remoteAddress, remoteToken) {
				case window.NoFault:
					if flags&nd.SilentSuccess != 0 {
						ep.succeedSilently(nd.RequestWrite, len(sge.First.Buffer))
					} else {
						ep.completeFast(nd.RequestWrite, reqCtx, len(sge.First.Buffer))
					}
					done = true
				case window.FaultUnreachable:
					ep.unreachable = remoteToken
				}
			}
		}
		ep.mu.Unlock()
		if done {
			return nil
		}
	}
	return ep.submitOnError(ep.postTransfer(transfer{op: "write", kind: nd.RequestWrite, remoteAddress: remoteAddress, remoteToken: remoteToken}, reqCtx, sge, flags))
}

// Read posts a copy of the peer's memory at remoteAddress into the bytes of sge.
func (ep *queuePair) Read(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	if flags&^fastFlags == 0 && len(sge.More) == 0 && uint(len(sge.First.Buffer))-1 < smallTransfer {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		if ep.requesterCopies && ep.canRunFast() && !ep.conn.copyWouldOvertake() && ep.req.readLimit > 0 &&
			ep.guard.Get(&ep.conn.far, &sge.First, remoteAddress, remoteToken) == window.NoFault {
			if flags&nd.SilentSuccess != 0 {
				ep.succeedSilently(nd.RequestRead, len(sge.First.Buffer))
			} else {
				ep.completeFast(nd.RequestRead, reqCtx, len(sge.First.Buffer))
			}
			ep.mu.Unlock()
			return nil
		}
		ep.mu.Unlock()
	}
	return ep.submitOnError(ep.postTransfer(transfer{op: "read", kind: nd.RequestRead, remoteAddress: remoteAddress, remoteToken: remoteToken}, reqCtx, &sge, flags))
}

// transfer is what distinguishes the calls of postTransfer.
type transfer struct {
	op            string // names the call in errors
	kind          nd.RequestType
	invalidate    bool // SendAndInvalidate
	hasImmediate  bool
	immediate     uint32
	remoteAddress uint64
	remoteToken   nd.Token
}

// allowedFlags returns the flags that the call takes.
func (t *transfer) allowedFlags() nd.OpFlags {
	flags := t.kind.AllowedFlags()
	if t.hasImmediate {
		flags |= nd.SendAndSolicitEvent
	}
	return flags
}

// postTransfer posts a Send, Write or Read on the slow path.
func (ep *queuePair) postTransfer(t transfer, reqCtx uint64, sge *nd.SGL, flags nd.OpFlags) error {
	op := t.op
	if flags&^t.allowedFlags() != 0 {
		return argument("flags", ep.opError(op, nd.InvalidParameter, "invalid flags "+flags.String(), "pass only flags that the call documents"))
	}
	inline := flags.Has(nd.Inline)
	if inline {
		if err := ep.checkInline(op, sge); err != nil {
			return err
		}
	} else if sge.Len() > ep.limits.initiatorSGE {
		return ep.opError(op, nd.DataOverrun, fmt.Sprintf("%d scatter/gather entries, granted %d", sge.Len(), ep.limits.initiatorSGE), "raise MaxInitiatorSGE or split the request")
	}
	if err := ep.checkLength(op, sge); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, t.kind, flags, reqCtx)
	if err != nil {
		return err
	}
	if t.hasImmediate && !r.PostedAfterEnd && !ep.conn.peerExtended {
		return ep.notExtended(op)
	}
	if inline {
		r.copyInline(sge)
	} else {
		r.SGEs, r.Total = appendSGEs(r.SGEs, sge)
		ep.adapter.resolvePrivileged(r.SGEs) // entries with the privileged token get that of their region
	}
	r.RemoteAddress, r.RemoteToken, r.Invalidate = t.remoteAddress, t.remoteToken, t.invalidate
	r.HasImmediate, r.Immediate = t.hasImmediate, t.immediate
	return ep.post(r)
}

func (ep *queuePair) checkLength(op string, sge *nd.SGL) error {
	total := uint64(0)
	for i := range sge.Len() {
		total += uint64(len(sge.At(i).Buffer))
	}
	if total > maxTransfer {
		return ep.opError(op, nd.BufferOverflow, fmt.Sprintf("%d bytes, at most %d", total, maxTransfer), "split the request")
	}
	return nil
}

// Bind posts the binding of buf, which is a part of mr, to mw. flags contain the remote access.
func (ep *queuePair) Bind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postBind(reqCtx, mr, mw, buf, flags))
}

func (ep *queuePair) postBind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	const op = "bind"
	region, ok := mr.(*memoryRegion)
	if !ok || region == nil || region.adapter != ep.adapter {
		return argument("mr", ep.opError(op, nd.InvalidParameter, "the region is not of this adapter", "register the memory with the endpoint's adapter"))
	}
	win, ok := mw.(*memoryWindow)
	if !ok || win == nil || win.adapter != ep.adapter {
		return argument("mw", ep.opError(op, nd.InvalidParameter, "the window is not of this adapter", "create it with the endpoint's adapter"))
	}
	if !region.isOpen() || !win.isOpen() {
		return ep.opError(op, nd.InvalidHandle, "the region or the window is closed", "create another")
	}
	if flags&^nd.RequestBind.AllowedFlags() != 0 {
		return argument("flags", ep.opError(op, nd.InvalidParameter, "invalid flags "+flags.String(), "pass only flags that Bind documents"))
	}
	var rights window.Rights
	if flags.Has(nd.AllowRead) {
		rights |= window.Read
	}
	if flags.Has(nd.AllowWrite) {
		rights |= window.Write
	}
	if flags.Has(nd.AllowAtomic) {
		rights |= window.Atomic
	}
	const access = nd.AllowRead | nd.AllowWrite | nd.AllowAtomic
	if flags&^access == 0 {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := ep.bindFast(reqCtx, region.region, win.window, buf, rights)
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
	r.Object = &win.window.Invalidatable
	binding, err := win.window.Prepare(region.region, buf, rights, ep.number, flags.Has(nd.ThisEndpointOnly))
	if err != nil {
		asked := window.Operand{Token: region.LocalToken(), Rights: window.Local, Address: shm.AddressOf(buf)}
		return ep.opError(op, nd.StatusOf(err), fmt.Sprintf("%v for %s", flags&access, ep.describeAccess(&asked, uint64(len(buf)))),
			"pass a part of mr.Bytes(); AllowWrite and AllowAtomic need a region with AllowLocalWrite")
	}
	r.binding = binding
	return ep.post(r)
}

// Invalidate posts the end of the remote access through mw.
func (ep *queuePair) Invalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postInvalidate(reqCtx, mw, flags))
}

func (ep *queuePair) postInvalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	const op = "invalidate"
	win, ok := mw.(*memoryWindow)
	if !ok || win == nil || win.adapter != ep.adapter {
		return argument("mw", ep.opError(op, nd.InvalidParameter, "the window is not of this adapter", "create it with the endpoint's adapter"))
	}
	if !win.isOpen() {
		return ep.opError(op, nd.InvalidHandle, "the window is closed", "create another")
	}
	return ep.postInvalidation(op, &win.window.Invalidatable, reqCtx, flags)
}

// postInvalidation posts the invalidation of a bound window or a fast-registered region.
func (ep *queuePair) postInvalidation(op string, object *window.Invalidatable, reqCtx uint64, flags nd.OpFlags) error {
	if flags&^nd.RequestInvalidate.AllowedFlags() != 0 {
		return argument("flags", ep.opError(op, nd.InvalidParameter, "invalid flags "+flags.String(), "pass only flags that Invalidate documents"))
	}
	if flags == 0 {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := ep.invalidateFast(reqCtx, object)
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
	r.Object = object
	return ep.post(r)
}
