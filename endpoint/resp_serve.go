package endpoint

// TWIN c/src/endpoint/resp_serve.c.

import (
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// serveRing serves the peer's ring entries in order, up to *budget bytes, which it subtracts. An entry
// counts as at least one slot.
func (ep *queuePair) serveRing(budget *uint64) (progressed bool) {
	c := ep.conn
	entry := &ep.resp.entry
	fast := ep.stateWord.Load()&slowBit == 0
	for *budget > 0 {
		if !ep.serving { // else resp.entry is served in part: its data exceeds a budget, or it waits
			slot := c.in.Front() // loaded once: a faulty peer may withdraw the entry
			if slot == nil {
				break
			}
			if fast && (ep.serveSendFast(slot) || ep.serveWriteFast(slot)) {
				progressed = true
				*budget -= min(*budget, ring.SlotSize)
				continue
			}
			if !ep.decodeEntry(slot) {
				ep.terminate(ep.protocolError("a ring entry of kind %d and length %d", entry.Kind, entry.PayloadLength))
				return true
			}
			ep.serving = true // from here on the slot is not read again: the peer can overwrite it
		}
		before := ep.resp.fragmentCopied
		out, handled := executed, false
		if ep.hook != nil {
			out, handled = handle(ep.hook.BeforeServing(entry))
		}
		if !handled {
			out = ep.serveEntry(entry, budget)
		}
		switch out {
		case blocked:
			return progressed || ep.resp.fragmentCopied != before
		case partial:
			return true
		}
		progressed = true
		if ep.state() == cm.QPFailed {
			return true
		}
		ep.finishEntry(entry)
		*budget -= min(*budget, ring.SlotSize) // also for entries without data: the peer may never stop sending
	}
	if progressed && c.in.Unreleased() > 0 {
		// Without Wake: while a request of the peer waits for this release, the peer's process polls and does not sleep.
		c.in.Release()
	}
	return progressed
}

// copyServed copies n bytes of the entry being served, which is of a Read or Write of the peer, from ep.source to ep.sink. It
// reports false if their hash is wrong, and the connection has failed.
func (ep *queuePair) copyServed(entry *wire.Entry, n uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	if entry.Flags&wire.FlagHashed == 0 || entry.Kind == wire.WriteInEntry { // the hook has checked the data in an entry
		_, sinkFault, sourceFault = ep.guard.Copy(&ep.sink, &ep.source, n)
		return true, sinkFault, sourceFault
	}
	isFirst := entry.Flags&wire.FlagFirst != 0 && ep.resp.fragmentCopied == 0
	isLast := entry.Flags&wire.FlagLast != 0 && ep.resp.fragmentCopied+n == entry.FragmentLength
	return ep.hook.CopyServed(entry, n, isFirst, isLast)
}

// finishEntry advances past an entry that has been served.
func (ep *queuePair) finishEntry(entry *wire.Entry) {
	c := ep.conn
	c.in.Advance()
	ep.serving, ep.resp.fragmentCopied = false, 0
	ackRequested := entry.Flags&wire.FlagAckRequest != 0
	if !ackRequested && c.in.Unreleased() < c.in.Size()/4 {
		return
	}
	ep.releaseEntries(ackRequested)
}

// protocolError returns the error for an entry that no correct peer sends.
func (ep *queuePair) protocolError(format string, args ...any) error {
	ep.provider.member.RecordLostPeer(ep.conn.record.Peer.ID()) // for the launcher's report of how the job ended
	return ep.opError("serve", nd.ConnectionAborted, "the peer ("+ep.conn.peerName+") sent "+fmt.Sprintf(format, args...), "the peer's memory is damaged, or it does not run softnd")
}

// serveEntry serves an entry, or continues to: it delivers a Send into a receive, or runs a Read or Write.
func (ep *queuePair) serveEntry(entry *wire.Entry, budget *uint64) outcome {
	switch entry.Kind {
	case wire.ReadFragment:
		return ep.serveFragment(entry, budget)
	case wire.WriteFragment, wire.WriteInEntry, wire.WritePlaced:
		return ep.serveWrite(entry, budget)
	case wire.Atomic:
		return ep.serveAtomic(entry)
	}
	if out, ok := ep.findReceive(entry); !ok {
		return out
	}
	r := ep.receiveAt(ep.rq.completed)
	if ep.refusesMessage(entry, r) {
		return executed
	}
	if ep.hook != nil { // after the refusal: the hook has no part in a message that is not received
		if out, handled := handle(ep.hook.BeforeReceive(entry)); handled {
			return out
		}
	}
	switch entry.Kind {
	case wire.SendPlaced:
		if ep.hasFailedReceive(entry, r, min(entry.RequestLength, r.capacity)) {
			return executed
		}
		ep.completeReceive(r, nd.Success, min(entry.RequestLength, r.capacity), 0)
		return executed
	case wire.SendFailed:
		return ep.serveSendFailed(entry, r)
	case wire.SendFragment:
		return ep.serveSendFragment(entry, r, budget)
	}
	return ep.serveSendInEntry(entry, r)
}

// findReceive finds the receive for entry. It reports false, with the outcome of serving, if there is none.
func (ep *queuePair) findReceive(entry *wire.Entry) (out outcome, ok bool) {
	switch {
	case ep.srq != nil && (entry.Kind == wire.SendPlaced || entry.Kind == wire.SendFailed || entry.Flags&wire.FlagAckRequest == 0):
		ep.terminate(ep.protocolError("a ring entry of kind %d and flags %#x to a shared receive queue", entry.Kind, entry.Flags))
		return executed, false
	case ep.rq.completed != ep.rq.posted: // the endpoint's own receive, or one that an earlier fragment has taken
	case ep.srq == nil:
		ep.terminate(ep.protocolError("a message without a posted receive"))
		return executed, false
	case ep.state() == cm.QPPeerDisconnected || !ep.srq.assignReceive(ep): // a peer that has disconnected has canceled its requests
		return blocked, false
	}
	return executed, true
}

// serveWrite runs a part of a Write of the peer, or all of it. If the Write has immediate data, its last part completes the
// oldest receive.
func (ep *queuePair) serveWrite(entry *wire.Entry, budget *uint64) outcome {
	if entry.TakesReceive() {
		if out, ok := ep.findReceive(entry); !ok {
			return out
		}
	}
	if entry.Kind == wire.WriteInEntry {
		entry.FragmentLength, entry.RequestLength = uint64(entry.PayloadLength), uint64(entry.PayloadLength)
		*budget = max(*budget, entry.FragmentLength) // its bytes are stored at once, as a reader of an aligned word expects
	}
	if entry.Kind != wire.WritePlaced {
		if out := ep.serveFragment(entry, budget); out != executed || ep.state() == cm.QPFailed {
			return out
		}
	}
	if entry.TakesReceive() {
		ep.completeReceive(ep.receiveAt(ep.rq.completed), nd.Success, min(entry.RequestLength, maxTransfer), 0)
	}
	return executed
}

// serveAtomic runs an atomic of the peer on local memory.
func (ep *queuePair) serveAtomic(entry *wire.Entry) outcome {
	ep.sink = window.Operand{Token: entry.Token, Rights: window.Remote | window.Atomic, Address: entry.ReceiverAddress, Endpoint: ep.number}
	old, f := ep.guard.Change(&ep.sink, entry.Operation.Request(), entry.Operand, entry.Swap)
	if f != window.NoFault {
		ep.failAccess(entry, &ep.sink, 8, f)
		return executed
	}
	ep.localQP.Results[entry.ResultIndex].Store(old) // ORDER result-stored: before the release of the entry; pairs with the load in takeResult
	failpoint.Reach(failpoint.ResultStored)
	return executed
}

// refusesMessage checks the message that entry begins, before any of its data is copied. If r cannot receive it, it fails
// the receive and the connection, and reports true.
func (ep *queuePair) refusesMessage(entry *wire.Entry, r *receive) bool {
	total := entry.RequestLength
	switch {
	case ep.resp.invalidating != nil: // the data is copied
		return false
	case entry.Kind == wire.SendInEntry:
		total = uint64(entry.PayloadLength)
	case entry.Kind != wire.SendFragment || entry.Flags&wire.FlagFirst == 0 || ep.resp.fragmentCopied != 0:
		return false
	}
	if entry.Flags&wire.FlagInvalidate != 0 && !ep.checkInvalidate(entry, r) {
		return true
	}
	if total > r.capacity {
		ep.failTooLong(r, total)
		return true
	}
	return false
}

// serveSendInEntry receives a message whose data is in the ring entry.
func (ep *queuePair) serveSendInEntry(entry *wire.Entry, r *receive) outcome {
	if ep.resp.invalidating == nil { // else the data is copied, and finishSend waits for the end of accesses
		ep.source = window.Operand{Mem: entry.Payload[:]}
		if !ep.fillReceive(r, 0, uint64(entry.PayloadLength)) {
			return executed
		}
	}
	return ep.finishSend(entry, r, uint64(entry.PayloadLength))
}

// stoppedOutcome returns the outcome of an entry whose data could not be copied. The entry is not
// finished unless the connection has failed.
func (ep *queuePair) stoppedOutcome() outcome {
	if ep.state() == cm.QPFailed {
		return executed
	}
	return blocked
}

// fillReceive copies n bytes from ep.source into the entries of r, from byte at of the receive on. It
// advances ep.source. It reports false if the copy has failed.
func (ep *queuePair) fillReceive(r *receive, at, n uint64) bool {
	for n > 0 {
		e := wire.SGEAt(r.sges(), at)
		part := min(uint64(e.Length), n)
		mode.SetLocalOperand(&ep.sink, e, window.Write)
		ep.sink.BindCheck = &ep.resp.localBindCheck
		_, localFault, remoteFault := ep.guard.Copy(&ep.sink, &ep.source, part)
		switch {
		case localFault != window.NoFault:
			ep.completeReceive(r, nd.AccessViolation, 0, 0)
			ep.failServing(nd.RemoteError, ep.opError("receive", nd.AccessViolation, fmt.Sprintf("entry of %s: %v", ep.describeLocal(e), localFault), ""))
			return false
		case remoteFault == window.FaultDisconnected:
			return false // the next check of the connection notices the end too
		case remoteFault != window.NoFault:
			ep.failServing(nd.AccessViolation, ep.opError("receive", nd.RemoteError,
				fmt.Sprintf("the sender's memory, %s: %v", ep.describeAccess(&ep.source, part), remoteFault), ""))
			return false
		}
		mode.Advance(&ep.source, part)
		at += part
		n -= part
	}
	return true
}

// failTooLong fails the receive and the connection: a message of total bytes exceeds the receive.
func (ep *queuePair) failTooLong(r *receive, total uint64) {
	ep.completeReceive(r, nd.BufferOverflow, 0, 0)
	ep.failServing(nd.RemoteError, ep.opError("receive", nd.BufferOverflow, fmt.Sprintf(tooLong, total, r.capacity), "post larger receives"))
}

// failServing fails the connection because of the entry being served. status is that of the peer's
// request.
func (ep *queuePair) failServing(status nd.Status, cause error) {
	in := ep.conn.in
	in.Release()
	number := in.Consumed()
	in.Advance() // not released: else the peer would complete the request with success
	ep.failEntry(number, status, cause)
}

// failEntry fails the connection because of a ring entry of the peer, which is not released. status is that of the
// peer's request.
func (ep *queuePair) failEntry(number uint64, status nd.Status, cause error) {
	ep.counters.accessRefused++
	ep.localQP.FaultStatus.Store(uint32(status))
	failpoint.Reach(failpoint.FaultStatusStored)
	ep.localQP.Fault.Store(number + 1) // ORDER fault: before the abort, whose reader loads it
	failpoint.Reach(failpoint.FaultStored)
	ep.conn.inboundFailed = true                                // deliverRemaining delivers no later message
	ep.provider.member.RecordLostPeer(ep.conn.record.Peer.ID()) // for the launcher's report of how the job ended
	ep.terminate(cause)
}

// checkInvalidate checks the token that a message asks to invalidate.
func (ep *queuePair) checkInvalidate(entry *wire.Entry, r *receive) bool {
	if ep.adapter.domain.Find(entry.Token, window.Remote, ep.number) != nil {
		return true
	}
	ep.completeReceive(r, nd.InvalidDeviceRequest, 0, 0)
	ep.failServing(nd.RemoteError, ep.opError("receive", nd.InvalidDeviceRequest, fmt.Sprintf("the peer asked to invalidate %v, which names no bound window or registered region of this endpoint", entry.Token), ""))
	return false
}

// finishSend invalidates the window or region that the message names, if any, and then completes the
// receive. When the program takes the result, no copy uses the token.
func (ep *queuePair) finishSend(entry *wire.Entry, r *receive, total uint64) outcome {
	if ep.resp.invalidating == nil && ep.hasFailedReceive(entry, r, total) {
		return executed
	}
	if entry.Flags&wire.FlagInvalidate == 0 {
		ep.completeReceive(r, nd.Success, total, 0)
		return executed
	}
	if ep.resp.invalidating == nil {
		object := ep.adapter.domain.Find(entry.Token, window.Remote, ep.number)
		done, ok := false, object != nil
		if ok {
			ep.settleArrived() // a wrong one fails the connection when it completes
			ep.resp.invalidatedToken, done, ok = object.Invalidate(ep.number)
		}
		if !ok { // a local Invalidate came first, or windows use the region
			ep.completeReceive(r, nd.InvalidDeviceRequest, 0, 0)
			ep.failServing(nd.RemoteError, ep.opError("receive", nd.InvalidDeviceRequest, fmt.Sprintf("%v was invalidated while the message arrived, or windows are bound to its region", entry.Token), ""))
			return executed
		}
		ep.bound.Remove(object)
		if !done {
			ep.resp.invalidating = object
			ep.provider.wakeProgress() // no ring announces the end of a drain
		}
	}
	if object := ep.resp.invalidating; object != nil && !object.EndInvalidation() {
		return blocked
	}
	ep.resp.invalidating = nil
	ep.completeReceive(r, nd.Success, total, ep.resp.invalidatedToken)
	return executed
}

// serveSendFailed completes a receive that the sender could not fill.
func (ep *queuePair) serveSendFailed(entry *wire.Entry, r *receive) outcome {
	status, detail := entry.ReceiveStatus(), fmt.Sprintf(tooLong, entry.RequestLength, r.capacity)
	if status == nd.AccessViolation {
		detail = fmt.Sprintf("a message of %d bytes for %s", entry.RequestLength, ep.describeReceive(r))
	}
	ep.counters.accessRefused++
	ep.completeReceive(r, status, 0, 0)
	ep.conn.in.Advance()
	ep.terminate(ep.opError("receive", status, detail+": the peer ("+ep.conn.peerName+") could not deliver it", "post receives that are large enough, with valid tokens"))
	return executed
}

// serveSendFragment copies a fragment of a message from the sender's memory.
func (ep *queuePair) serveSendFragment(entry *wire.Entry, r *receive, budget *uint64) outcome {
	if entry.Flags&wire.FlagFirst != 0 && ep.resp.fragmentCopied == 0 && ep.resp.invalidating == nil {
		ep.resp.messageReceived = 0
	}
	number := ep.conn.in.Consumed()
	if entry.Flags&wire.FlagFirst == 0 && number != ep.resp.nextFragment { // another message may have taken r
		ep.terminate(ep.protocolError("a fragment that continues no message"))
		return executed
	}
	if entry.FragmentLength > r.capacity-min(ep.resp.messageReceived, r.capacity)+ep.resp.fragmentCopied {
		ep.terminate(ep.protocolError("more than the announced %d bytes of a message", entry.RequestLength))
		return executed
	}
	for ep.resp.fragmentCopied < entry.FragmentLength {
		if *budget == 0 {
			return partial
		}
		n := min(entry.FragmentLength-ep.resp.fragmentCopied, *budget)
		ep.source = window.Operand{Token: entry.SenderToken, Rights: window.Local | window.Read, Address: entry.SenderAddress + ep.resp.fragmentCopied, Far: &ep.conn.far, BindCheck: &ep.resp.remoteBindCheck}
		if !ep.fillReceive(r, ep.resp.messageReceived, n) {
			return ep.stoppedOutcome()
		}
		ep.resp.messageReceived += n
		ep.resp.fragmentCopied += n
		*budget -= n
	}
	if entry.Flags&wire.FlagLast == 0 {
		ep.resp.nextFragment = number + 1
		return executed
	}
	return ep.finishSend(entry, r, ep.resp.messageReceived)
}

// serveFragment runs a fragment of the peer's Read or Write on local memory, or a Write whose data is in the entry.
func (ep *queuePair) serveFragment(entry *wire.Entry, budget *uint64) outcome {
	// right is what the token of local memory must grant, remoteRight what the peer's token must grant.
	local, remote, right, remoteRight := &ep.sink, &ep.source, window.Write, window.Read
	if entry.Kind == wire.ReadFragment {
		local, remote, right, remoteRight = &ep.source, &ep.sink, window.Read, window.Write
	}
	*local = window.Operand{Token: entry.Token, Rights: window.Remote | right, Address: entry.ReceiverAddress, Endpoint: ep.number, BindCheck: &ep.resp.localBindCheck}
	// The whole range of the request is checked before its first byte is copied.
	whole := entry.FragmentLength
	if entry.Flags&wire.FlagFirst != 0 {
		whole = max(entry.FragmentLength, entry.RequestLength)
	}
	if ep.resp.fragmentCopied == 0 && whole > 0 && (whole > min(entry.FragmentLength, *budget) || ep.hook != nil) {
		if f := ep.guard.Check(local, whole); f != window.NoFault {
			ep.failAccess(entry, local, whole, f)
			return executed
		}
	}
	for ep.resp.fragmentCopied < entry.FragmentLength {
		if *budget == 0 {
			return partial
		}
		at, n := ep.resp.fragmentCopied, entry.FragmentLength-ep.resp.fragmentCopied
		if ep.hook != nil {
			if at, n = ep.hook.ServedBytes(entry, at, entry.FragmentLength); n == 0 {
				return blocked
			}
		}
		n = min(n, *budget)
		local.Address = entry.ReceiverAddress + at
		if entry.Kind == wire.WriteInEntry {
			*remote = window.Operand{Mem: entry.Payload[at:][:n]}
		} else {
			*remote = window.Operand{Token: entry.SenderToken, Rights: window.Local | remoteRight, Address: entry.SenderAddress + at, Far: &ep.conn.far, BindCheck: &ep.resp.remoteBindCheck}
		}
		matches, sinkFault, sourceFault := ep.copyServed(entry, n)
		switch f := sinkFault | sourceFault; f {
		case window.NoFault:
			if !matches {
				return executed
			}
		case window.FaultDisconnected:
			return blocked
		default:
			bad := &ep.sink
			if sinkFault == window.NoFault {
				bad = &ep.source
			}
			ep.failAccess(entry, bad, n, f)
			return executed
		}
		ep.resp.fragmentCopied += n
		*budget -= n
		if ep.hook != nil {
			ep.hook.CopiedServed(entry, n)
		}
	}
	return executed
}

// failAccess fails a one-sided request of the peer, and with it the connection. It makes no
// completion at this side.
func (ep *queuePair) failAccess(entry *wire.Entry, refused *window.Operand, n uint64, f window.Fault) {
	ep.failServing(nd.AccessViolation, ep.opError("serve", nd.ConnectionAborted,
		fmt.Sprintf("the peer (%s) was refused a %s of %s: %v", ep.conn.peerName, readOrWrite(entry.Kind), ep.describeAccess(refused, n), f), ""))
}
