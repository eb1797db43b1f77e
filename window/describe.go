package window

import "fmt"

// Granted words what the token of r grants at this moment, for the message of a
// copy that was refused. Of a peer's token that was taken back it tells what was
// granted, until the index is given its next token.
func (g *Guard) Granted(r *Ref) string {
	if r.Of != nil {
		return g.grantedByPeer(r)
	}
	g.publish(hazardOf(r.Token, 0))
	defer g.clear()
	_, tm, word := g.space.table.lookup(r.Token)
	switch {
	case tm == nil || tm.owner != g.space.owner:
		return "nothing"
	case word.rights()&kindOf(r.Rights) == 0:
		return otherKind(word)
	}
	return grantText(word.rights(), tm.base, uint64(len(tm.mem)))
}

func (g *Guard) grantedByPeer(r *Ref) string {
	index, t := indexOf(r.Token), g.space.table
	e := &t.entries[index]
	word := entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in grant.publish
	owner, base, length := Owner(e.owner.Load()), e.base.Load(), e.length.Load()
	latest := makeToken(index, firstTag(t.arena.Secret(), index)+e.binds.Load())
	switch {
	case word.valid() && word.token() == r.Token && word.rights()&kindOf(r.Rights) == 0: // whosever it is
		return otherKind(word)
	case r.Token == 0 || word.token() != r.Token || owner != r.Of.Owner:
		return "nothing"
	case word.valid() && entryWord(e.word.Load()) == word: // again, on purpose: the fields do not change while the word is valid,
		return grantText(word.rights(), base, length)
	case latest == r.Token: // nor before there is another token
		return fmt.Sprintf("nothing any more (%d bytes at %#x before)", length, base)
	}
	return "nothing any more"
}

// otherKind words what a token grants that is local where a remote one belongs, or the
// reverse.
func otherKind(word entryWord) string {
	if word.rights()&Local != 0 {
		return "nothing to a peer, since it is the local token of a region (pass the remote token of the peer's region or window)"
	}
	return "nothing here, since it is a remote token (pass the local token of the region)"
}

// kindOf says for which kind of request rights are meant.
func kindOf(r Rights) Rights { return r & (Remote | Local) }

func grantText(r Rights, base, length uint64) string {
	return fmt.Sprintf("%d bytes at %#x %s", length, base, rightsText[r&(Read|Write)])
}

var rightsText = [...]string{0: "without any right", Read: "to read", Write: "to write", Read | Write: "to read and write"}
