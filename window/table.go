package window

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Table is one member's view of the shared window table, and the trusted copy
// of what it granted itself. Safe for concurrent use.
type Table struct {
	member  *shm.Member
	arena   *shm.Arena
	entries []entry

	// mine mirrors the entries that this member owns. A peer may scribble over
	// the shared ones, so the owner never acts upon those.
	mine [shm.WindowEntries / shm.WindowBlockEntries]atomic.Pointer[grantBlock]

	mu   sync.Mutex
	free []uint32 // oldest first
}

type grantBlock [shm.WindowBlockEntries]atomic.Pointer[grant]

// NewTable returns the member's view of the table.
func NewTable(m *shm.Member) (*Table, error) {
	entries, err := shm.Slice[entry](m.Arena(), m.Arena().WindowTable(), shm.WindowEntries)
	if err != nil {
		return nil, fmt.Errorf("window: mapping the table: %w", err)
	}
	return &Table{member: m, arena: m.Arena(), entries: entries}, nil
}

// Owner names an adapter among all adapters of the arena.
type Owner uint64

// grant is one index of the table that this member owns. Its terms are nil
// while its token is invalid.
type grant struct {
	index uint32
	first uint32 // tag; see firstTag
	entry *entry
	terms atomic.Pointer[terms]
	word  atomic.Uint64 // boundWord of the latest terms; loaded after them
}

// terms are what a token stands for, from its bind to its invalidation. They
// do not change before that has drained, but may be used again afterwards: who
// looks at them has a hazard that names the token, and has found the token in
// grant.word since. Only owner and loan never change.
type terms struct {
	token  nd.Token
	bind   uint32 // number of the bind; its lower part is the token's tag
	rights Rights
	base   uint64 // address of mem[0], as peers count
	mem    []byte
	offset shm.Offset // where mem lies in the arena; 0 = it does not
	owner  Owner
	scope  uint64 // endpoint whose peer alone may use it; 0 = any
	loan   Loan   // what an invalidation of the token ends; nil = it cannot be invalidated by a request
	bound  uint64 // endpoint on which the window was bound, or the region registered
}

// take hands out an index, the one that has been free for longest.
func (t *Table) take() (*grant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A reserve of free indexes keeps any one of them from coming back soon.
	if len(t.free) <= shm.WindowBlockEntries/2 {
		if err := t.claim(); err != nil && len(t.free) == 0 {
			return nil, err
		}
	}
	index := t.free[0]
	t.free = t.free[1:]
	g := &grant{index: index, first: firstTag(t.arena.Secret(), index), entry: &t.entries[index]}
	t.slot(index).Store(g)
	return g, nil
}

// claim adds a block of indexes to the free ones. What its last owner left in
// the entries is made invalid, but the tags go on from where they were.
func (t *Table) claim() error {
	block, err := t.member.ClaimWindowBlock()
	if err != nil {
		return err
	}
	t.mine[block].Store(new(grantBlock))
	for i := range uint32(shm.WindowBlockEntries) {
		index := uint32(block)*shm.WindowBlockEntries + i
		t.entries[index].word.Store(0)
		if index != 0 {
			t.free = append(t.free, index)
		}
	}
	return nil
}

// giveBack returns an index whose token is invalid and drained.
func (t *Table) giveBack(g *grant) {
	t.slot(g.index).Store(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, g.index)
}

func (t *Table) slot(index uint32) *atomic.Pointer[grant] {
	return &t.mine[index/shm.WindowBlockEntries].Load()[index%shm.WindowBlockEntries]
}

// lookup finds what this member granted under a token; nil if nothing.
func (t *Table) lookup(token nd.Token) (*grant, *terms, entryWord) {
	index := indexOf(token)
	block := t.mine[index/shm.WindowBlockEntries].Load()
	if block == nil {
		return nil, nil, 0
	}
	g := block[index%shm.WindowBlockEntries].Load()
	if g == nil {
		return nil, nil, 0
	}
	if tm, word := g.now(); tm != nil && word.token() == token {
		return g, tm, word
	}
	return nil, nil, 0
}

// now returns the terms, nil if the token is invalid, and its token and rights.
func (g *grant) now() (*terms, entryWord) {
	tm := g.terms.Load()
	return tm, entryWord(g.word.Load()) // ORDER own-terms: after the terms; pairs with the store in grant.publish
}

// was tells whether the latest terms had that token, which may be invalid again.
func (g *grant) was(token nd.Token) bool { return entryWord(g.word.Load()).token() == token }

// next reserves the number of the bind to come, and its token. The caller holds
// the lock of the grant's window or region.
func (g *grant) next() (token nd.Token, bind uint32) {
	binds := g.entry.binds.Load() + 1
	asym.Store32(&g.entry.binds, binds)
	bind = g.first + binds
	return makeToken(g.index, bind), bind
}

// publish is ENTRY-BIND: it makes a token valid. The grant must be invalid and drained.
func (g *grant) publish(tm *terms) {
	e, word := g.entry, boundWord(g.index, tm.bind, tm.rights)
	asym.Store(&e.base, tm.base)
	asym.Store(&e.length, uint64(len(tm.mem)))
	asym.Store(&e.offset, uint64(tm.offset))
	asym.Store(&e.owner, uint64(tm.owner))
	asym.Store(&e.scope, tm.scope)
	asym.Store(&g.word, uint64(word)) // ORDER own-terms: before the terms; pairs with the load in grant.now
	asym.StorePointer(&g.terms, tm)
	asym.Store(&e.word, uint64(word|validBit)) // ORDER entry-valid: pairs with the loads in Guard.peer and Guard.direct
}

// revoke makes the token invalid and returns it, 0 if it was invalid already.
// The caller holds the lock of the grant's window or region.
// The memory may still be in use until the token is drained.
func (g *grant) revoke() nd.Token {
	tm := g.terms.Load()
	if tm == nil {
		return 0
	}
	asym.StorePointer(&g.terms, nil) // before the exchange, which is a barrier
	// ENTRY-INVALIDATE. ORDER hazard: this exchange, then the loads of Space.Drained;
	// pairs with the exchange of Guard.publish and the loads that follow it.
	g.entry.word.Swap(uint64(boundWord(g.index, tm.bind, 0))) // ORDER entry-recheck: pairs with the loads in span.stands and Guard.direct
	if tm.rights&Local != 0 {
		asym.Heavy() // ORDER own-hazard: between the terms and the look at the hazards; pairs with Guard.Take and Guard.Fill
	}
	return tm.token
}
