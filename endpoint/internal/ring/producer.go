package ring

// TWIN c/src/endpoint/ring.h, c/src/endpoint/ring.c.

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// Producer is the sending side of a ring. It is not safe for concurrent use.
type Producer struct {
	slots        []Slot
	releasedWord *atomic.Uint64
	next         uint64 // number of the next entry
	released     uint64 // private copy of releasedWord; see LoadReleased
	fenced       bool   // see NewProducer
}

// NewProducer returns the sending side of an empty ring. releasedWord is the consumer's word.
//
// If fenced is set, Publish is a full barrier. If not, it is a release store, and a later load of the
// producer may overtake it. The consumer's process must then issue the barrier for both, before it
// sleeps or ends the connection. It stores the word that announces this, such as the armed doorbell
// or the connection state. It then calls [asym.HeavyGlobal] and checks the ring once more. The
// barrier must reach the producer's process.
//
// NewProducer fails if the number of slots is not a power of two, or if they do not begin on a cache
// line.
func NewProducer(slots []Slot, releasedWord *atomic.Uint64, fenced bool) (*Producer, error) {
	if err := check(slots); err != nil {
		return nil, err
	}
	return &Producer{slots: slots, releasedWord: releasedWord, fenced: fenced}, nil
}

// Push publishes a copy of w as the next entry. It reports false if the ring is full.
func (p *Producer) Push(w *Words) bool {
	if p.FreeSlots() == 0 {
		return false
	}
	*p.NextEntry() = *w // plain store: the slot is the producer's until Publish
	p.Publish()
	p.PrefetchForWrite()
	return true
}

// NextEntry returns the words of the next entry in its slot. The caller fills them in and then calls
// Publish. FreeSlots must have returned more than 0.
func (p *Producer) NextEntry() *Words { return &p.slots[p.next&uint64(len(p.slots)-1)].words }

// Publish publishes the entry that the caller has put into NextEntry. Published minus one is its
// number afterwards.
func (p *Producer) Publish() {
	slot := &p.slots[p.next&uint64(len(p.slots)-1)]
	if failpoint.Enabled {
		failpoint.Reach(failpoint.SlotFilled)
	}
	raceRelease()
	p.next++
	if p.fenced {
		slot.seq.Store(p.next) // ORDER slot-full: pairs with the load in Front
	} else {
		asym.StoreRelease(&slot.seq, p.next) // ORDER slot-full: pairs with the load in Front
	}
	if failpoint.Enabled {
		failpoint.Reach(failpoint.SlotPublished)
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
			slot.words[wordCount-1] = 0
		} else {
			prefetchWrite(&slot.seq)
		}
	}
}

// prefetchWriteDistance is the distance from the next slot to the first that PrefetchForWrite
// prefetches.
const prefetchWriteDistance = 8

// FreeSlots returns how many entries can be published now. There may be more: FreeSlots loads the
// consumer's word only if its private copy says that the ring is full.
func (p *Producer) FreeSlots() uint64 {
	size := uint64(len(p.slots))
	if n := size - (p.next - p.released); n != 0 {
		return n
	}
	p.LoadReleased()
	return size - (p.next - p.released)
}

// LoadReleased loads how many entries the consumer has released, and keeps the number for FreeSlots.
// It ignores a number that exceeds that of the published entries, or is less than the previous one.
func (p *Producer) LoadReleased() uint64 {
	released := p.releasedWord.Load() // ORDER slot-free: pairs with the store in Release
	if released-p.released <= p.next-p.released {
		p.released = released
		raceAcquire()
	}
	return p.released
}

// IsReleased reports whether the consumer has released all entries before number end.
func (p *Producer) IsReleased(end uint64) bool { return int64(p.LoadReleased()-end) >= 0 }

// Published returns how many entries were published so far: the number of the next entry.
func (p *Producer) Published() uint64 { return p.next }
