// Package credit counts the flow-control credit of a requester.
package credit

// TWIN c/src/endpoint/req_credit.h.

import (
	"github.com/softnd/softnd/endpoint/internal/wire"
)

// Credit is the flow-control credit of the requester: for how many ring entries the peer has
// posted receives, and up to which length a message completes at once. It also records which entries
// the peer may not have consumed yet.
//
// Entries are numbered from 0 in the order in which they are pushed. The peer's receives are numbered in
// the order in which entries take them. The methods take the number of entries pushed so far, the ring's
// Published, as their argument pushed. A Send of the fast path takes a receive and has its data in the
// entry. It changes nothing but pushed, so the first of a run of such Sends identifies the run. For any
// other entry (of another request, or of a Send of the slow path), call CountEntry after it is pushed.
//
// These hold between any two operations, whatever the peer stores in its shared queue-pair state:
//
//	entriesWithoutReceive <= pushed         so taken = pushed - entriesWithoutReceive
//	posted - taken <= the peer's queue      a greater number from the peer is rejected
//	sendRunStart <= pushed                  all entries from sendRunStart on are of the fast path
//	PayloadEndBeforeRun <= pushed, AckRequestEnd <= pushed
//	FastLimit <= pushed, or
//	  FastLimit - pushed <= posted - taken  a receive is posted for each entry before FastLimit,
//	  FastLimit - pushed <= free slots      the ring has a slot for it, and
//	  FastMaxLength <= room of each         these receives can hold so much, if the peer is correct
//	smallReceiveBytes, FastMaxLength <= wire.MaxSendInEntry
type Credit struct {
	sendRunStart        uint64 // number of the first entry of the current run of Sends of the fast path
	PayloadEndBeforeRun uint64 // number after the last entry with data before the run
	AckRequestEnd       uint64 // number after the last entry whose consumption completes a request

	FastLimit             uint64 // entries before this number may take the fast path
	FastMaxLength         uint32 // in bytes, of a message of the fast path
	smallReceiveBytes     uint32 // bytes that each receive before smallReceivesEnd can hold
	entriesWithoutReceive uint64 // entries that have taken no receive
	posted                uint64 // receives that the peer had posted when Posted was last read
	smallReceivesEnd      uint64 // number after the last of them that may be smaller than wire.MaxSendInEntry
}

// Taken returns how many of the peer's receives our entries have taken.
func (c *Credit) Taken(pushed uint64) uint64 { return pushed - c.entriesWithoutReceive }

// IsSpent reports whether our entries have taken all known receives.
func (c *Credit) IsSpent(pushed uint64) bool { return c.posted == c.Taken(pushed) }

// Refresh sets the credit from the peer's shared words. size is the depth of its receive queue. It
// reports whether a receive is posted for the next message. The caller has found IsSpent.
func (c *Credit) Refresh(pushed, posted, size, smallReceivesEnd, smallReceiveBytes uint64) bool {
	if posted-c.Taken(pushed) > size { // rejected: no correct peer posts more than its queue holds
		return false
	}
	c.posted, c.smallReceivesEnd, c.smallReceiveBytes = posted, smallReceivesEnd, uint32(min(smallReceiveBytes, wire.MaxSendInEntry))
	return !c.IsSpent(pushed)
}

// Fits reports whether the peer's next receive can certainly hold a message of n bytes, n at most wire.MaxSendInEntry.
// It can if it comes after the small receives, or if n is at most smallReceiveBytes.
func (c *Credit) Fits(pushed, n uint64) bool {
	// The difference of two counters is compared, and not the counters: smallReceivesEnd is the peer's.
	return int64(c.smallReceivesEnd-c.Taken(pushed)) <= 0 || n <= uint64(c.smallReceiveBytes)
}

// Extend raises the limit of the fast path to the number of known receives, at most to the number of
// free slots of the ring. It reports whether any message may take the fast path.
func (c *Credit) Extend(pushed, slots uint64) bool {
	n := min(c.posted-c.Taken(pushed), slots)
	c.FastLimit, c.FastMaxLength = pushed+n, wire.MaxSendInEntry
	if !c.Fits(pushed, wire.MaxSendInEntry) {
		c.FastMaxLength = c.smallReceiveBytes
	}
	return n != 0
}

// CountEntry counts entry number, which has been pushed, and whether it takes a receive of the peer. Sends of the
// fast path are not counted: each takes one, and their run is known from the number of entries. The run before
// the entry ends, and the next begins after it. FastLimit remains valid, because the entry takes one slot
// and at most one receive.
func (c *Credit) CountEntry(number uint64, takesReceive bool) {
	c.PayloadEndBeforeRun = c.payloadEnd(number)
	if !takesReceive {
		c.entriesWithoutReceive++
	}
	c.sendRunStart = number + 1
}

// payloadEnd returns the number after the last entry with data.
func (c *Credit) payloadEnd(pushed uint64) uint64 {
	if pushed != c.sendRunStart {
		return pushed
	}
	return c.PayloadEndBeforeRun
}

// OrderBarrier returns the number after the last entry that later requests must not overtake: the
// entry has data, or its consumption completes a request.
func (c *Credit) OrderBarrier(pushed uint64) uint64 {
	return max(c.AckRequestEnd, c.payloadEnd(pushed))
}
