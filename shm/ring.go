package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
)

// A ring carries entries of one 64-byte line from one producer to one consumer. A slot holds an
// entry's payload and its sequence number together, so that an entry moves between cores as one
// line.
//
//	slot   seq (8 bytes) + data (56 bytes); the producer stores seq last: the
//	       number of the entry, from 0, plus one
//	head   a word elsewhere, written by the consumer only: number of entries released
//
// The slots are in the producer's memory, head is in the consumer's.
const (
	SlotSize     = 64
	payloadWords = 7 // 64-bit words of payload
)

// Payload is the data of one ring entry, without its sequence number.
type Payload [payloadWords]uint64

// Producer is the sending side of a ring. It is not safe for concurrent use.
type Producer struct {
	slots    []slotWords
	head     *atomic.Uint64
	next     uint64 // number of the next entry
	released uint64 // private copy of head; see LoadReleased

	relaxed bool // see Relax
}

// Consumer is the receiving side of a ring. It is not safe for concurrent use, except for
// HasEntry.
type Consumer struct {
	slots    []slotWords
	head     *atomic.Uint64
	next     atomic.Uint64
	released uint64 // private copy of head, which a peer can overwrite
}

// NewProducer returns the sending side of a ring of n slots at off, which must be zero. head is the
// consumer's word.
//
// Errors: [ErrDamaged] if n is not a power of two, or the slots are out of bounds or unaligned.
func (a *Arena) NewProducer(off Offset, n uint64, head *atomic.Uint64) (*Producer, error) {
	slots, err := a.checkedSlots(off, n)
	if err != nil {
		return nil, err
	}
	return &Producer{slots: slots, head: head}, nil
}

// NewConsumer returns the receiving side of a ring of n slots at off. It checks both values, which
// come from a peer.
//
// Errors: as for NewProducer.
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

// Push publishes a copy of s as the next entry and returns the entry's number, from 0; ok is false
// if the ring is full.
func (p *Producer) Push(s *Payload) (index uint64, ok bool) {
	if p.FreeSlots() == 0 {
		return 0, false
	}
	*p.NextPayload() = *s // plain store: the slot is the producer's until Publish
	p.Publish()
	p.PrefetchForWrite()
	return p.next - 1, true
}

// NextPayload returns the payload of the next entry. The caller fills it in and then calls Publish.
// FreeSlots must have returned more than 0.
func (p *Producer) NextPayload() *Payload { return &p.slots[p.next&uint64(len(p.slots)-1)].data }

// Publish publishes the entry that the caller has put into NextPayload. The entry's number is Published
// minus one afterwards.
func (p *Producer) Publish() {
	slot := &p.slots[p.next&uint64(len(p.slots)-1)]
	raceRelease()
	p.next++
	if p.relaxed {
		asym.StoreRelease(&slot.seq, p.next) // ORDER slot-full: pairs with the load in Front
	} else {
		slot.seq.Store(p.next) // ORDER slot-full: pairs with the load in Front
	}
}

// PrefetchForWrite prefetches for write some slots that will be filled soon. Call it after Publish.
//
// The consumer's core has a copy of each of these lines, and the first store to a line must
// invalidate that copy. A core can wait for several lines at a time, but its store buffer reaches
// only one or two entries ahead. The prefetch lets it start earlier.
func (p *Producer) PrefetchForWrite() {
	if hasPrefetch && p.next%prefetchBatch == 0 {
		p.prefetchForWrite()
	}
}

func (p *Producer) prefetchForWrite() {
	if p.next-p.released+prefetchWriteDistance+prefetchBatch >= uint64(len(p.slots)) {
		return // those slots may hold entries that the consumer has not read
	}
	for i := range prefetchBatch {
		slot := &p.slots[(p.next+prefetchWriteDistance+i)&uint64(len(p.slots)-1)]
		if prefetchByStore {
			slot.data[payloadWords-1] = 0
		} else {
			prefetchWrite(&slot.seq)
		}
	}
}

// prefetchWriteDistance is the distance from the next slot to the first that PrefetchForWrite
// prefetches.
const prefetchWriteDistance = 8

// Relax makes Publish a release store instead of a full barrier: a later load of the producer may
// overtake the store. The consumer's process must then issue the barrier for both, before it sleeps
// or ends the connection. It stores the word that announces this, such as the armed doorbell or the
// connection state. It then calls [asym.HeavyGlobal] and checks the ring once more. The barrier must
// reach the producer's process.
func (p *Producer) Relax() { p.relaxed = true }

// Relaxed reports whether Relax was called.
func (p *Producer) Relaxed() bool { return p.relaxed }

// FreeSlots returns how many entries can be published now. There may be more: FreeSlots loads the
// consumer's word only if its private copy says that the ring is full.
func (p *Producer) FreeSlots() uint64 {
	size := uint64(len(p.slots))
	if room := size - (p.next - p.released); room != 0 {
		return room
	}
	p.LoadReleased()
	return size - (p.next - p.released)
}

// LoadReleased loads how many entries the consumer has released, and keeps it for FreeSlots. It ignores a value that is more
// than the number of published entries, or less than the previous value.
func (p *Producer) LoadReleased() uint64 {
	head := p.head.Load() // ORDER slot-free: pairs with the store in Release
	if head-p.released <= p.next-p.released {
		p.released = head
		raceAcquire()
	}
	return p.released
}

// Published returns how many entries were published so far.
func (p *Producer) Published() uint64 { return p.next }

// Peek copies the oldest entry into s without consuming it. It reports whether there is one.
func (c *Consumer) Peek(s *Payload) bool {
	front := c.Front()
	if front == nil {
		return false
	}
	*s = *front // the peer can overwrite the slot at any time
	return true
}

// Front returns the oldest entry in its slot, or nil if there is none. The peer can overwrite the
// slot at any time, so copy a word before using it twice.
func (c *Consumer) Front() *Payload {
	next := c.next.Load()
	slot := &c.slots[next&uint64(len(c.slots)-1)]
	if slot.seq.Load() != next+1 { // ORDER slot-full: pairs with the store in Publish
		return nil
	}
	raceAcquire()
	return &slot.data
}

// HasEntry reports whether the ring holds an entry. The answer may be out of date if the producer
// or the consumer runs at the same time. Safe for concurrent use.
func (c *Consumer) HasEntry() bool {
	next := c.next.Load()
	return c.slots[next&uint64(len(c.slots)-1)].seq.Load() == next+1
}

// Advance consumes the oldest entry and returns its number. The next Release tells the producer.
func (c *Consumer) Advance() (index uint64) {
	index = c.next.Load()
	asym.StoreRelease(&c.next, index+1)
	return index
}

// PrefetchForRead prefetches a slot that the producer may have filled. consumed is the number that
// Advance returned.
func (c *Consumer) PrefetchForRead(consumed uint64) {
	if prefetchByStore {
		return // it would take lines away that the producer has prefetched
	}
	prefetchRead(&c.slots[(consumed+prefetchReadDistance)&uint64(len(c.slots)-1)].seq)
}

// prefetchReadDistance is the distance from the consumed slot to the one that PrefetchForRead
// prefetches. If entries wait there, their lines arrive while the consumer processes the entries
// before them. It is more than prefetchWriteDistance, so that a consumer that keeps up takes no
// lines away that the producer has prefetched.
const prefetchReadDistance = 12

// Release tells the producer that all entries so far have been consumed.
func (c *Consumer) Release() {
	raceRelease()
	c.released = c.next.Load()
	asym.StoreRelease(c.head, c.released) // ORDER slot-free: pairs with the load in LoadReleased
}

// ReleaseFenced is Release with a full barrier: no later load overtakes the store. Use it before a
// check whether the producer waits for free slots.
func (c *Consumer) ReleaseFenced() {
	raceRelease()
	c.released = c.next.Load()
	c.head.Swap(c.released) // ORDER slot-free: pairs with the load in LoadReleased
}

// Size returns the number of slots.
func (c *Consumer) Size() uint64 { return uint64(len(c.slots)) }

// NextIndex returns the number of the oldest entry that has not been consumed.
func (c *Consumer) NextIndex() uint64 { return c.next.Load() }

// Unreleased returns how many entries were consumed since the last Release.
func (c *Consumer) Unreleased() uint64 { return c.next.Load() - c.released }
