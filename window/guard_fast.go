package window

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The fast path of the guarded access: one range to one range, at most a chunk, with the steps of Copy. It reports no
// fault: if anything fails, it returns false, and the caller asks Copy for the reason.

// Put copies buf, memory of ours with a local token, into a peer's memory. buf must have 1 to ChunkSize bytes. If Put
// returns false, the caller must call Copy, which succeeds or says what is wrong. As after a fault, some bytes may have been
// written.
func (g *Guard) Put(peer *Peer, remote nd.Token, address uint64, local nd.Token, buf []byte) (ok bool) {
	return g.copyFast(peer, remote, Remote|Write, address, local, buf)
}

// Get copies a peer's memory into buf. Otherwise it is like [Guard.Put].
func (g *Guard) Get(peer *Peer, remote nd.Token, address uint64, local nd.Token, buf []byte) (ok bool) {
	return g.copyFast(peer, remote, Remote|Read, address, local, buf)
}

// copyFast is Put and Get. rights are those that the remote token must have; the local token must have the opposite ones.
func (g *Guard) copyFast(peer *Peer, remote nd.Token, rights Rights, address uint64, local nd.Token, buf []byte) (ok bool) {
	n := uint64(len(buf))
	g.publishHazard(makeHazard(remote, local)) // the order of the two does not matter here
	if !g.cachedEntry.hasToken(local) {
		g.cacheEntry(local)
	}
	p, localWord := g.cachedEntry.load()
	e := &g.entries[indexOf(remote)]
	word := e.word.Load() // ORDER entry-valid: pairs with the store in ownEntry.bind
	// ENTRY-CHECK, of the local token and of the remote one.
	if p.allows(localWord, local, rights^(Remote|Local|Read|Write), shm.AddressOf(buf), n) && peer.Connected() &&
		entryWord(word)&(validBit|wordOf(^nd.Token(0), rights)) == validBit|wordOf(remote, rights) && e.owner.Load() == peer.Adapter {
		// ENTRY-FIELDS
		scope, base, offset := e.scope.Load(), e.base.Load(), shm.Offset(e.offset.Load())
		switch {
		case offset == 0:
			g.unreachable = remote
		case (scope == 0 || scope == peer.Endpoint) && within(address, n, base, e.length.Load()):
			if mem := g.arena.HeapBytes(offset+shm.Offset(address-base), n); mem != nil { // nil: the entry names memory outside the heap
				to, from := mem, buf
				if rights&Write == 0 {
					to, from = buf, mem
				}
				if !copyWord(to, from) {
					copyOrdered(to, from) // COPY
				}
				ok = e.word.Load() == word && g.cachedEntry.permissions.Load() == p // ORDER entry-recheck: after the copy; pairs with the exchange in ownEntry.revoke
			}
		}
	}
	g.clearHazard()
	return ok
}

// Gather copies buf, memory of ours with a local token, to plain memory. Only this process invalidates a local token, and
// it does so rarely. So the hazard needs no fence here; ownEntry.revoke calls [asym.Heavy].
func (g *Guard) Gather(to []byte, local nd.Token, buf []byte) (ok bool) {
	if !g.cachedEntry.hasToken(local) {
		return g.cacheEntry(local) && g.Gather(to, local, buf)
	}
	asym.StoreRelease(&g.localHazard, makeHazard(0, local))
	asym.Light() // ORDER local-hazard: between the store of the hazard and the load of permissions; pairs with Heavy in ownEntry.revoke
	p, word := g.cachedEntry.load()
	if p.allows(word, local, Local|Read, shm.AddressOf(buf), uint64(len(buf))) {
		if to = to[:len(buf)]; !copyWord(to, buf) {
			copy(to, buf) // COPY
		}
		ok = g.cachedEntry.permissions.Load() == p
	}
	asym.StoreRelease(&g.localHazard, 0) // ORDER hazard-clear: as in clearHazard
	return ok
}

// DeliverWrite copies from, the payload of a peer's Write, to memory of ours with a remote token. endpoint is the one that
// is connected to the peer.
func (g *Guard) DeliverWrite(token nd.Token, address uint64, from []byte, endpoint uint64) (ok bool) {
	g.localHazard.Swap(makeHazard(token, 0)) // ORDER hazard: as in publishHazard; only this process invalidates the token
	if !g.cachedEntry.hasToken(token) {
		g.cacheEntry(token)
	}
	p, word := g.cachedEntry.load()
	if p.allows(word, token, Remote|Write, address, uint64(len(from))) && (p.scope == 0 || p.scope == endpoint) {
		if at := p.mem[address-p.base:][:len(from)]; !copyWord(at, from) {
			copyOrdered(at, from) // COPY
		}
		ok = g.cachedEntry.permissions.Load() == p
	}
	asym.StoreRelease(&g.localHazard, 0) // ORDER hazard-clear: as in clearHazard
	return ok
}

// Scatter copies from, plain memory, to an address of ours with a local token. Otherwise it is like [Guard.Gather].
func (g *Guard) Scatter(local nd.Token, address uint64, from []byte) (ok bool) {
	if !g.cachedEntry.hasToken(local) {
		return g.cacheEntry(local) && g.Scatter(local, address, from)
	}
	asym.StoreRelease(&g.localHazard, makeHazard(local, 0))
	asym.Light() // ORDER local-hazard: between the store of the hazard and the load of permissions; pairs with Heavy in ownEntry.revoke
	p, word := g.cachedEntry.load()
	if p.allows(word, local, Local|Write, address, uint64(len(from))) {
		if at := p.mem[address-p.base:][:len(from)]; !copyWord(at, from) {
			copyOrdered(at, from) // COPY
		}
		ok = g.cachedEntry.permissions.Load() == p
	}
	asym.StoreRelease(&g.localHazard, 0) // ORDER hazard-clear: as in clearHazard
	return ok
}

// CanScatter reports whether Scatter of n bytes would succeed at this moment.
func (g *Guard) CanScatter(local nd.Token, address, n uint64) bool {
	if !g.cachedEntry.hasToken(local) {
		return g.cacheEntry(local) && g.CanScatter(local, address, n)
	}
	p, word := g.cachedEntry.load()
	return p.allows(word, local, Local|Write, address, n)
}

// KnownUnreachable reports whether remote is the last token for which Put or Get found that its memory is private. The peer
// must copy such memory itself.
func (g *Guard) KnownUnreachable(remote nd.Token) bool { return remote != 0 && g.unreachable == remote }

// allows is ENTRY-CHECK for memory of ours. p and word are those of Guard.cachedEntry. allows returns false if they belong to another token, or if the token is invalid.
func (p *permissions) allows(word entryWord, token nd.Token, rights Rights, address, n uint64) bool {
	asked := wordOf(token, rights)
	return p != nil && word&(asked|wordOf(^nd.Token(0), 0)) == asked && within(address, n, p.base, uint64(len(p.mem)))
}
