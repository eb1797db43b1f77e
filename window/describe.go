package window

import "fmt"

// DescribeAccess returns in words what the token of o allows at this moment, for the message of a
// refused copy. Of a peer's token that was invalidated, it says what the token allowed, until the
// entry has its next token.
func (g *Guard) DescribeAccess(o *Operand) string {
	if o.Peer != nil {
		return g.describePeerAccess(o)
	}
	g.publishHazard(makeHazard(o.Token, 0))
	defer g.clearHazard()
	_, p, word := g.domain.table.lookup(o.Token)
	switch {
	case p == nil || p.adapter != g.domain.Adapter:
		return "nothing"
	case word.rights()&kindOf(o.Rights) == 0:
		return describeWrongKind(word)
	}
	return describeRange(word.rights(), p.base, uint64(len(p.mem)))
}

func (g *Guard) describePeerAccess(o *Operand) string {
	index, t := indexOf(o.Token), g.domain.table
	e := &t.entries[index]
	word := entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in ownEntry.bind
	adapter, base, length := e.owner.Load(), e.base.Load(), e.length.Load()
	latest := makeToken(index, bindBaseOf(t.arena.Info().Secret, index)+e.binds.Load())
	switch {
	case word.valid() && word.token() == o.Token && word.rights()&kindOf(o.Rights) == 0: // of any adapter
		return describeWrongKind(word)
	case o.Token == 0 || word.token() != o.Token || adapter != o.Peer.Adapter:
		return "nothing"
	case word.valid() && entryWord(e.word.Load()) == word: // while the word stays valid, the fields are its own,
		return describeRange(word.rights(), base, length)
	case latest == o.Token: // and also until the next token is made
		return fmt.Sprintf("nothing (invalidated; it covered %d bytes at %#x)", length, base)
	}
	return "nothing (invalidated)"
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
