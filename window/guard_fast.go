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
	return g.direct(far, remote, Remote|Write, address, local, buf)
}

// Get is Put the other way round: it fills buf.
func (g *Guard) Get(far *Peer, remote nd.Token, address uint64, local nd.Token, buf []byte) (ok bool) {
	return g.direct(far, remote, Remote|Read, address, local, buf)
}

// direct is Put and Get. rights are what the remote token has to give, and the
// local one the opposite.
func (g *Guard) direct(far *Peer, remote nd.Token, rights Rights, address uint64, local nd.Token, buf []byte) (ok bool) {
	n := uint64(len(buf))
	g.publish(hazardOf(remote, local)) // which half is whose does not matter here
	if !g.known.was(local) {
		g.learn(local)
	}
	tm, own := g.known.now()
	e := &g.entries[indexOf(remote)]
	word := e.word.Load() // ORDER entry-valid: pairs with the store in grant.publish
	// ENTRY-CHECK for memory of the peer.
	if tm.covers(own, local, rights^(Remote|Local|Read|Write), shm.AddressOf(buf), n) && far.Link.IsOpen() &&
		entryWord(word)&(validBit|wordOf(^nd.Token(0), rights)) == validBit|wordOf(remote, rights) && Owner(e.owner.Load()) == far.Owner {
		// ENTRY-FIELDS
		scope, base, offset := e.scope.Load(), e.base.Load(), shm.Offset(e.offset.Load())
		switch {
		case offset == 0:
			g.private = remote
		case (scope == 0 || scope == far.Endpoint) && within(address, n, base, e.length.Load()):
			if mem := g.arena.HeapBytes(offset+shm.Offset(address-base), n); mem != nil { // the owner may lie about where its memory is
				to, from := mem, buf
				if rights&Write == 0 {
					to, from = buf, mem
				}
				if !moveWord(to, from) {
					move(to, from) // COPY
				}
				ok = e.word.Load() == word && g.known.terms.Load() == tm // ORDER entry-recheck: after the copy; pairs with the exchange in grant.revoke
			}
		}
	}
	g.clear()
	return ok
}

// Take copies buf, memory of ours under a local token, to where no token is
// needed. Nobody but this process takes a local token back, and that does it so
// rarely that it pays for both sides' barriers.
func (g *Guard) Take(to []byte, local nd.Token, buf []byte) (ok bool) {
	if !g.known.was(local) {
		return g.learn(local) && g.Take(to, local, buf)
	}
	asym.Store(&g.mine, hazardOf(0, local))
	asym.Light() // ORDER own-hazard: between the hazard and the terms; pairs with the barrier in grant.revoke
	tm, word := g.known.now()
	if tm.covers(word, local, Local|Read, shm.AddressOf(buf), uint64(len(buf))) {
		if to = to[:len(buf)]; !moveWord(to, buf) {
			copy(to, buf) // COPY
		}
		ok = g.known.terms.Load() == tm
	}
	asym.Store(&g.mine, 0) // ORDER hazard-clear: as in clear
	return ok
}

// Land copies from to memory of ours under a remote token, for the peer of one of
// our endpoints.
func (g *Guard) Land(token nd.Token, address uint64, from []byte, endpoint uint64) (ok bool) {
	g.mine.Swap(hazardOf(token, 0)) // ORDER hazard: as in publish; nobody but this process takes the token back
	if !g.known.was(token) {
		g.learn(token)
	}
	tm, word := g.known.now()
	if tm.covers(word, token, Remote|Write, address, uint64(len(from))) && (tm.scope == 0 || tm.scope == endpoint) {
		if at := tm.mem[address-tm.base:][:len(from)]; !moveWord(at, from) {
			move(at, from) // COPY
		}
		ok = g.known.terms.Load() == tm
	}
	asym.Store(&g.mine, 0) // ORDER hazard-clear: as in clear
	return ok
}

// Fill is Take the other way round: it copies from to an address of ours.
func (g *Guard) Fill(local nd.Token, address uint64, from []byte) (ok bool) {
	if !g.known.was(local) {
		return g.learn(local) && g.Fill(local, address, from)
	}
	asym.Store(&g.mine, hazardOf(local, 0))
	asym.Light() // ORDER own-hazard: between the hazard and the terms; pairs with the barrier in grant.revoke
	tm, word := g.known.now()
	if tm.covers(word, local, Local|Write, address, uint64(len(from))) {
		if at := tm.mem[address-tm.base:][:len(from)]; !moveWord(at, from) {
			move(at, from) // COPY
		}
		ok = g.known.terms.Load() == tm
	}
	asym.Store(&g.mine, 0) // ORDER hazard-clear: as in clear
	return ok
}

// CanFill tells whether Fill would be granted at this moment.
func (g *Guard) CanFill(local nd.Token, address, n uint64) bool {
	if !g.known.was(local) {
		return g.learn(local) && g.CanFill(local, address, n)
	}
	tm, word := g.known.now()
	return tm.covers(word, local, Local|Write, address, n)
}

// OutOfReach tells whether the latest of the peer's tokens under which Put or Get
// has found no memory in the arena was this one: the peer has to move the bytes.
func (g *Guard) OutOfReach(remote nd.Token) bool { return remote != 0 && g.private == remote }

// covers is ENTRY-CHECK for memory of ours, which a local token names by where it
// is. tm and word are those of g.known; if they are not the token's, or no more,
// nothing is covered.
func (tm *terms) covers(word entryWord, token nd.Token, rights Rights, address, n uint64) bool {
	asked := wordOf(token, rights)
	return tm != nil && word&(asked|wordOf(^nd.Token(0), 0)) == asked && within(address, n, tm.base, uint64(len(tm.mem)))
}
