package shm

import "fmt"

// ClaimWindowBlock makes the member the owner of a free block of window entries, reserves its
// pages, and returns the index of the block. The entries hold what their previous owner stored.
// Safe for concurrent use.
//
// Errors: [ErrFull], [NoMemoryError].
func (m *Member) ClaimWindowBlock() (block int, err error) {
	a := m.arena
	m.blocksMu.Lock()
	defer m.blocksMu.Unlock()
	// Each member starts at a different block, so that members rarely compete for a word.
	first, ok := m.blocks.claimRun(uint64(m.slot)*2%windowBlocks, 1)
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
