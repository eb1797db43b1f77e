package endpoint

// TWIN c/src/endpoint/cm_connection.c.

import (
	"errors"
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

var errPeerDied = errors.New("the peer has died or left")

// attach checks the peer's shared queue-pair state and makes the rings, the hazards and the view
// of the peer's receives. It is called before the connection is established, because from then
// on the peer may use this side's tokens.
func (c *connection) attach(ep *queuePair) error {
	if c.record.IsPeerDead() { // its memory may be reused; a death that is handled later finds the attached endpoint
		return fmt.Errorf("attach to %v: %w", c.record.Peer, errPeerDied)
	}
	arena := c.provider.arena
	other := 1 - c.record.Side
	at, owner := shm.Offset(c.record.Shared.QP[other]), c.record.Shared.Adapter[other]
	if !c.record.Peer.Owns(at, wire.SharedQPSize) || shm.MemberID(owner>>ownerShift) != c.record.Peer.ID() {
		return fmt.Errorf("queue-pair state at offset %#x, of adapter %#x, is not memory of %v: %w", uint64(at), uint64(owner), c.record.Peer, shm.ErrDamaged)
	}
	peerQP, err := shm.At[wire.SharedQP](arena, at)
	if err != nil {
		return err
	}
	if err := c.attachReceives(peerQP); err != nil {
		return err
	}
	c.peerCopies = peerQP.ResponderCopies != 0
	c.peerExtended = peerQP.Extended == 1
	if err := c.attachRing(ep, peerQP); err != nil {
		return err
	}
	c.peerFences = peerQP.Membarrier == 1 && asym.HasHeavyGlobal()
	out, err := ring.NewProducer(ep.outboundSlots, &peerQP.Released, !c.peerFences)
	if err != nil {
		return err
	}
	c.out = *out
	c.peerQP = peerQP
	c.far = window.FarEnd{Adapter: owner, Endpoint: peerQP.Endpoint,
		State: &c.record.Shared.State, Established: uint32(cm.ConnEstablished), Disconnected: &c.record.Shared.Disconnected[other]}
	c.peerName = fmt.Sprintf("endpoint %d of %v", peerQP.Endpoint, c.record.Peer)
	if c.remote.IsValid() {
		c.peerName = c.nameOfProcess()
	}
	c.hazard = &peerQP.Hazard
	ep.adapter.domain.AddHazard(c.hazard, c.record.Peer)
	c.attached = true
	ep.requesterCopies = !ep.mustPeerCopy()
	ep.inbound.Store(c.in)
	failpoint.Reach(failpoint.RequestAttached)
	return nil
}

// attachRing checks where the peer's ring is, and makes this side its consumer.
func (c *connection) attachRing(ep *queuePair, peerQP *wire.SharedQP) error {
	at, count := peerQP.Ring, peerQP.RingSlots // loaded once; the copies are checked and used
	slots, err := shm.Slice[ring.Slot](c.provider.arena, shm.Offset(at), count)
	if err != nil {
		return err
	}
	if !c.record.Peer.Owns(shm.Offset(at), count*ring.SlotSize) {
		return fmt.Errorf("the queue-pair state of %v refers to a ring in memory of another member: %w", c.record.Peer, shm.ErrDamaged)
	}
	if c.in, err = ring.NewConsumer(slots, &ep.localQP.Released); err != nil {
		return fmt.Errorf("the queue-pair state of %v: %w: %w", c.record.Peer, err, shm.ErrDamaged)
	}
	return nil
}

// attachReceives checks where the peer's receives are, unless they are in a shared queue.
func (c *connection) attachReceives(peerQP *wire.SharedQP) (err error) {
	receives, count, stride, shared := peerQP.Receives, peerQP.ReceiveCount, peerQP.ReceiveStride, peerQP.SharedReceive // loaded once
	switch {
	case shared == 1:
		c.peerHasSRQ = true
		return nil
	case shared != 0 || count == 0 || count > maxQueueDepth || count&(count-1) != 0 || stride%64 != 0 || stride < 64 || stride > 4096:
		return fmt.Errorf("%d receives of %d bytes, shared %d, in the queue-pair state of %v: %w", count, stride, shared, c.record.Peer, shm.ErrDamaged)
	}
	if c.descriptors, err = shm.Slice[uint64](c.provider.arena, shm.Offset(receives), count*stride/8); err != nil {
		return err
	}
	if !c.record.Peer.Owns(shm.Offset(receives), count*stride) {
		return fmt.Errorf("the queue-pair state of %v refers to receives in memory of another member: %w", c.record.Peer, shm.ErrDamaged)
	}
	c.receiveCount, c.stride = count, stride/8
	return nil
}
