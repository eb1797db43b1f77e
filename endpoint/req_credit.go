package endpoint

// credit is the flow-control credit of one direction of a connection: for how many of
// our messages the peer has posted receives, and how long these may be to complete at
// once. It also says which of them the peer may not have taken out of the ring.
//
// Messages are numbered from 0 in the order in which they are pushed into the ring. The
// peer's receives are numbered in the order in which messages take them. pushed, the number
// of messages so far, belongs to the ring; the methods take it as an argument. Nothing but pushed counts
// a message of the fast path (Endpoint.Send), of which there are so many: each takes a
// receive and has its data in its slot, so a row of them is known by its first. All other
// messages, small Sends of the queue among them, call endRow before and add after they are
// pushed.
//
// These hold between any two operations, whatever the peer writes into its half:
//
//	others <= pushed                        so taken = pushed - others
//	posted - taken <= the peer's queue      a greater number from the peer is rejected
//	rowStart <= pushed                      all messages from rowStart on are of the fast path
//	inSlot <= pushed, awaited <= pushed
//	limit <= pushed, or
//	  limit - pushed <= posted - taken      a receive is posted for each message before limit,
//	  limit - pushed <= free slots          there is a slot for it, and
//	  maxLen <= room of these receives      maxLen bytes fit, unless the peer lies
//	room, maxLen <= inlinePayload
type credit struct {
	rowStart uint64 // number of the first message of the present row
	inSlot   uint64 // number after the last message whose data lies in its slot, of those before the row
	awaited  uint64 // number after the last message whose end a request awaits

	limit  uint64 // messages before this number may take the fast path
	maxLen uint32 // if they have at most this many bytes
	room   uint32 // bytes that the peer's receives before tight take for sure
	others uint64 // messages that have taken no receive
	posted uint64 // receives that the peer had posted when we last read it
	tight  uint64 // number after the last of them that may not take any small message
}

// taken returns how many of the peer's receives our messages have taken.
func (k *credit) taken(pushed uint64) uint64 { return pushed - k.others }

// spent reports whether our messages have taken all receives that we know of.
func (k *credit) spent(pushed uint64) bool { return k.posted == k.taken(pushed) }

// refresh takes over what the peer says of its receives, of which its queue holds size.
// It reports whether there is one for the next message. All credit is spent.
func (k *credit) refresh(pushed, posted, size, tight, room uint64) bool {
	if posted-k.taken(pushed) > size { // rejected: no sound peer says that
		return false
	}
	k.posted, k.tight, k.room = posted, tight, uint32(min(room, inlinePayload))
	return !k.spent(pushed)
}

// fits reports whether the peer's next receive takes a small message of n bytes for
// sure. A receive that has been shown has a room no smaller than the one read with it,
// or the message takes one after the tight ones.
func (k *credit) fits(pushed, n uint64) bool {
	return int64(k.tight-k.taken(pushed)) <= 0 || n <= uint64(k.room)
}

// grant lets messages take the fast path as far as the receives that we know of and the
// free slots of the ring go. It reports whether any may.
func (k *credit) grant(pushed, slots uint64) bool {
	n := min(k.posted-k.taken(pushed), slots)
	k.limit, k.maxLen = pushed+n, inlinePayload
	if !k.fits(pushed, inlinePayload) {
		k.maxLen = k.room
	}
	return n != 0
}

// endRow ends the row of messages of the fast path, before a message that takes another
// path, or an attempt to send one. The limit stays: that message has one number, and
// takes one slot and at most one receive.
func (k *credit) endRow(pushed uint64) { k.inSlot = k.lastInSlot(pushed) }

// add counts such a message when it has been pushed; takeReceive also counts it if it
// takes a receive of the peer's.
func (k *credit) add(pushed uint64) {
	k.others++
	k.rowStart = pushed
}

func (k *credit) takeReceive() { k.others-- }

// lastInSlot returns the number after the last message whose data lies in its slot.
func (k *credit) lastInSlot(pushed uint64) uint64 {
	if pushed != k.rowStart {
		return pushed
	}
	return k.inSlot
}

// lastUnsettled returns the number after the last message that later requests must not
// overtake: its data lies in its slot, or its outcome decides about a request.
func (k *credit) lastUnsettled(pushed uint64) uint64 {
	return max(k.awaited, k.lastInSlot(pushed))
}
