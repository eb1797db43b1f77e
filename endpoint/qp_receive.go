package endpoint

// TWIN c/src/endpoint/qp_receive.c.

import (
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// Receive posts the buffers of sge for one message.
func (ep *queuePair) Receive(reqCtx uint64, sge nd.SGL) error {
	if len(sge.More) != 0 || uint64(len(sge.First.Buffer))-1 >= maxTransfer || ep.srq != nil || ep.forwards() { // also for length 0
		return ep.postReceive(reqCtx, &sge)
	}
	if !ep.mu.LockBiased() { // Lock does the same, with one more call
		ep.mu.Lock()
	}
	// privileged is 0 while the program has no privileged token. Only the slow path resolves that token.
	if ep.stateWord.Load() == uint32(cm.QPConnected) && ep.hasReceiveSlot() && ep.adapter.privileged.Load() == 0 {
		ep.postReceiveFast(reqCtx, &sge.First)
		ep.mu.Unlock()
		return nil
	}
	ep.mu.Unlock()
	return ep.postReceive(reqCtx, &sge)
}

// hasReceiveSlot reports whether another receive may be outstanding. A poll that takes the result of a
// receive frees its slot.
func (ep *queuePair) hasReceiveSlot() bool {
	return ep.rq.posted-ep.rq.slots.Freed.Load() < ep.rq.depth
}

// postReceive is Receive on the slow path.
func (ep *queuePair) postReceive(reqCtx uint64, sge *nd.SGL) error {
	const op = "receive"
	if ep.srq != nil {
		return ep.opError(op, nd.InvalidDeviceRequest, "the endpoint takes its receives from a shared receive queue", "post to that queue")
	}
	if ep.forwards() {
		return ep.opError(op, nd.InvalidDeviceRequest, "the endpoint is a relay's, which has no receives", "take messages with relayhook.Endpoint")
	}
	if sge.Len() > ep.limits.receiveSGE {
		return ep.opError(op, nd.DataOverrun, fmt.Sprintf("%d scatter/gather entries, granted %d", sge.Len(), ep.limits.receiveSGE), "raise MaxReceiveSGE or post fewer entries")
	}
	if err := ep.checkLength(op, sge); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.hasOverrun() {
		return ep.overrunError(op)
	}
	if !ep.hasReceiveSlot() {
		ep.counters.postsRefused++
		return ep.errReceiveFull
	}
	r := ep.receiveAt(ep.rq.posted)
	r.set(reqCtx, sge)
	ep.adapter.resolvePrivileged(r.sges()) // entries with the privileged token get that of their region
	if ep.hook != nil {
		if err := ep.hook.PostReceive(r.capacity); err != nil {
			return err
		}
	}
	ep.rq.posted++
	switch ep.state() {
	case cm.QPFailed, cm.QPDisconnecting, cm.QPClosed:
		if ep.life.teardown != usesPeerState { // else leavePeerState cancels it after the receives before it
			ep.cancelReceives()
		}
	default:
		ep.publishReceive(r)
	}
	return nil
}

// postReceiveFast posts a receive of one entry. It skips stores that would not change the slot: the
// previous receive in it usually had the same size.
func (ep *queuePair) postReceiveFast(reqCtx uint64, sge *nd.SGE) {
	address, n, token := shm.AddressOf(sge.Buffer), uint64(len(sge.Buffer)), sge.Token
	r := ep.receiveAt(ep.rq.posted)
	r.context = reqCtx
	if r.capacity != n {
		r.capacity = n
	}
	if !r.isSingle {
		r.isSingle = true
	}
	e := wire.SGE{Address: address, Length: uint32(n), Token: token}
	r.single[0] = e
	ep.rq.posted++
	d := ep.descriptor()
	if d[0] != n { // capacity in bytes
		d[0] = n
	}
	if d[1] != 1 { // number of scatter/gather entries
		d[1] = 1
	}
	d[2], d[3] = address, e.LengthAndToken() // not of r: a load of what two stores have just written waits for all stores before them
	room := min(n, wire.MaxSendInEntry)
	if !ep.guard.CanDeliverSend(address, token, n) {
		room = 0
	}
	ep.publishPosted(room)
}

// publishReceive describes the receive posted last in shared memory, and publishes it to the peer.
func (ep *queuePair) publishReceive(r *receive) {
	d, entries := ep.descriptor(), r.sges()
	d[0], d[1] = r.capacity, uint64(len(entries)) // see descriptorHeader
	room := min(r.capacity, wire.MaxSendInEntry)
	for i, e := range entries {
		d[2+2*i], d[3+2*i] = e.Address, e.LengthAndToken()
		if !ep.canFill(e) {
			room = 0
		}
	}
	ep.publishPosted(room)
}

// descriptor returns the shared descriptor of the receive posted last. Plain stores suffice: the
// peer reads a descriptor only after it has loaded Posted, and the descriptor is reused only when
// its receive has been delivered.
func (ep *queuePair) descriptor() []uint64 {
	at := ((ep.rq.posted - 1) & uint64(len(ep.rq.receives)-1)) * ep.rq.stride
	return ep.rq.descriptors[at : at+ep.rq.stride]
}

// publishPosted publishes the receive posted last to the peer. That receive can certainly hold a
// message of room bytes, if its data is in a ring entry.
func (ep *queuePair) publishPosted(room uint64) {
	if room < wire.MaxSendInEntry {
		ep.publishSmallReceive(room)
	}
	c := ep.conn
	if c == nil || !c.attached { // not connected yet: the peer reads Posted when it is
		ep.localQP.Posted.Swap(ep.rq.posted) // ORDER receive-posted: pairs with the load in connection.hasReceive
		return
	}
	if c.peerFences {
		asym.StoreRelease(&ep.localQP.Posted, ep.rq.posted) // ORDER receive-posted: pairs with the load in connection.hasReceive
	} else {
		ep.localQP.Posted.Swap(ep.rq.posted) // ORDER receive-posted: pairs with the load in connection.hasReceive
	}
	failpoint.Reach(failpoint.ReceivePosted)
	if c.peerQP.NeedWakeup.Load() != 0 { // ORDER need-wakeup: after Posted; pairs with the swap and the barrier in requestWakeup
		c.record.Peer.Wake()
	}
}

// publishSmallReceive announces that the receive posted last may be too small for a message of more than room bytes.
// The peer completes a longer Send only when this side has received it.
func (ep *queuePair) publishSmallReceive(room uint64) {
	if int64(ep.smallReceives.end-ep.rq.completed) > 0 { // an earlier small receive is not complete
		room = min(room, ep.smallReceives.capacity)
	}
	ep.smallReceives.end, ep.smallReceives.capacity = ep.rq.posted, room
	asym.StoreRelease(&ep.localQP.SmallReceiveBytes, room) // ORDER receive-room: before SmallReceivesEnd; pairs with the load in connection.hasReceive
	failpoint.Reach(failpoint.RoomStored)
	asym.StoreRelease(&ep.localQP.SmallReceivesEnd, ep.smallReceives.end) // ORDER receive-limit: before Posted; pairs with the load in connection.hasReceive
	failpoint.Reach(failpoint.LimitStored)
}

// canFill reports whether the token of e allows a message to be stored in e at this moment.
func (ep *queuePair) canFill(e wire.SGE) bool {
	ep.sink = window.Operand{Token: e.Token, Rights: window.Local | window.Write, Address: e.Address}
	return ep.guard.Check(&ep.sink, uint64(e.Length)) == window.NoFault
}
