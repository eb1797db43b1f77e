package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
)

// A ring carries messages of one 64-byte line from one producer to one
// consumer. A slot holds its payload and its sequence number together, so
// that a message crosses between cores as one line.
//
//	slot   seq (8 bytes) + data (56 bytes); seq is stored last and is the
//	       number of the message, from 0, plus one
//	head   a word elsewhere, written by the consumer only: slots consumed
//
// The slots belong to the producer's memory, head to the consumer's.
const (
	SlotSize  = 64
	SlotWords = 7 // 64-bit words of payload
)

// Slot is the payload of one message.
type Slot [SlotWords]uint64

// Producer is the sending side of a ring. Not safe for concurrent use.
type Producer struct {
	slots []slotWords
	head  *atomic.Uint64
	next  uint64 // index of the next slot
	freed uint64 // our copy of head

	relaxed bool // see Relax
}

// Consumer is the receiving side of a ring. Not safe for concurrent use, but for
// Waiting.
type Consumer struct {
	slots    []slotWords
	head     *atomic.Uint64
	next     atomic.Uint64
	released uint64 // what we stored in head last; a peer may scribble over head itself
}

// NewProducer makes the sending side over n slots at off, a power of two, and
// the consumer's head word. The slots must be zero.
func (a *Arena) NewProducer(off Offset, n uint64, head *atomic.Uint64) (*Producer, error) {
	slots, err := a.checkedSlots(off, n)
	if err != nil {
		return nil, err
	}
	return &Producer{slots: slots, head: head}, nil
}

// NewConsumer makes the receiving side. off and n come from a peer and are
// checked.
func (a *Arena) NewConsumer(off Offset, n uint64, head *atomic.Uint64) (*Consumer, error) {
	slots, err := a.checkedSlots(off, n)
	if err != nil {
		return nil, err
	}
	return &Consumer{slots: slots, head: head}, nil
}

// maxSlots bounds a ring, so that n*SlotSize cannot overflow.
const maxSlots = 1 << 20

func (a *Arena) checkedSlots(off Offset, n uint64) ([]slotWords, error) {
	if !isPowerOfTwo(n) || n > maxSlots {
		return nil, fmt.Errorf("shm: ring of %d slots: want a power of two, at most %d: %w", n, maxSlots, ErrDamaged)
	}
	if err := a.check(off, n*SlotSize, SlotSize); err != nil {
		return nil, err
	}
	return a.ringSlots(off, n), nil
}

// Push publishes a message; false means that the ring is full. On success
// index is the number of the message, from 0.
func (p *Producer) Push(s *Slot) (index uint64, ok bool) {
	if p.Room() == 0 {
		return 0, false
	}
	*p.Next() = *s // plain: the place is ours until it is published
	p.Publish()
	p.ClaimAhead()
	return p.next - 1, true
}

// Next returns the place of the next message, to be filled in and published.
// The caller has seen that there is room.
func (p *Producer) Next() *Slot { return &p.slots[p.next&uint64(len(p.slots)-1)].data }

// Publish publishes what was put into the place that Next returned last. Its number
// is one less than what Pushed returns from now on.
func (p *Producer) Publish() {
	slot := &p.slots[p.next&uint64(len(p.slots)-1)]
	handOver()
	p.next++
	if p.relaxed {
		asym.StoreRelease(&slot.seq, p.next) // ORDER slot-full: pairs with the load in Front
	} else {
		slot.seq.Store(p.next) // ORDER slot-full: pairs with the load in Front
	}
}

// ClaimAhead asks for slots that will be filled soon. It is for after a Publish.
//
// The consumer has read each of them since it was written last, and to take its copy
// away costs as much as any line that moves. A core can do several of these at once, but
// of the stores that it has yet to carry out it knows no more than one message's or two.
func (p *Producer) ClaimAhead() {
	if claims && p.next%claimedAtOnce == 0 {
		p.claimAhead()
	}
}

func (p *Producer) claimAhead() {
	if p.next-p.freed+claimedAhead+claimedAtOnce >= uint64(len(p.slots)) {
		return // they may hold messages that have not been read
	}
	for i := range claimedAtOnce {
		slot := &p.slots[(p.next+claimedAhead+i)&uint64(len(p.slots)-1)]
		if claimsByStore {
			slot.data[SlotWords-1] = 0
		} else {
			claim(&slot.seq)
		}
	}
}

// claimedAhead is how many slots beyond the next one ClaimAhead begins.
const claimedAhead = 8

// Relax makes Publish no memory barrier: what the producer loads afterwards may
// be older than the message. It is right when all who store something and then
// look at the ring for the last time, before they sleep or end the connection,
// call [asym.HeavyGlobal] in between, and that reaches the producer.
func (p *Producer) Relax() { p.relaxed = true }

// Relaxed reports whether Relax was called.
func (p *Producer) Relaxed() bool { return p.relaxed }

// Room returns how many messages can be pushed at least.
func (p *Producer) Room() uint64 {
	size := uint64(len(p.slots))
	if room := size - (p.next - p.freed); room != 0 {
		return room
	}
	p.Consumed()
	return size - (p.next - p.freed)
}

// Consumed returns how many messages the consumer has done with. A consumer
// that claims more than were pushed, or takes its word back, is not believed.
func (p *Producer) Consumed() uint64 {
	head := p.head.Load() // ORDER slot-free: pairs with the store in Release
	if head-p.freed <= p.next-p.freed {
		p.freed = head
		takeOver()
	}
	return p.freed
}

// Pushed returns how many messages were pushed so far.
func (p *Producer) Pushed() uint64 { return p.next }

// Peek copies the oldest message into s without consuming it; false means
// that there is none.
func (c *Consumer) Peek(s *Slot) bool {
	front := c.Front()
	if front == nil {
		return false
	}
	*s = *front // a copy: the peer may scribble over the slot while we look
	return true
}

// Front returns the oldest message where it lies, nil if there is none. The peer
// may scribble over it: what is looked at twice is to be copied first.
func (c *Consumer) Front() *Slot {
	next := c.next.Load()
	slot := &c.slots[next&uint64(len(c.slots)-1)]
	if slot.seq.Load() != next+1 { // ORDER slot-full: pairs with the store in Publish
		return nil
	}
	takeOver()
	return &slot.data
}

// Waiting tells whether there is a message, roughly: it may miss what happens
// at the same moment. Anybody may ask.
func (c *Consumer) Waiting() bool {
	next := c.next.Load()
	return c.slots[next&uint64(len(c.slots)-1)].seq.Load() == next+1
}

// Advance consumes the message that Peek returned, and returns its number.
// The producer learns of it with the next Release.
func (c *Consumer) Advance() (index uint64) {
	index = c.next.Load()
	asym.StoreRelease(&c.next, index+1)
	return index
}

// FetchAhead asks for a slot that may be filled. consumed is the number that Advance
// has returned.
func (c *Consumer) FetchAhead(consumed uint64) {
	if claimsByStore {
		return // it would take slots away that the producer has claimed
	}
	fetch(&c.slots[(consumed+fetchedAhead)&uint64(len(c.slots)-1)].seq)
}

// fetchedAhead is how many slots beyond the one that it has consumed FetchAhead asks for. If
// messages wait there, they come while those before them are looked at. It is more than
// claimedAhead, so that a consumer which keeps up does not take lines away that the producer
// has asked for.
const fetchedAhead = 12

// Release tells the producer that all messages so far have been consumed.
func (c *Consumer) Release() {
	handOver()
	c.released = c.next.Load()
	asym.StoreRelease(c.head, c.released) // ORDER slot-free: pairs with the load in Consumed
}

// ReleaseFirst is Release when the caller is about to look whether the producer
// waits for that: what it loads then is no older than the release.
func (c *Consumer) ReleaseFirst() {
	handOver()
	c.released = c.next.Load()
	c.head.Swap(c.released) // ORDER slot-free: pairs with the load in Consumed
}

// Size returns the number of slots.
func (c *Consumer) Size() uint64 { return uint64(len(c.slots)) }

// Next returns the number of the message that Peek will look at.
func (c *Consumer) Next() uint64 { return c.next.Load() }

// Unreleased returns how many consumed messages the producer does not know of.
func (c *Consumer) Unreleased() uint64 { return c.next.Load() - c.released }
