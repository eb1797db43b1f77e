package ranktest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/shm"
)

// Places in the arena, as docs/shared-memory.md has them.
const (
	MaxMembers = 2 * shm.MaxRanks
	ChunkSize  = 64 << 10
	RecordsAt  = 0x1000 // offset of the member records
	RecordSize = 512
)

// ArenaPart is a part of the arena that a member has.
type ArenaPart struct {
	name string // of what it is, and its number
	slot int    // of the member
}

// PartsInArena lists the member records, window blocks and chunks that are in use.
func PartsInArena(t testing.TB, a *shm.Arena) (parts []ArenaPart) {
	t.Helper()
	words, err := shm.Slice[atomic.Uint32](a, 0, a.Info().Size/4)
	if err != nil {
		t.Fatal(err)
	}
	// As docs/shared-memory.md has it.
	for slot := range MaxMembers {
		if state := words[(RecordsAt+slot*RecordSize)/4].Load(); state&0xff != 0 {
			parts = append(parts, ArenaPart{fmt.Sprintf("record %d in state %#x", slot, state), slot})
		}
	}
	const blocksAt, blocks, chunksAt = 0x1111000, 4096, 0x5125000
	chunks := (a.Info().Size - uint64(a.Info().HeapStart)) / ChunkSize
	table := func(name string, at, n uint64) {
		for i := range n {
			if owner := words[at/4+i].Load(); owner != 0 {
				parts = append(parts, ArenaPart{fmt.Sprintf("%s %d of member %d", name, i, owner-1), int(owner) - 1})
			}
		}
	}
	table("block", blocksAt, blocks)
	table("chunk", chunksAt, chunks)
	return parts
}

// LeftInArena lists the parts of members other than those in slots that live.
func LeftInArena(t testing.TB, a *shm.Arena, lives func(slot int) bool) (left []string) {
	t.Helper()
	for _, p := range PartsInArena(t, a) {
		if !lives(p.slot) {
			left = append(left, p.name)
		}
	}
	return left
}
