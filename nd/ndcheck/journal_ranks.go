package ndcheck

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
)

// wait is a wait of a process for another one.
type wait struct {
	to     netip.Addr // invalid = it does not wait
	mutual bool       // it ends when the other waits for this process, too
	since  int64      // when it began
	site   string
}

// Rank record: 0 valid, 4 to 20 address, 20 to 36 address that the process waits for;
// 40 mutual, 41 accepts, 48 since; 56 time of Writes to any of its memory, 64 when it has last learned something; 96 site.

func (j *Journal) rankSlot(rank int) []byte {
	if rank < 0 || rank >= maxRanks {
		return nil
	}
	return j.memory[ranksAt+rank*rankSize:][:rankSize]
}

// enter stores the address of a rank. If an earlier process was the rank, its tokens and accesses end.
func (j *Journal) enter(rank int, addr netip.Addr) {
	if j.lock != nil {
		j.lock.Enter(rank)
	}
	j.update(func() {
		b := j.rankSlot(rank)
		if b == nil {
			return
		}
		if b[0] != 0 {
			j.forget(rank)
		}
		// Words 56 and 64 are noted without the lock, perhaps before the rank has it for this change. The times of an earlier
		// process are before all requests of this one.
		clear(b[:56])
		clear(b[72:])
		j.endMissedWrites(rank, now())
		clear(j.writesTo(rank))
		a := addr.As16()
		b[0] = 1
		copy(b[4:20], a[:])
	})
}

// forget ends the tokens and accesses of a rank.
func (j *Journal) forget(rank int) {
	for i := range uint32(maxAccesses) {
		if b := j.accessSlot(i); b[0] != 0 && int32(binary.LittleEndian.Uint32(b[4:])) == int32(rank) {
			b[0] = 0
		}
	}
	for i := range maxTokens {
		b := j.memory[tokensAt+i*tokenSize:][:tokenSize]
		if nd.Token(binary.LittleEndian.Uint32(b)) != 0 && int32(binary.LittleEndian.Uint32(b[8:])) == int32(rank) {
			b[5] = 0
			binary.LittleEndian.PutUint64(b[48:], uint64(now()))
			binary.LittleEndian.PutUint32(b[60:], uint32(rank))
		}
	}
}

// HasWatched reports whether a rank has used the journal.
func (j *Journal) HasWatched(rank int) bool {
	if j.begin() {
		defer j.end()
	}
	b := j.rankSlot(rank)
	return b != nil && b[0] != 0
}

// rankOf returns the rank with an address, -1 if there is none.
func (j *Journal) rankOf(addr netip.Addr) int {
	if !addr.IsValid() || !j.begin() {
		return -1
	}
	defer j.end()
	return j.rankAt(addr.As16())
}

func (j *Journal) rankAt(addr [16]byte) int {
	if addr == ([16]byte{}) {
		return -1
	}
	for i := range maxRanks {
		if b := j.rankSlot(i); b[0] != 0 && [16]byte(b[4:20]) == addr {
			return i
		}
	}
	return -1
}

// setWait stores whom a rank waits for; an invalid address means no process.
func (j *Journal) setWait(rank int, w wait) {
	j.update(func() {
		b := j.rankSlot(rank)
		if b == nil {
			return
		}
		var a [16]byte
		if w.to.IsValid() {
			a = w.to.As16()
		}
		copy(b[20:36], a[:])
		b[40] = 0
		if w.mutual {
			b[40] = 1
		}
		binary.LittleEndian.PutUint64(b[48:], uint64(w.since))
		putString(b[96:], w.site)
	})
}

// endMutualWaits ends the waits of a rank and of the process with address peer for each other: they are connected, and the
// calls of both return, however late. If only one of them has such a wait, it is for another connection.
func (j *Journal) endMutualWaits(rank int, peer netip.Addr) {
	j.update(func() {
		one, other := j.rankSlot(rank), j.rankSlot(j.rankAt(peer.As16()))
		if one == nil || other == nil {
			return
		}
		waits := func(from, to []byte) bool { return from[40] != 0 && bytes.Equal(from[20:36], to[4:20]) }
		if waits(one, other) && waits(other, one) {
			clear(one[20:36])
			clear(other[20:36])
		}
	})
}

// noteAccepts notes that the program of a rank accepts connections.
func (j *Journal) noteAccepts(rank int) {
	j.update(func() {
		if b := j.rankSlot(rank); b != nil {
			b[41] = 1
		}
	})
}

// link is one element of a chain of ranks that wait for each other.
type link struct {
	rank    int
	wait    wait
	accepts bool // the program has waited for connection requests
}

// cycle returns the chain of ranks that begins at rank and ends there, if each waits for the next.
func (j *Journal) cycle(rank int) []link {
	if !j.begin() {
		return nil
	}
	defer j.end()
	var chain []link
	for at := rank; ; {
		b := j.rankSlot(at)
		if b == nil || b[0] == 0 || slices.ContainsFunc(chain, func(l link) bool { return l.rank == at }) {
			return nil
		}
		to := [16]byte(b[20:36])
		since := int64(binary.LittleEndian.Uint64(b[48:]))
		chain = append(chain, link{at, wait{to: netip.AddrFrom16(to).Unmap(), mutual: b[40] != 0, since: since, site: getString(b[96:])}, b[41] != 0})
		if at = j.rankAt(to); at == rank {
			return chain
		}
	}
}
