package shm

import "fmt"

// WindowTable returns where the table of WindowEntries entries of
// WindowEntrySize bytes lies. What an entry means is the business of package
// window; here they are only claimed, in blocks of WindowBlockEntries.
func (a *Arena) WindowTable() Offset { return a.geo.windowTable }

// HeapStart returns the offset from which on the arena's heap lies. Memory
// below it is tables.
func (a *Arena) HeapStart() Offset { return a.geo.heap }

// ClaimWindowBlock makes a free block of window entries this member's and
// reserves its pages. The entries hold what their last owner left.
//
// Errors: [ErrFull], [ErrShortage].
func (m *Member) ClaimWindowBlock() (block int, err error) {
	a := m.arena
	m.claiming.Lock()
	defer m.claiming.Unlock()
	// Members start at different places, so that they do not fight for the same words.
	first, ok := m.blocks.claimRun(uint64(m.slot)*2%windowBlocks, 1)
	if !ok {
		return 0, fmt.Errorf("shm: all %d window entries are taken: %w", WindowEntries, ErrFull)
	}
	const bytes = WindowBlockEntries * WindowEntrySize
	if err := a.reserve(a.geo.windowTable+Offset(first*bytes), bytes); err != nil {
		_, _ = m.blocks.giveUp(first, 1, func(uint64, uint64) error { return nil })
		return 0, err
	}
	return int(first), nil
}
