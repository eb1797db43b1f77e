package softnd

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/shm"
)

// arenaPart is a part of the arena that a member has.
type arenaPart struct {
	name string // of what it is, and its number
	slot int    // of the member
}

// partsInArena lists the member records, window blocks and chunks that are in use.
func partsInArena(t *testing.T, a *shm.Arena) (parts []arenaPart) {
	t.Helper()
	words, err := shm.Slice[atomic.Uint32](a, 0, a.Info().Size/4)
	if err != nil {
		t.Fatal(err)
	}
	// As docs/shared-memory.md has it.
	for slot := range maxMembers {
		if state := words[(recordsAt+slot*recordSize)/4].Load(); state&0xff != 0 {
			parts = append(parts, arenaPart{fmt.Sprintf("record %d in state %#x", slot, state), slot})
		}
	}
	const blocksAt, blocks, chunksAt = 0x1111000, 4096, 0x5125000
	chunks := (a.Info().Size - uint64(a.Info().HeapStart)) / chunkSize
	table := func(name string, at, n uint64) {
		for i := range n {
			if owner := words[at/4+i].Load(); owner != 0 {
				parts = append(parts, arenaPart{fmt.Sprintf("%s %d of member %d", name, i, owner-1), int(owner) - 1})
			}
		}
	}
	table("block", blocksAt, blocks)
	table("chunk", chunksAt, chunks)
	return parts
}

// leftInArena lists the parts of members other than those in slots that live.
func leftInArena(t *testing.T, a *shm.Arena, lives func(slot int) bool) (left []string) {
	t.Helper()
	for _, p := range partsInArena(t, a) {
		if !lives(p.slot) {
			left = append(left, p.name)
		}
	}
	return left
}

// dropRequests refuses the requests that no rank has answered: until then their memory is in use.
func dropRequests(j *Job) {
	j.sortRequests()
	for peer := range j.Size() {
		for c := j.requestFrom(peer); c != nil; c = j.requestFrom(peer) {
			c.Close()
		}
	}
}
