package window

import (
	"fmt"

	"github.com/softnd/softnd/nd"
)

// DescribeAccess returns in words what the token of o allows at this moment, for the message of a
// refused copy. If it allows nothing, the text has the reason.
func (g *Guard) DescribeAccess(o *Operand) string {
	if o.Far != nil {
		return g.describePeerAccess(o)
	}
	g.publishHazard(makeHazard(o.Token, 0))
	defer g.clearHazard()
	_, p, word := g.domain.table.lookup(o.Token)
	switch {
	case p == nil || p.adapter != g.domain.Adapter:
		return "nothing (" + g.domain.table.describeInvalid(o.Token, g.domain.Adapter, g.domain.Adapter) + ")"
	case word.rights()&kindOf(o.Rights) == 0:
		return describeWrongKind(word)
	}
	return describeRange(word.rights(), p.base, uint64(len(p.mem)))
}

func (g *Guard) describePeerAccess(o *Operand) string {
	t := g.domain.table
	e := &t.entries[indexOf(o.Token)]
	word := entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in ownEntry.bind
	adapter, base, length := e.owner.Load(), e.base.Load(), e.length.Load()
	switch {
	case !word.valid() || word.token() != o.Token:
	case word.rights()&kindOf(o.Rights) == 0: // of any adapter
		return describeWrongKind(word)
	case adapter == o.Far.Adapter && entryWord(e.word.Load()) == word: // while the word stays valid, the fields are its own
		return describeRange(word.rights(), base, length)
	}
	return "nothing (" + t.describeInvalid(o.Token, o.Far.Adapter, g.domain.Adapter) + ")"
}

// describeInvalid returns why a token gives no access to the memory of the adapter wanted. The shared table has recorded the
// reason. self is the adapter of this side. TWIN c/src/endpoint/describe.c.
func (t *Table) describeInvalid(token nd.Token, wanted, self uint64) string {
	index := indexOf(token)
	e := &t.entries[index]
	word := entryWord(e.word.Load())
	adapter, base, length, binds := e.owner.Load(), e.base.Load(), e.length.Load(), e.binds.Load()
	later := (bindBaseOf(t.arena.Info().Secret, index) + binds - uint32(token)>>indexBits) & tagMask // binds since that of the token
	switch {
	case token == 0:
		return "0 is no token: a window has none before its first bind"
	case later >= binds:
		return "no region or window has had this token: pass it unchanged, as its owner sent it"
	case later > 0:
		return "out of date: its window was bound, or its region registered, again since: ask the owner for the present token"
	case adapter == self && self != wanted:
		return "it is a token of this side's own memory: pass the one that the peer has sent"
	case adapter != wanted && self == wanted:
		return "it is a token of another adapter's memory: pass the one of a region of this adapter"
	case adapter != wanted:
		return "it is a token of another adapter than the one at the other end"
	case word.token() != token:
		return "its bind has not run yet"
	}
	return fmt.Sprintf("invalidated; it covered %d bytes at %#x", length, base) // also if it was valid a moment ago
}

// describeWrongKind says that a local token was used as a remote one, or the reverse.
func describeWrongKind(word entryWord) string {
	if word.rights()&Local != 0 {
		return "nothing to a peer, since it is the local token of a region (pass the remote token of the peer's region or window)"
	}
	return "nothing here, since it is a remote token (pass the local token of the region)"
}

// kindOf returns the bits of rights that say whether a token is local or remote.
func kindOf(r Rights) Rights { return r & (Remote | Local) }

func describeRange(r Rights, base, length uint64) string {
	return fmt.Sprintf("%d bytes at %#x %s", length, base, rightsText[r&(Read|Write)])
}

var rightsText = [...]string{0: "without access rights", Read: "to read", Write: "to write", Read | Write: "to read and write"}
