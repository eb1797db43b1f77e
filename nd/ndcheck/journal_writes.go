package ndcheck

import (
	"encoding/binary"
	"math"
)

// write is where and when a process has written to the memory of a rank. It explains bytes that change, and it may have
// told the rank something: programs poll memory.
type write struct {
	span
	rank          int   // of the process that has posted it
	posted, until int64 // until: when its process has last known that it may still store bytes, math.MaxInt64 = it cannot know
}

// span is a range of bytes, in addresses of their owner.
type span struct{ address, size uint64 }

func (s span) overlaps(o span) bool { return overlaps(s.address, s.size, o.address, o.size) }

func (s span) contains(o span) bool { return isWithin(o.address, o.size, s.address, s.size) }

// maxWrites is how many Writes to a rank the journal knows, at different addresses. It forgets the oldest, and then
// takes only the time of it into account, as if it could have written to any byte.
const maxWrites = 32

// writeSize is that of a record: 0 address, 8 size, 16 posted, 24 until, 32 rank.
const writeSize = 40

func (w *write) decode(b []byte) {
	le := binary.LittleEndian
	*w = write{span{le.Uint64(b), le.Uint64(b[8:])}, int(int32(le.Uint32(b[32:]))), int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))}
}

func (w *write) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, w.address)
	le.PutUint64(b[8:], w.size)
	le.PutUint64(b[16:], uint64(w.posted))
	le.PutUint64(b[24:], uint64(w.until))
	le.PutUint32(b[32:], uint32(w.rank))
}

// writesTo returns the records of Writes to a rank, nil if there is no such rank.
func (j *Journal) writesTo(rank int) []byte {
	if rank < 0 || rank >= maxRanks {
		return nil
	}
	return j.memory[writesAt+rank*maxWrites*writeSize:][:maxWrites*writeSize]
}

// noteWrite stores a Write to memory of a rank. The caller has the lock.
func (j *Journal) noteWrite(owner int, w write) {
	table := j.writesTo(owner)
	if table == nil {
		return
	}
	place, oldest := table[:writeSize], int64(math.MaxInt64)
	for at := 0; at < len(table); at += writeSize {
		var old write
		b := table[at : at+writeSize]
		if old.decode(b); old.until == 0 {
			place, oldest = b, 0
			break
		}
		if old.rank == w.rank && w.contains(old.span) {
			w.posted, w.until = max(w.posted, old.posted), max(w.until, old.until)
			place, oldest = b, 0
			break
		}
		if old.until < oldest {
			place, oldest = b, old.until
		}
	}
	j.missWrite(owner, oldest)
	w.encode(place)
}

// anyWrite reports whether one of the Writes to a rank meets a condition. The caller has the lock.
func (j *Journal) anyWrite(rank int, f func(w write) bool) bool {
	table := j.writesTo(rank)
	for at := 0; at < len(table); at += writeSize {
		var w write
		if w.decode(table[at : at+writeSize]); w.until == 0 {
			return false
		}
		if f(w) {
			return true
		}
	}
	return false
}

// mayHaveChanged reports whether a process may have written to some bytes of a rank since a time.
func (j *Journal) mayHaveChanged(rank int, since int64, bytes []span) bool {
	if !j.begin() {
		return true
	}
	defer j.end()
	for _, s := range bytes {
		if j.missedWrite(rank) >= since || j.anyWrite(rank, func(w write) bool { return w.until >= since && s.overlaps(w.span) }) {
			return true
		}
		for i := range min(j.field(accessesUsed), maxAccesses) {
			var a access
			b := j.accessSlot(i)
			if a.decode(b); b[0] != 0 && a.write && a.owner == rank && s.overlaps(a.span()) {
				return true
			}
		}
	}
	return false
}

// mayHaveHeard reports whether a Write to memory of a rank may have told it that an access is complete. Three ranks can: the one
// that has posted the access; the owner of the memory, which can see the bytes of a Write; and one that has learned
// something since from messages or from Writes. The caller has the lock.
func (j *Journal) mayHaveHeard(rank int, of access) bool {
	return j.missedWrite(rank) >= of.posted || j.anyWrite(rank, func(w write) bool {
		switch {
		case w.posted < of.posted:
			return false
		case w.rank == of.rank && (w.rank != rank || of.owner == rank): // if it is the rank itself, it sees the bytes
			return true
		case w.rank == rank:
			return false
		}
		return w.rank == of.owner && of.write || j.learnedAt(w.rank) >= of.posted ||
			j.missedWrite(w.rank) >= of.posted || j.anyWrite(w.rank, func(w write) bool { return w.posted >= of.posted })
	})
}
