package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/wire"
)

// credit is the flow-control credit of the requester: for how many ring entries the peer has
// posted receives, and up to which length a message completes at once. It also records which entries
// the peer may not have consumed yet.
//
// Entries are numbered from 0 in the order in which they are pushed. The peer's receives are numbered
// in the order in which entries take them. The ring counts the entries pushed so far, and the methods take
// that count as their argument pushed. A message of the fast path changes nothing but pushed: it
// takes a receive and is inline, so a run of such messages is known by its first. For any other
// entry, call endRun before and countEntry after it is pushed.
//
// These hold between any two operations, whatever the peer stores in its shared queue-pair state:
//
//	otherEntries <= pushed                  so taken = pushed - otherEntries
//	posted - taken <= the peer's queue      a greater number from the peer is rejected
//	runStart <= pushed                      all entries from runStart on are of the fast path
//	inlineEnd <= pushed, ackEnd <= pushed
//	limit <= pushed, or
//	  limit - pushed <= posted - taken      a receive is posted for each entry before limit,
//	  limit - pushed <= free slots          the ring has a slot for it, and
//	  maxLen <= room of these receives      maxLen bytes fit, if the peer is correct
//	limitedRoom, maxLen <= wire.InlinePayload
type credit struct {
	runStart  uint64 // number of the first entry of the current run of fast-path messages
	inlineEnd uint64 // number after the last inline entry before the run
	ackEnd    uint64 // number after the last entry whose consumption completes a request

	limit        uint64 // entries before this number may take the fast path
	maxLen       uint32 // in bytes, of a message of the fast path
	limitedRoom  uint32 // bytes that each receive before limitedEnd is sure to fit
	otherEntries uint64 // entries that have taken no receive
	posted       uint64 // receives that the peer had posted when Posted was last read
	limitedEnd   uint64 // number after the last of them that may not fit a full inline payload
}

// taken returns how many of the peer's receives our entries have taken.
func (k *credit) taken(pushed uint64) uint64 { return pushed - k.otherEntries }

// isSpent reports whether our entries have taken all known receives.
func (k *credit) isSpent(pushed uint64) bool { return k.posted == k.taken(pushed) }

// refresh sets the credit from the peer's shared words. size is the depth of its receive queue. It
// reports whether a receive is posted for the next message. The caller has found isSpent.
func (k *credit) refresh(pushed, posted, size, limitedEnd, limitedRoom uint64) bool {
	if posted-k.taken(pushed) > size { // rejected: no correct peer posts more than its queue holds
		return false
	}
	k.posted, k.limitedEnd, k.limitedRoom = posted, limitedEnd, uint32(min(limitedRoom, wire.InlinePayload))
	return !k.isSpent(pushed)
}

// fits reports whether the peer's next receive is sure to fit an inline message of n bytes. It
// is if it comes after the limited receives, or if n is at most limitedRoom.
func (k *credit) fits(pushed, n uint64) bool {
	return int64(k.limitedEnd-k.taken(pushed)) <= 0 || n <= uint64(k.limitedRoom)
}

// extend raises the limit of the fast path to the number of known receives, at most to the number of
// free slots of the ring. It reports whether any message may take the fast path.
func (k *credit) extend(pushed, slots uint64) bool {
	n := min(k.posted-k.taken(pushed), slots)
	k.limit, k.maxLen = pushed+n, wire.InlinePayload
	if !k.fits(pushed, wire.InlinePayload) {
		k.maxLen = k.limitedRoom
	}
	return n != 0
}

// endRun ends the run of fast-path messages before another entry, or an attempt to push one. The limit
// stays valid: that entry has one number, and takes one slot and at most one receive.
func (k *credit) endRun(pushed uint64) { k.inlineEnd = k.lastInline(pushed) }

// countEntry counts such an entry when it has been pushed. If the entry takes a receive of the peer,
// the caller also calls takeReceive.
func (k *credit) countEntry(pushed uint64) {
	k.otherEntries++
	k.runStart = pushed
}

func (k *credit) takeReceive() { k.otherEntries-- }

// lastInline returns the number after the last inline entry.
func (k *credit) lastInline(pushed uint64) uint64 {
	if pushed != k.runStart {
		return pushed
	}
	return k.inlineEnd
}

// orderBarrier returns the number after the last entry that later requests must not overtake: the
// entry is inline, or its consumption completes a request.
func (k *credit) orderBarrier(pushed uint64) uint64 {
	return max(k.ackEnd, k.lastInline(pushed))
}
