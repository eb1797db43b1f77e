package window

// TWIN c/src/window/table.c.

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Table is one member's view of the shared window table, and its private record of the entries that
// it owns. Safe for concurrent use.
type Table struct {
	member  *shm.Member
	arena   *shm.Arena
	entries []accessEntry

	// own has the private records. A peer can write anything into the shared
	// entries, so the owner never relies on what it reads there.
	own [shm.WindowEntries / shm.WindowBlockEntries]atomic.Pointer[ownBlock]

	mu   sync.Mutex
	free []uint32 // indexes, the one that has been free for longest first
}

type ownBlock [shm.WindowBlockEntries]atomic.Pointer[ownEntry]

// NewTable returns the member's view of the table.
func NewTable(m *shm.Member) (*Table, error) {
	entries, err := shm.Slice[accessEntry](m.Arena(), m.Arena().Info().WindowTable, shm.WindowEntries)
	if err != nil {
		return nil, fmt.Errorf("window: map the window table: %w", err)
	}
	return &Table{member: m, arena: m.Arena(), entries: entries}, nil
}

// ownEntry is the private record of one entry that this member owns. Its permissions are nil while
// its token is invalid.
type ownEntry struct {
	index       uint32
	bindBase    uint32 // number before that of the first bind; hashed, so that peers cannot guess tokens
	entry       *accessEntry
	permissions atomic.Pointer[permissions]
	word        atomic.Uint64 // boundWord of the latest permissions; loaded after them
}

// permissions are what a token allows, from its bind to its invalidation. When the token of a
// window is drained, the owner may reuse the record for another bind. So a reader stores a hazard that names
// the token, then loads the permissions and then ownEntry.word, and uses the permissions only if
// the word has the token. The fields adapter and invalidates never change.
type permissions struct {
	token       nd.Token
	bindNumber  uint32 // number of the bind; its low bits are the token's tag
	rights      Rights
	base        uint64 // address of mem[0] for peers
	mem         []byte
	offset      shm.Offset     // of mem in the arena; 0 = mem is private memory
	adapter     uint64         // see Domain.Adapter
	scope       uint64         // the endpoint whose peer alone may use the token; 0 = any
	invalidates *Invalidatable // the window or region of the token; nil = a request cannot invalidate it
}

// take returns an unused entry: the one that has been unused for longest.
func (t *Table) take() (*ownEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A reserve of unused entries keeps each of them from being used again soon.
	if len(t.free) <= shm.WindowBlockEntries/2 {
		if err := t.claimBlock(); err != nil && len(t.free) == 0 {
			return nil, err
		}
	}
	index := t.free[0]
	t.free = t.free[1:]
	e := &ownEntry{index: index, bindBase: bindBaseOf(t.arena.Info().Secret, index), entry: &t.entries[index]}
	t.ownSlotOf(index).Store(e)
	return e, nil
}

// claimBlock adds a block of entries to the unused ones. Tokens that the block's last owner left
// valid become invalid. The numbers of binds continue.
func (t *Table) claimBlock() error {
	block, err := t.member.ClaimWindowBlock()
	if err != nil {
		return err
	}
	t.own[block].Store(new(ownBlock))
	for i := range uint32(shm.WindowBlockEntries) {
		index := uint32(block)*shm.WindowBlockEntries + i
		t.entries[index].word.Store(0)
		t.entries[index].ends.Store(0)
		if index != 0 {
			t.free = append(t.free, index)
		}
	}
	return nil
}

// giveBack returns an entry whose token is invalid and drained.
func (t *Table) giveBack(e *ownEntry) {
	t.ownSlotOf(e.index).Store(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, e.index)
}

func (t *Table) ownSlotOf(index uint32) *atomic.Pointer[ownEntry] {
	return &t.own[index/shm.WindowBlockEntries].Load()[index%shm.WindowBlockEntries]
}

// lookup returns the entry of a valid token of this member, its permissions and its word; nil if
// there is none.
func (t *Table) lookup(token nd.Token) (*ownEntry, *permissions, entryWord) {
	index := indexOf(token)
	block := t.own[index/shm.WindowBlockEntries].Load()
	if block == nil {
		return nil, nil, 0
	}
	e := block[index%shm.WindowBlockEntries].Load()
	if e == nil {
		return nil, nil, 0
	}
	if p, word := e.load(); p != nil && word.token() == token {
		return e, p, word
	}
	return nil, nil, 0
}

// load returns the permissions, nil if the token is invalid, and the word with token and rights.
func (e *ownEntry) load() (*permissions, entryWord) {
	p := e.permissions.Load()
	// ORDER own-permissions: after the permissions; pairs with the store in ownEntry.bind
	return p, entryWord(e.word.Load())
}

// hasToken reports whether the latest bind of the entry made this token. The token may be invalid
// by now.
func (e *ownEntry) hasToken(token nd.Token) bool { return entryWord(e.word.Load()).token() == token }

// nextToken reserves the number of the next bind, and its token. The caller holds the lock of the
// window or region that owns the entry.
func (e *ownEntry) nextToken() (token nd.Token, bind uint32) {
	binds := e.entry.binds.Load() + 1
	asym.StoreRelease32(&e.entry.binds, binds)
	failpoint.Reach(failpoint.EntryReserved)
	bind = e.bindBase + binds
	return makeToken(e.index, bind), bind
}

// bind makes a token valid (ENTRY-BIND). The entry's last token must be invalid and drained.
func (e *ownEntry) bind(p *permissions) {
	s, word := e.entry, boundWord(e.index, p.bindNumber, p.rights)
	asym.StoreRelease(&s.base, p.base)
	asym.StoreRelease(&s.length, uint64(len(p.mem)))
	asym.StoreRelease(&s.offset, uint64(p.offset))
	asym.StoreRelease(&s.owner, uint64(p.adapter))
	asym.StoreRelease(&s.scope, p.scope)
	// ORDER own-permissions: before the permissions; pairs with the load in ownEntry.load
	asym.StoreRelease(&e.word, uint64(word))
	asym.StoreReleasePointer(&e.permissions, p)
	failpoint.Reach(failpoint.EntryFilled)
	// ORDER entry-valid: pairs with the loads in Guard.checkPeer, Guard.putOrGet and knownBind.IsPresent
	asym.StoreRelease(&s.word, uint64(word|validBit))
	failpoint.Reach(failpoint.EntryBound)
}

// revoke makes a valid token invalid and returns it. The memory may be in use until the token is
// drained. The caller holds the lock of the window or region that owns the entry.
func (e *ownEntry) revoke() nd.Token {
	p := e.permissions.Load()
	asym.StoreReleasePointer(&e.permissions, nil) // before the exchange, which is a full fence
	failpoint.Reach(failpoint.PermissionsRevoked)
	// ENTRY-INVALIDATE. ORDER hazard: this exchange, then the loads of Domain.drained;
	// pairs with the exchange of Guard.publishHazard and the loads that follow it.
	// ORDER entry-recheck: pairs with the loads in checkedRange.isUnchanged, Guard.putOrGet, knownBind.IsPresent and Guard.End
	e.entry.word.Swap(uint64(boundWord(e.index, p.bindNumber, 0)))
	failpoint.Reach(failpoint.EntryInvalidated)
	if p.rights&Local != 0 {
		// ORDER local-hazard: between the store to permissions and the loads of hazards;
		// pairs with Guard.CopyToEntry and Guard.DeliverSend
		asym.Heavy()
	}
	return p.token
}
