package ndcheck

import "encoding/binary"

// access is a Read or Write in flight on the memory of another process, or of this one.
type access struct {
	write         bool
	rank          int // of the process that posted it
	owner         int // rank of the owner of the memory
	endpoint      uint32
	address, size uint64
	site          string
}

func (a *access) decode(b []byte) {
	le := binary.LittleEndian
	*a = access{write: b[1] != 0, rank: int(int32(le.Uint32(b[4:]))), owner: int(int32(le.Uint32(b[8:]))), endpoint: le.Uint32(b[12:]),
		address: le.Uint64(b[16:]), size: le.Uint64(b[24:]), site: getString(b[64:accessSize])}
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
	putString(b[64:accessSize], a.site)
}

func overlaps(a, n, b, m uint64) bool { return n > 0 && m > 0 && a < b+m && b < a+n }

// maxConflicts is how many accesses open returns at most: one is enough for a report.
const maxConflicts = 4

// open stores an access, and returns its number and accesses in flight that conflict with it. If the table is
// full, the number is 0, and the access is not known to later ones.
func (j *Journal) open(a access) (number uint32, conflicts []access) {
	if !j.begin() {
		return 0, nil
	}
	defer j.end()
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
	j.update(func() {
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
	})
}
