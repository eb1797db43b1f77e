package endpoint

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// connState is the state word of a record. It moves by compare-and-swap only,
// so that of two sides that want different things one wins.
//
//	requested -> accepted     by the passive side (Accept)
//	          -> refused      by the passive side (no listener, backlog, Reject)
//	accepted  -> established  by the active side (CompleteConnect)
//	requested, accepted -> withdrawn  by the active side (cancel, Reject, Close)
//	accepted, established -> aborted  by either side
type connState uint32

const (
	connRequested connState = 1 + iota
	connAccepted
	connEstablished
	connRefused
	connWithdrawn
	connAborted
)

const (
	active  = 0 // index of the side that called Connect
	passive = 1
)

// descriptor of a posted receive in shared memory: a word for its capacity in
// bytes, a word for the number of its entries, then for each entry its address
// and, in one word, its length (bits 0..31) and its token (32..63).
const (
	descriptorHeader = 16
	descriptorEntry  = 16
)

// connection is what one side keeps of a connection: the checked, private copy
// of where everything lies. What join sets, and what follows from it, is guarded
// by the lock of its endpoint.
type connection struct {
	// What small requests and messages need stands first, and close together; see Endpoint.

	out    shm.Producer
	ref    window.Peer
	credit credit // of our messages
	peer   *shm.Peer
	far    *half
	in     *shm.Consumer
	shared bool // the peer's receives come from a shared queue, and only the peer knows of them

	provider *Provider
	record   *record
	offset   shm.Offset // of the record
	side     int
	endpoint atomic.Pointer[Endpoint] // nil until Connect or Accept names one

	joined bool
	name   string // of the far endpoint, for messages
	hazard *window.Hazard

	// Descriptors of the peer's receives.
	words  []uint64
	stride uint64
	count  uint64

	reads      uint64           // Reads handed over so far
	readUntil  [maxReads]uint64 // of the latest of them: the number after the last message
	theirFault fault            // see fault
	refused    bool             // a message of the peer failed here: what follows it does not count
	mu         sync.Mutex       // held while the record is written, or lost is set
	lost       atomic.Bool
	detached   bool
	finished   atomic.Bool // the connection and its resources are unused
}

func (c *connection) state() connState {
	if c.provider.over.Load() {
		return connAborted
	}
	s := connState(c.record.state.Load()) // ORDER conn-state: pairs with the swap in move
	if c.finished.Load() {                // ORDER finished: after the load of the state; pairs with the store in finish
		return connAborted // the record may be other memory by now, and s what lies there
	}
	return s
}

// move changes the state if it is one of from.
func (c *connection) move(to connState, from ...connState) (moved bool) {
	c.write(func() {
		for _, f := range from {
			moved = moved || c.record.state.CompareAndSwap(uint32(f), uint32(to)) // ORDER conn-state: pairs with the load in state, at the other side
		}
	})
	if moved {
		c.peer.Ring()
	}
	return moved
}

// write runs f, which writes to the record. Once a death has been handled it
// does not: the record may have been the dead process's, and somebody else's since.
func (c *connection) write(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost.Load() && !c.finished.Load() {
		f()
	}
}

// track adds the connection to those that a death may concern.
func (p *Provider) track(c *connection) {
	p.mu.Lock()
	p.conns[c] = struct{}{}
	if c.side == passive {
		p.records[recordName{c.peer.ID(), c.offset}] = struct{}{}
	}
	p.mu.Unlock()
	p.watch(c.peer)
	if c.peer.Gone() || p.member.MarkedDead() {
		c.peerDied()
	}
}

// peerDied notes that the other process executes nothing any more.
func (c *connection) peerDied() {
	c.mu.Lock()
	c.lost.Store(true)
	c.mu.Unlock()
	if ep := c.endpoint.Load(); ep != nil {
		ep.mu.Lock()
		ep.bereaved()
		ep.mu.Unlock()
	}
}

// gone tells whether the other process is dead.
func (c *connection) gone() bool { return c.lost.Load() || c.peer.Gone() }

// join checks the far half and makes the rings, the hazards and the view of
// the peer's receives. It must happen before the connection is established,
// because from then on the peer may use our tokens.
func (c *connection) join(ep *Endpoint) error {
	arena := c.provider.arena
	other := 1 - c.side
	at, owner := shm.Offset(c.record.half[other]), window.Owner(c.record.owner[other])
	if !c.peer.Owns(at, halfSize) || shm.MemberID(owner>>ownerShift) != c.peer.ID() {
		return fmt.Errorf("a half at offset %#x, of adapter %#x, from %v: %w", uint64(at), uint64(owner), c.peer, shm.ErrDamaged)
	}
	far, err := shm.At[half](arena, at)
	if err != nil {
		return err
	}
	ring, slots := far.ring, far.ringSlots // read once; the copies are checked and used
	if err := c.seeReceives(far); err != nil {
		return err
	}
	if c.in, err = arena.NewConsumer(shm.Offset(ring), slots, &ep.half.consumed); err != nil {
		return err
	}
	if !c.peer.Owns(shm.Offset(ring), slots*shm.SlotSize) {
		return fmt.Errorf("the half of %v points at memory of others: %w", c.peer, shm.ErrDamaged)
	}
	out, err := arena.NewProducer(shm.Offset(ep.half.ring), ep.half.ringSlots, &far.consumed)
	if err != nil {
		return err
	}
	c.out = *out
	if far.barriers == 1 && asym.ForAll() {
		c.out.Relax()
	}
	c.far = far
	c.ref = window.Peer{Owner: owner, Endpoint: far.endpoint,
		Link: window.Link{State: &c.record.state, Open: uint32(connEstablished), Left: &c.record.left[other]}}
	c.name = fmt.Sprintf("endpoint %d of %v", far.endpoint, c.peer)
	c.hazard = window.NewHazard(&far.hazard, c.peer)
	ep.adapter.space.Watch(c.hazard)
	c.joined = true
	ep.inbound.Store(c.in)
	return nil
}

// seeReceives checks where the peer's receives lie, unless they are a shared
// queue's.
func (c *connection) seeReceives(far *half) (err error) {
	receives, count, stride, shared := far.receives, far.receiveCount, far.receiveStride, far.sharedReceive // read once
	switch {
	case shared == 1:
		c.shared = true
		return nil
	case shared != 0 || count == 0 || count > maxQueueDepth || count&(count-1) != 0 || stride%64 != 0 || stride < 64 || stride > 4096:
		return fmt.Errorf("%d receives of %d bytes, shared %d, in the half of %v: %w", count, stride, shared, c.peer, shm.ErrDamaged)
	}
	if c.words, err = shm.Slice[uint64](c.provider.arena, shm.Offset(receives), count*stride/8); err != nil {
		return err
	}
	if !c.peer.Owns(shm.Offset(receives), count*stride) {
		return fmt.Errorf("the half of %v shows receives in memory of others: %w", c.peer, shm.ErrDamaged)
	}
	c.count, c.stride = count, stride/8
	return nil
}

// hasReceive reports whether the peer has a posted receive for our next message.
func (c *connection) hasReceive() bool {
	pushed := c.out.Pushed()
	if !c.credit.spent(pushed) {
		return true
	}
	posted := c.far.posted.Load() // ORDER receive-posted: pairs with the stores in Endpoint.show
	tight := c.far.tight.Load()   // ORDER receive-tight: after posted; pairs with the store in Endpoint.tighten
	room := c.far.room.Load()     // ORDER receive-room: after tight; pairs with the store in Endpoint.tighten
	return c.credit.refresh(pushed, posted, c.count, tight, room)
}

// grant finds out how many small messages may take the fast path, and how long they may
// be. It reports whether any may.
func (c *connection) grant() bool {
	return !c.shared && c.hasReceive() && c.credit.grant(c.out.Pushed(), c.out.Room())
}

// descriptor copies the peer's oldest receive that no message has taken.
func (c *connection) descriptor(to *[maxSGE]entry) (entries []entry, capacity uint64) {
	at := (c.credit.taken(c.out.Pushed()) & (c.count - 1)) * c.stride
	// Plain loads: its owner wrote them before posted, which hasReceive has loaded,
	// and writes them again only when we have taken this receive.
	d := c.words[at : at+c.stride]
	capacity = d[0]
	n := min(d[1], maxSGE, (c.stride-2)/2)
	for i := range n {
		address, word := d[2+2*i], d[3+2*i]
		to[i] = entry{address, uint32(word), nd.Token(word >> 32)}
	}
	return to[:n], capacity
}

// pending tells whether messages are under way whose outcome decides about
// requests, or whose data the peer has yet to place; as long as there are,
// later requests must not overtake them.
func (c *connection) pending() bool {
	last := c.credit.lastUnsettled(c.out.Pushed())
	return last != 0 && int64(last-c.out.Consumed()) > 0
}

// awaiting reports whether the peer has yet to run a request that it was handed.
func (c *connection) awaiting() bool { return int64(c.credit.awaited-c.out.Consumed()) > 0 }

// reading tells whether the peer has yet to bring the data of n Reads or more;
// n is 1 to maxReads.
func (c *connection) reading(n uint64) bool {
	return c.reads >= n && int64(c.readUntil[(c.reads-n)%maxReads]-c.out.Consumed()) > 0
}

// detach ends our use of the other side's memory, for ever.
func (c *connection) detach() {
	if c.detached {
		return
	}
	c.detached = true
	if !c.provider.sleep.begin() { // finish uses the arena
		return // the member's departure lets go of everything
	}
	defer c.provider.sleep.end()
	c.write(func() { c.record.detached[c.side].Store(leftHalf) }) // ORDER detached: pairs with the load in finish
	c.peer.Ring()
	c.provider.later(c.finish)
}

// finish frees what the connection holds once the other side has detached too.
// The record goes last: it is the active side's, and the passive side reads in
// it whether that one has detached, so the passive side says when it has.
func (c *connection) finish() bool {
	if c.finished.Load() {
		return true
	}
	theirs := c.record.detached[1-c.side].Load() // ORDER detached: pairs with the stores in detach and below
	if !c.gone() && (theirs == 0 || c.side == active && theirs != leftRecord) {
		return false
	}
	if c.hazard != nil {
		c.endpoint.Load().adapter.space.Unwatch(c.hazard)
	}
	p := c.provider
	// In one step, for those who ask whether we know the record, and for letGo.
	p.mu.Lock()
	delete(p.conns, c)
	if c.side == passive {
		delete(p.records, recordName{c.peer.ID(), c.offset})
	}
	c.mu.Lock()            // for both stores: a write between them could come after the record is freed
	c.finished.Store(true) // ORDER finished: before detached, which lets the record be freed; pairs with the load in state
	if c.side == passive && !c.lost.Load() {
		c.record.detached[passive].Store(leftRecord) // ORDER detached: pairs with the load above
	}
	c.mu.Unlock()
	p.mu.Unlock()
	c.peer.Ring()
	if c.side == active {
		// The record is ours and allocated; see MemoryRegion for what Free may report.
		_ = p.member.Heap().Free(c.offset)
	}
	return true
}
