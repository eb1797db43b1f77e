package endpoint

// TWIN c/src/endpoint/req_atomic.c.

import (
	"encoding/binary"
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// FetchAndAdd posts the addition of a number to 8 bytes of the peer's memory.
func (ep *queuePair) FetchAndAdd(reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, add uint64, flags nd.OpFlags) error {
	return ep.change("fetch and add", nd.RequestFetchAndAdd, reqCtx, old, remoteAddress, remoteToken, add, 0, flags)
}

// CompareAndSwap posts a store of swap to 8 bytes of the peer's memory that equal compare.
func (ep *queuePair) CompareAndSwap(reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, compare, swap uint64, flags nd.OpFlags) error {
	return ep.change("compare and swap", nd.RequestCompareAndSwap, reqCtx, old, remoteAddress, remoteToken, compare, swap, flags)
}

// Swap posts an exchange of 8 bytes of the peer's memory.
func (ep *queuePair) Swap(reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, value uint64, flags nd.OpFlags) error {
	return ep.change("swap", nd.RequestSwap, reqCtx, old, remoteAddress, remoteToken, value, 0, flags)
}

// change posts an atomic. It runs at once if a Read could.
func (ep *queuePair) change(op string, kind nd.RequestType, reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, operand, swap uint64, flags nd.OpFlags) error {
	if flags&^fastFlags == 0 && len(old.Buffer) == 8 && remoteAddress%8 == 0 {
		if !ep.mu.LockBiased() {
			ep.mu.Lock()
		}
		done := ep.requesterCopies && ep.canRunFast() && ep.conn.peerExtended && !ep.conn.copyWouldOvertake() && ep.req.readLimit > 0 &&
			ep.changeFast(kind, reqCtx, old, remoteAddress, remoteToken, operand, swap, flags)
		ep.mu.Unlock()
		if done {
			return nil
		}
	}
	return ep.submitOnError(ep.postChange(op, kind, reqCtx, old, remoteAddress, remoteToken, operand, swap, flags))
}

func (ep *queuePair) postChange(op string, kind nd.RequestType, reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, operand, swap uint64, flags nd.OpFlags) error {
	switch {
	case flags&^kind.AllowedFlags() != 0:
		return argument("flags", ep.opError(op, nd.InvalidParameter, "invalid flags "+flags.String(), "pass only flags that the call documents"))
	case len(old.Buffer) != 8:
		return ep.opError(op, nd.InvalidBufferSize, fmt.Sprintf("an entry of %d bytes, want 8", len(old.Buffer)), "pass an entry of 8 bytes for the old value")
	case remoteAddress%8 != 0:
		return argument("remoteAddress", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("remote address %#x is not a multiple of 8", remoteAddress), "align the numbers that atomics change"))
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, kind, flags, reqCtx)
	if err != nil {
		return err
	}
	if !r.PostedAfterEnd && !ep.conn.peerExtended {
		return ep.notExtended(op)
	}
	r.SGEs, r.Total = appendSGEs(r.SGEs, &nd.SGL{First: old})
	ep.adapter.resolvePrivileged(r.SGEs)
	r.RemoteAddress, r.RemoteToken, r.operand, r.swap = remoteAddress, remoteToken, operand, swap
	return ep.post(r)
}

// notExtended returns the error of a request that the peer does not understand.
func (ep *queuePair) notExtended(op string) error {
	return ep.opError(op, nd.NotSupported, fmt.Sprintf(noExtension, ep.conn.peerName), "see AdapterFlags of its adapter")
}

const noExtension = "the peer (%s) has no atomics and no immediate data"

// changeFast is executeAtomic for the fast path. It reports whether it has run the atomic.
func (ep *queuePair) changeFast(kind nd.RequestType, reqCtx uint64, to nd.SGE, remoteAddress uint64, remoteToken nd.Token, operand, swap uint64, flags nd.OpFlags) bool {
	at := shm.AddressOf(to.Buffer)
	if !ep.guard.CanDeliverSend(at, to.Token, 8) {
		return false
	}
	ep.sink = window.Operand{Token: remoteToken, Rights: window.Remote | window.Atomic, Address: remoteAddress, Far: &ep.conn.far}
	old, f := ep.guard.Change(&ep.sink, kind, operand, swap)
	if f != window.NoFault {
		return false // nothing has changed, unless the token was revoked: then the slow path finds that, too
	}
	if ep.deliverResult(at, to.Token, old) {
		if flags&nd.SilentSuccess != 0 {
			ep.succeedSilently(kind, 8)
		} else {
			ep.completeFast(kind, reqCtx, 8)
		}
		return true
	}
	// Another goroutine has deregistered the memory of the result: the slow path reports it.
	r := ep.requestAt(ep.sq.posted)
	r.reset(kind, flags, reqCtx)
	r.Number = ep.sq.posted
	r.SGEs, r.Total = append(r.SGEs, wire.SGE{Address: at, Length: 8, Token: to.Token}), 8
	r.hasChanged, r.old = true, old
	ep.enqueue(r)
	return true
}

// executeAtomic changes 8 bytes of the peer's memory, or lets the peer do so.
func (ep *queuePair) executeAtomic(r *request) outcome {
	switch {
	case !ep.conn.peerExtended: // a request of a relay; else the post has failed
		return ep.reject(r, nd.NotSupported, noExtension, ep.conn.peerName)
	case ep.req.readLimit == 0:
		return ep.reject(r, nd.InvalidDeviceRequest, noReads)
	case r.hasChanged:
		ep.storeResult(r, r.old)
		return executed
	case r.oldTo == nil:
		r.setOperand(&ep.sink, r.SGEs[0], window.Write)
		if f := ep.guard.Check(&ep.sink, 8); f != window.NoFault { // before the peer's memory changes
			return ep.rejectLocal(r, r.SGEs[0], f)
		}
	}
	if !r.ResponderCopies {
		r.ResponderCopies = ep.mustPeerCopy() || ep.conn.copyWouldOvertake()
	}
	if !r.ResponderCopies {
		ep.sink = window.Operand{Token: r.RemoteToken, Rights: window.Remote | window.Atomic, Address: r.RemoteAddress, Far: &ep.conn.far}
		switch old, f := ep.guard.Change(&ep.sink, r.Kind, r.operand, r.swap); f {
		case window.NoFault:
			ep.storeResult(r, old)
			return executed
		case window.FaultDisconnected:
			return blocked
		case window.FaultUnreachable:
			r.ResponderCopies = true
		default:
			return ep.rejectRemote(r, f)
		}
	}
	return ep.sendAtomic(r)
}

// sendAtomic sends an atomic to the peer, which changes its memory.
func (ep *queuePair) sendAtomic(r *request) outcome {
	c := ep.conn
	// C takes old values first (snd_take_results); here completions and settleArrived do.
	if c.hasReadsInFlight(uint64(ep.req.readLimit)) || c.atomicsSent-c.atomicsTaken == wire.Results {
		return ep.stall(r, stallOrder)
	}
	if !ep.hasFreeEntry() {
		return ep.stall(r, stallQueue)
	}
	r.needsAck, r.resultIndex = true, c.atomicsSent%wire.Results
	entry := wire.AtomicEntry(r.RemoteToken, r.RemoteAddress, r.Kind, r.operand, r.swap, int(r.resultIndex))
	ep.pushEntry(r, &entry, false)
	ep.counters.fragments++
	c.record.Peer.Wake()
	c.countRead(r.EndEntry)
	c.atomicsSent++
	return executed
}

// takeResults takes the old values of all atomics that the peer has executed, although requests before them may not be
// complete yet. It is called before a local token is revoked. Those that it takes are the oldest: it asks once what the peer has
// released. Otherwise the place of an old value that is still there could be given to the next atomic.
func (ep *queuePair) takeResults() {
	if ep.life.teardown != usesPeerState || ep.conn == nil || !ep.conn.awaitsResults() {
		return
	}
	released := ep.conn.out.LoadReleased()
	for number := ep.sq.completed; number != ep.req.next; number++ {
		if r := ep.requestAt(number); r.IsAtomic() && r.State == mode.Sent && int64(released-r.EndEntry) >= 0 {
			ep.takeResult(r)
		}
	}
}

// takeResult takes the old value of an atomic that the peer has executed, and finishes r.
func (ep *queuePair) takeResult(r *request) {
	old := ep.conn.peerQP.Results[r.resultIndex].Load() // ORDER result-stored: after the release of the entry; pairs with the store in serveAtomic
	ep.conn.atomicsTaken++
	ep.storeResult(r, old)
}

// storeResult stores the old value in the local entry, and finishes r.
func (ep *queuePair) storeResult(r *request, old uint64) {
	if r.oldTo != nil {
		*r.oldTo = old
		r.Finish(nd.Success)
		return
	}
	e := r.SGEs[0]
	if ep.deliverResult(e.Address, e.Token, old) {
		r.Finish(nd.Success)
		return
	}
	if ep.hasEnded() { // the value has arrived after tearDown has revoked the token
		r.Finish(nd.Canceled)
		return
	}
	r.setOperand(&ep.sink, e, window.Write)
	ep.rejectLocal(r, e, ep.guard.Check(&ep.sink, 8))
}

// deliverResult stores the old value in local memory. It reports false if the token does not allow that.
func (ep *queuePair) deliverResult(address uint64, token nd.Token, old uint64) bool {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], old)
	return ep.guard.DeliverSend(address, token, b[:])
}
