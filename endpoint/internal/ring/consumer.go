package ring

// TWIN c/src/endpoint/ring.h.

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// Consumer is the receiving side of a ring. It is not safe for concurrent use, except for
// HasEntry.
type Consumer struct {
	slots        []Slot
	releasedWord *atomic.Uint64
	next         atomic.Uint64 // number of the oldest entry that is not consumed
	released     uint64        // private copy of releasedWord, which a peer can overwrite
}

// NewConsumer returns the receiving side of an empty ring. releasedWord is the word that it stores for
// the producer. NewConsumer fails under the conditions of [NewProducer].
func NewConsumer(slots []Slot, releasedWord *atomic.Uint64) (*Consumer, error) {
	if err := check(slots); err != nil {
		return nil, err
	}
	return &Consumer{slots: slots, releasedWord: releasedWord}, nil
}

// Front returns the words of the oldest entry in their slot, or nil if there is none. The peer can
// overwrite the slot at any time, so copy a word before using it twice.
func (c *Consumer) Front() *Words {
	next := c.next.Load()
	slot := &c.slots[next&uint64(len(c.slots)-1)]
	if slot.seq.Load() != next+1 { // ORDER slot-full: pairs with the store in Publish
		return nil
	}
	raceAcquire()
	return &slot.words
}

// HasEntry reports whether the ring holds an entry. The answer may be out of date if the producer
// or the consumer runs at the same time. Safe for concurrent use.
func (c *Consumer) HasEntry() bool {
	next := c.next.Load()
	return c.slots[next&uint64(len(c.slots)-1)].seq.Load() == next+1
}

// Advance consumes the oldest entry and returns its number. The next Release tells the producer.
func (c *Consumer) Advance() (number uint64) {
	number = c.next.Load()
	asym.StoreRelease(&c.next, number+1)
	failpoint.Reach(failpoint.SlotConsumed)
	return number
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
	asym.StoreRelease(c.releasedWord, c.released) // ORDER slot-free: pairs with the load in LoadReleased
}

// ReleaseTo is ReleaseFenced for the entries before number end, some of those that have been consumed. It ignores
// a number that releases nothing.
func (c *Consumer) ReleaseTo(end uint64) {
	if end-c.released-1 >= c.next.Load()-c.released { // also if end is less than released
		return
	}
	raceRelease()
	c.released = end
	c.releasedWord.Swap(end) // ORDER slot-free: pairs with the load in LoadReleased
}

// ReleaseFenced is Release with a full barrier: no later load overtakes the store. Use it before a
// check whether the producer waits for free slots.
func (c *Consumer) ReleaseFenced() {
	raceRelease()
	c.released = c.next.Load()
	c.releasedWord.Swap(c.released) // ORDER slot-free: pairs with the load in LoadReleased
}

// Size returns the number of slots.
func (c *Consumer) Size() uint64 { return uint64(len(c.slots)) }

// Consumed returns how many entries were consumed so far: the number of the oldest entry that is not.
func (c *Consumer) Consumed() uint64 { return c.next.Load() }

// Unreleased returns how many entries were consumed since the last Release.
func (c *Consumer) Unreleased() uint64 { return c.next.Load() - c.released }
