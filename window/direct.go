package window

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The guarded access once more, for what is small and common: one range into
// one range, a chunk at the most, with the tokens that were used last. The steps
// are those of Copy, but nothing is explained: whatever does not look right at
// once is refused, and the caller asks Copy.

// Put copies buf, memory of ours under a local token, into a peer's memory.
// false means that Copy has to say what is wrong, if anything is; as after a
// fault, some of the bytes may have been written then. buf is not empty, and
// no longer than Chunk.
func (g *Guard) Put(far *Peer, remote nd.Token, address uint64, local nd.Token, buf []byte) (ok bool) {
	g.publish(remote, local)
	if mem, e, word := g.away(far, remote, Remote|Write, address, uint64(len(buf))); mem != nil {
		if tm := g.near(local, Local|Read, shm.AddressOf(buf), uint64(len(buf))); tm != nil {
			if !moveWord(mem, buf) {
				move(mem, buf) // COPY
			}
			ok = e.word.Load() == word && g.known.terms.Load() == tm // ORDER entry-recheck: after the copy; pairs with the exchange in grant.revoke
		}
	}
	g.clear()
	return ok
}

// Get is Put the other way round: it fills buf.
func (g *Guard) Get(far *Peer, remote nd.Token, address uint64, local nd.Token, buf []byte) (ok bool) {
	g.publish(local, remote)
	if mem, e, word := g.away(far, remote, Remote|Read, address, uint64(len(buf))); mem != nil {
		if tm := g.near(local, Local|Write, shm.AddressOf(buf), uint64(len(buf))); tm != nil {
			if !moveWord(buf, mem) {
				move(buf, mem) // COPY
			}
			ok = e.word.Load() == word && g.known.terms.Load() == tm // ORDER entry-recheck: after the copy; pairs with the exchange in grant.revoke
		}
	}
	g.clear()
	return ok
}

// Take copies buf, memory of ours under a local token, to where no token is
// needed. Nobody but this process takes a local token back, and that does it so
// rarely that it pays for both sides' barriers.
func (g *Guard) Take(to []byte, local nd.Token, buf []byte) (ok bool) {
	asym.Store(&g.mine, hazardOf(0, local))
	asym.Light() // ORDER own-hazard: between the hazard and the terms; pairs with the barrier in grant.revoke
	if tm := g.near(local, Local|Read, shm.AddressOf(buf), uint64(len(buf))); tm != nil {
		if to = to[:len(buf)]; !moveWord(to, buf) {
			copy(to, buf) // COPY
		}
		ok = g.known.terms.Load() == tm
	}
	asym.Store(&g.mine, 0)
	return ok
}

// Fill is Take the other way round: it copies from to an address of ours.
func (g *Guard) Fill(local nd.Token, address uint64, from []byte) (ok bool) {
	asym.Store(&g.mine, hazardOf(local, 0))
	asym.Light() // ORDER own-hazard: between the hazard and the terms; pairs with the barrier in grant.revoke
	if tm := g.near(local, Local|Write, address, uint64(len(from))); tm != nil {
		if at := tm.mem[address-tm.base:][:len(from)]; !moveWord(at, from) {
			move(at, from) // COPY
		}
		ok = g.known.terms.Load() == tm
	}
	asym.Store(&g.mine, 0)
	return ok
}

// CanFill tells whether Fill would be granted at this moment.
func (g *Guard) CanFill(local nd.Token, address, n uint64) bool {
	return g.near(local, Local|Write, address, n) != nil
}

// near is ENTRY-CHECK for memory of ours, which a local token names by where it
// is. It returns the token's terms, those of g.known; nil: not for sure.
func (g *Guard) near(token nd.Token, rights Rights, address, n uint64) *terms {
	tm, word := g.known.now()
	if tm == nil || word.token() != token { // not the one that was used last
		var grant *grant
		if grant, tm, word = g.space.table.lookup(token); tm == nil {
			return nil
		}
		g.known = grant
	}
	if tm.owner != g.space.owner || word.rights()&rights != rights || !within(address, n, tm.base, uint64(len(tm.mem))) {
		return nil
	}
	return tm
}

// away is ENTRY-CHECK for memory of the peer. It returns that, and the entry
// with its word, which has to be the same after the copy; nil: not for sure.
func (g *Guard) away(far *Peer, token nd.Token, rights Rights, address, n uint64) (mem []byte, e *entry, word uint64) {
	if !far.Link.IsOpen() {
		return nil, nil, 0
	}
	e = &g.entries[indexOf(token)]
	word = e.word.Load() // ORDER entry-valid: pairs with the store in grant.publish
	if entryWord(word)&(validBit|wordOf(^nd.Token(0), rights)) != validBit|wordOf(token, rights) || Owner(e.owner.Load()) != far.Owner {
		return nil, nil, 0
	}
	// ENTRY-FIELDS
	scope, base, offset := e.scope.Load(), e.base.Load(), shm.Offset(e.offset.Load())
	if scope != 0 && scope != far.Endpoint || !within(address, n, base, e.length.Load()) || offset == 0 {
		return nil, nil, 0
	}
	return g.arena.HeapBytes(offset+shm.Offset(address-base), n), e, word // the owner may lie about where its memory is
}
