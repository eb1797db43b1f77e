package ndcheck

import (
	"encoding/binary"

	"github.com/softnd/softnd/nd"
)

// access is a Read or Write in flight on the memory of another process, or of this one.
type access struct {
	write         bool
	rank          int // of the process that posted it
	owner         int // rank of the owner of the memory
	endpoint      uint32
	address, size uint64
	posted        int64 // when
	site          string
}

func (a *access) decode(b []byte) {
	le := binary.LittleEndian
	*a = access{write: b[1] != 0, rank: int(int32(le.Uint32(b[4:]))), owner: int(int32(le.Uint32(b[8:]))), endpoint: le.Uint32(b[12:]),
		address: le.Uint64(b[16:]), size: le.Uint64(b[24:]), posted: int64(le.Uint64(b[32:])), site: getString(b[64:accessSize])}
}

func (a *access) encode(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = 1, 0
	if a.write {
		b[1] = 1
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

// openRemote stores an access that is about to be posted with a token. It replaces the address by that of the owner:
// two tokens may name the same bytes by different addresses. It also returns when a peer has last posted a Write to the
// memory of the process that posts. The number is 0 if the token does not allow the access, or if the table is full.
func (j *Journal) openRemote(token nd.Token, a *access) (number uint32, conflicts []access, lastWrite int64) {
	if !j.begin() {
		return 0, nil, 0
	}
	defer j.end()
	slot, ok := j.tokenSlotOf(token)
	if !ok {
		return 0, nil, 0
	}
	le := binary.LittleEndian
	base, length, memory := le.Uint64(slot[24:]), le.Uint64(slot[32:]), le.Uint64(slot[72:])
	if kind(slot[4]) == localToken || memory == 0 || !isWithin(a.address, a.size, base, length) {
		return 0, nil, 0
	}
	a.owner = int(int32(le.Uint32(slot[8:])))
	a.address += memory - base
	if a.write {
		j.setLastWrite(a.owner, a.posted)
	}
	number, conflicts = j.open(*a)
	return number, conflicts, j.lastWriteOf(a.rank)
}

// open stores an access, and returns its number and accesses in flight that conflict with it. If the table is
// full, the number is 0, and the access is not known to later ones. The caller has the lock.
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
		case other.owner != a.owner || !other.write && !a.write || other.rank == a.rank && other.endpoint == a.endpoint || len(conflicts) == maxConflicts:
		case !j.isPresent(a.rank, other.rank):
			b[0] = 0 // it ended with its process
		default:
			conflicts = append(conflicts, other)
		}
	}
	if free == maxAccesses {
		return 0, conflicts
	}
	a.encode(j.accessSlot(free))
	if free == used {
		j.setField(accessesUsed, used+1)
	}
	return free + 1, conflicts
}

func (j *Journal) accessSlot(i uint32) []byte {
	return j.memory[accessesAt+int(i)*accessSize:][:accessSize]
}

// isPresent reports whether the process of rank still lives. own is the rank of this process.
func (j *Journal) isPresent(own, rank int) bool {
	return rank == own || j.lock == nil || j.lock.IsPresent(rank)
}

// close forgets accesses, which are complete or ordered before what follows.
func (j *Journal) close(numbers ...uint32) {
	if len(numbers) == 0 || len(numbers) == 1 && numbers[0] == 0 {
		return
	}
	j.update(func() { j.closeAll(numbers) })
}

func (j *Journal) closeAll(numbers []uint32) {
	for _, number := range numbers {
		if number != 0 {
			j.accessSlot(number - 1)[0] = 0
		}
	}
	used := min(j.field(accessesUsed), maxAccesses)
	for used > 0 && j.accessSlot(used - 1)[0] == 0 {
		used--
	}
	j.setField(accessesUsed, used)
}
