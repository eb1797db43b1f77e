package shm

import "fmt"

// firstWindowBlock returns the block at which the member in a slot starts its search. Each member starts at a different
// block, so that members rarely compete for a word. The secret decides which: the index in a token of another arena is
// most likely in a block that no member owns here.
func (a *Arena) firstWindowBlock(slot int) uint64 {
	return (a.secret[0]%windowBlocks + uint64(slot)*2) % windowBlocks
}

// ClaimWindowBlock makes the member the owner of a free block of window entries, reserves its
// pages, and returns the index of the block. The entries hold what their previous owner stored.
// Safe for concurrent use.
//
// Errors: [ErrFull], [NoMemoryError].
func (m *Member) ClaimWindowBlock() (block int, err error) {
	a := m.arena
	m.blocksMu.Lock()
	defer m.blocksMu.Unlock()
	first, ok := m.blocks.claimRun(a.firstWindowBlock(m.slot), 1)
	if !ok {
		return 0, fmt.Errorf("shm: claim window block: all %d window entries are taken: %w", WindowEntries, ErrFull)
	}
	const bytes = WindowBlockEntries * WindowEntrySize
	if err := a.reserve(a.geo.windowTable+Offset(first*bytes), bytes); err != nil {
		_, _ = m.blocks.free(first, 1, func(uint64, uint64) error { return nil })
		return 0, err
	}
	return int(first), nil
}
