package ndcheck

import (
	"encoding/binary"
	"math"

	"github.com/softnd/softnd/nd"
)

// access is a Read, a Write or an atomic in flight on the memory of another process, or of this one.
type access struct {
	write         bool // also of an atomic
	atomic        bool
	rank          int // of the process that posted it
	owner         int // rank of the owner of the memory
	endpoint      uint32
	address, size uint64
	posted        int64 // when
	site          string
}

func (a *access) span() span { return span{a.address, a.size} }

func (a *access) decode(b []byte) {
	le := binary.LittleEndian
	*a = access{write: b[1] != 0, atomic: b[3] != 0, rank: int(int32(le.Uint32(b[4:]))), owner: int(int32(le.Uint32(b[8:]))), endpoint: le.Uint32(b[12:]),
		address: le.Uint64(b[16:]), size: le.Uint64(b[24:]), posted: int64(le.Uint64(b[32:])), site: getString(b[64:accessSize])}
}

func (a *access) encode(b []byte) {
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = 1, 0, 0, 0
	if a.write {
		b[1] = 1
	}
	if a.atomic {
		b[3] = 1
	}
	le.PutUint32(b[4:], uint32(a.rank))
	le.PutUint32(b[8:], uint32(a.owner))
	le.PutUint32(b[12:], a.endpoint)
	le.PutUint64(b[16:], a.address)
	le.PutUint64(b[24:], a.size)
	le.PutUint64(b[32:], uint64(a.posted))
	putString(b[64:accessSize], a.site)
}

func overlaps(a, n, b, m uint64) bool { return n > 0 && m > 0 && a < b+m && b < a+n }

// maxConflicts is how many accesses open returns at most: one is enough for a report.
const maxConflicts = 4

// openRemote stores an access that is about to be posted with a token. It replaces the address by that of the owner: two
// tokens may name the same bytes by different addresses. peer is the rank that the access goes to, -1 = unknown. It
// returns what open returns. isKnown is false if the token does not allow the access, or is not known.
func (j *Journal) openRemote(token nd.Token, a *access, peer int) (number uint32, conflicts []access, isKnown bool) {
	if !j.begin() {
		if a.write {
			j.missWrite(peer, a.posted)
		}
		return 0, nil, false
	}
	defer j.end()
	if !j.locate(token, a) {
		if a.write {
			j.missWrite(peer, a.posted) // its bytes may be contiguous for peers only
		}
		return 0, nil, false
	}
	if a.write {
		j.noteWrite(a.owner, write{a.span(), a.rank, a.posted, a.posted})
	}
	number, conflicts = j.open(*a)
	return number, conflicts, true
}

// reopen tries again to store an access that openRemote has located, after the end of others. If the table is still full, no
// process notes the end of a Write, so it may store its bytes at any time.
func (j *Journal) reopen(a access, done []uint32) (number uint32, conflicts []access) {
	j.close(done...)
	if j.begin() {
		number, conflicts = j.open(a)
		j.end()
	}
	if number == 0 && a.write {
		j.update(func() { j.noteWrite(a.owner, write{a.span(), a.rank, a.posted, math.MaxInt64}) })
	}
	return number, conflicts
}

// locate finds the owner of the bytes of an access, and their address there. The caller has the lock.
func (j *Journal) locate(token nd.Token, a *access) bool {
	slot, ok := j.tokenSlotOf(token)
	if !ok {
		return false
	}
	le := binary.LittleEndian
	base, length, memory := le.Uint64(slot[24:]), le.Uint64(slot[32:]), le.Uint64(slot[72:])
	if kind(slot[4]) == localToken || memory == 0 || !isWithin(a.address, a.size, base, length) {
		return false
	}
	a.owner = int(int32(le.Uint32(slot[8:])))
	a.address += memory - base
	return true
}

// open stores an access, and returns its number and accesses in flight that conflict with it. It leaves out those of which
// the process that posts may have heard that they are complete. If the table is full, the number is 0, and the access is not known to
// later ones. The caller has the lock.
func (j *Journal) open(a access) (number uint32, conflicts []access) {
	used := min(j.field(accessesUsed), maxAccesses)
	free := used
	for i := range used {
		b := j.accessSlot(i)
		if b[0] == 0 {
			free = min(free, i)
			continue
		}
		if le := binary.LittleEndian; !overlaps(a.address, a.size, le.Uint64(b[16:]), le.Uint64(b[24:])) {
			continue
		}
		var other access
		other.decode(b)
		switch {
		case b[2] != 0: // a message has ordered it
		case other.owner != a.owner || !other.write && !a.write || other.atomic && a.atomic || other.rank == a.rank && other.endpoint == a.endpoint || len(conflicts) == maxConflicts:
		case !j.isPresent(a.rank, other.rank):
			b[0] = 0 // it ended with its process
		case !j.mayHaveHeard(a.rank, other):
			conflicts = append(conflicts, other)
		}
	}
	if free == maxAccesses {
		if free = j.reclaim(a.rank); free == maxAccesses {
			return 0, conflicts
		}
	}
	a.encode(j.accessSlot(free))
	if free == used {
		j.setField(accessesUsed, used+1)
	}
	return free + 1, conflicts
}

// sweepEvery is how many accesses find the table full between two searches for those of dead processes.
const sweepEvery = 256

// reclaim forgets the accesses of dead processes, because the table is full. It returns a free place, maxAccesses if there is
// none. own is the rank of this process. The caller has the lock.
func (j *Journal) reclaim(own int) (free uint32) {
	full := j.field(accessesFull)
	j.setField(accessesFull, full+1)
	free = maxAccesses
	if full%sweepEvery != 0 {
		return free
	}
	present := make(map[int]bool)
	for i := range uint32(maxAccesses) {
		var a access
		b := j.accessSlot(i)
		a.decode(b)
		isPresent, known := present[a.rank]
		if !known {
			isPresent = j.isPresent(own, a.rank)
			present[a.rank] = isPresent
		}
		if !isPresent {
			b[0] = 0
			free = i
		}
	}
	return free
}

func (j *Journal) accessSlot(i uint32) []byte {
	return j.memory[accessesAt+int(i)*accessSize:][:accessSize]
}

// isPresent reports whether the process of rank still lives. own is the rank of this process.
func (j *Journal) isPresent(own, rank int) bool {
	return rank == own || j.lock == nil || j.lock.IsPresent(rank)
}

// order notes that accesses are before all that follows a message. They are not complete.
func (j *Journal) order(numbers []uint32) {
	if len(numbers) == 0 {
		return
	}
	j.update(func() {
		for _, number := range numbers {
			j.accessSlot(number - 1)[2] = 1
		}
	})
}

// close forgets accesses, which are complete.
func (j *Journal) close(numbers ...uint32) {
	if len(numbers) == 0 || len(numbers) == 1 && numbers[0] == 0 {
		return
	}
	j.update(func() { j.closeAll(numbers) })
}

func (j *Journal) closeAll(numbers []uint32) {
	for _, number := range numbers {
		if number == 0 {
			continue
		}
		b := j.accessSlot(number - 1)
		if b[0] != 0 && b[1] != 0 {
			var a access
			a.decode(b)
			j.noteWrite(a.owner, write{a.span(), a.rank, a.posted, now()})
		}
		b[0] = 0
	}
	used := min(j.field(accessesUsed), maxAccesses)
	for used > 0 && j.accessSlot(used - 1)[0] == 0 {
		used--
	}
	j.setField(accessesUsed, used)
}
