package window

// TWIN c/src/window/guard.h.

import (
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The fast path of the guarded access: one range to one range, at most a chunk, with the steps of
// Guard.Copy. It does not say why a copy was refused: the caller then calls Copy, which succeeds or
// finds the fault. As after a fault of Copy, some bytes may have been written.
//
//	Put            requester's memory -> peer's memory       a Write
//	Get            peer's memory -> requester's memory       a Read
//	CopyToEntry    requester's memory -> ring entry          a small Send, or a small Write that the responder executes
//	DeliverSend    ring entry -> responder's memory          that Send; at the requester the old value of an atomic
//	DeliverWrite   ring entry -> responder's memory          that Write

// Put copies the memory of sge, of 1 to ChunkSize bytes, to a peer's memory. It returns NoFault if
// it has, and FaultUnreachable if only the peer can access the memory of token remoteToken. After
// another fault, the caller calls Copy.
func (g *Guard) Put(far *FarEnd, sge *nd.SGE, remoteAddress uint64, remoteToken nd.Token) Fault {
	return g.putOrGet(far, sge, remoteAddress, remoteToken, Remote|Write)
}

// Get copies a peer's memory to the memory of sge. Otherwise it is like [Guard.Put].
func (g *Guard) Get(far *FarEnd, sge *nd.SGE, remoteAddress uint64, remoteToken nd.Token) Fault {
	return g.putOrGet(far, sge, remoteAddress, remoteToken, Remote|Read)
}

// putOrGet is Put and Get. rights are those that the remote token must have; the local token must
// have the opposite ones.
func (g *Guard) putOrGet(far *FarEnd, sge *nd.SGE, remoteAddress uint64, remoteToken nd.Token, rights Rights) (f Fault) {
	localToken, buf, n := sge.Token, sge.Buffer, uint64(len(sge.Buffer))
	f = faultUnspecified
	g.publishHazard(makeHazard(remoteToken, localToken)) // the order of the two does not matter here
	p, localWord := g.lastEntry.load()
	if localWord.token() != localToken {
		g.findEntry(localToken)
		p, localWord = g.lastEntry.load()
	}
	// ENTRY-CHECK and ENTRY-FIELDS. The known fields are the bind's while its word is in the entry.
	known := &far.known[remoteToken%knownBinds]
	e, word, base, mem := known.entry, known.word, known.base, known.mem
	if !word.validAndAllows(remoteToken, rights) || !known.IsPresent() {
		if e, word, base, mem, f = g.learn(known, far, remoteToken, rights); f != NoFault {
			g.clearHazard()
			return f
		}
		f = faultUnspecified
	}
	if p.allows(localWord, localToken, rights^(Remote|Local|Read|Write), shm.AddressOf(buf), n) &&
		far.IsOpen() && within(remoteAddress, n, base, uint64(len(mem))) {
		to, from := mem[remoteAddress-base:][:n], buf
		if rights&Write == 0 {
			to, from = from, to
		}
		if failpoint.Enabled {
			failpoint.Reach(failpoint.EntryChecked)
		}
		if !copyWord(to, from) { // COPY: copyWord stores 8 aligned bytes at once
			copyOrdered(to, from)
		}
		if failpoint.Enabled {
			failpoint.Reach(failpoint.ChunkCopied)
		}
		// ENTRY-RECHECK. ORDER entry-recheck: after the copy; pairs with the exchange in ownEntry.revoke
		if entryWord(e.word.Load()) == word && g.lastEntry.permissions.Load() == p {
			f = NoFault
			if failpoint.Enabled {
				failpoint.Reach(failpoint.EntryRechecked)
			}
		}
	}
	g.clearHazard()
	return f
}

// The steps of [Guard.Put] for one aligned word, with a local token that was used last and a bind of the peer that is known. Each is
// so small that the compiler inlines it into the post, which then calls no function. If a step refuses, the caller calls Put, which may find
// that the word is written.

// Known returns the place of the bind of a peer's token, if it is known.
func (f *FarEnd) Known(token nd.Token) *knownBind { return &f.known[token%knownBinds] }

// HasWord reports whether a Write with a token can store 8 bytes at an address, a multiple of 8, while IsPresent. A bind without the right,
// or whose memory is aligned otherwise, has no words.
func (k *knownBind) HasWord(token nd.Token, address uint64) bool {
	return k.word.token() == token && address-k.base < k.words
}

// HasSource reports whether a local token was used last, and local requests can read 8 bytes at an address with it, while
// Begin finds the bind.
func (g *Guard) HasSource(token nd.Token, address uint64) bool {
	return g.source.token() == token && address-g.sourceBase < g.sourceWords
}

// Begin is HAZARD-PUBLISH, and ENTRY-CHECK of the local token: it returns the permissions of HasSource, nil if the token is invalid,
// and whether they are still those of that bind.
func (g *Guard) Begin(remoteToken, localToken nd.Token) (p *permissions, isSame bool) {
	g.publishHazard(makeHazard(remoteToken, localToken))
	p, word := g.lastEntry.load()
	return p, word == g.source
}

// IsPresent reports whether the entry has the bind. It is ENTRY-CHECK and ENTRY-FIELDS of the peer's token, and after the copy ENTRY-RECHECK.
func (k *knownBind) IsPresent() bool {
	// ORDER entry-valid: pairs with the store in ownEntry.bind. ORDER entry-recheck: after the copy; pairs with the exchange in ownEntry.revoke
	return entryWord(k.entry.word.Load()) == k.word
}

// PutWord is COPY of the 8 bytes of source to an address of HasWord.
func (k *knownBind) PutWord(address uint64, source []byte) {
	if failpoint.Enabled {
		failpoint.Reach(failpoint.EntryChecked)
	}
	copyOneWord(k.mem, address-k.base, source)
	if failpoint.Enabled {
		failpoint.Reach(failpoint.ChunkCopied)
	}
}

// End is ENTRY-RECHECK of the local token, for the permissions of Begin, and HAZARD-CLEAR. It reports whether the request has
// succeeded; isDone says whether it has so far.
func (g *Guard) End(p *permissions, isDone bool) bool {
	isSame := g.lastEntry.permissions.Load() == p // ORDER entry-recheck: as in IsPresent
	if isDone && isSame {
		if failpoint.Enabled {
			failpoint.Reach(failpoint.EntryRechecked)
		}
	}
	g.clearHazard()
	return isDone && isSame
}

// wordsIn returns how many addresses in n bytes are those of 8 bytes.
func wordsIn(n uint64) uint64 { return max(n, 7) - 7 }

// learn returns the bind of a peer's token that has these rights, if all of its memory can be reached. It puts the bind in the place
// of known if that has ended, or if many requests have used others. The hazard is published.
func (g *Guard) learn(known *knownBind, far *FarEnd, token nd.Token, rights Rights) (e *accessEntry, word entryWord, base uint64, mem []byte, f Fault) {
	e = &g.entries[indexOf(token)]
	word = entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in ownEntry.bind
	if !word.validAndAllows(token, rights) || e.owner.Load() != far.Adapter {
		return nil, 0, 0, nil, faultUnspecified
	}
	scope, length, offset := e.scope.Load(), e.length.Load(), shm.Offset(e.offset.Load())
	base = e.base.Load()
	if scope != 0 && scope != far.Endpoint {
		return nil, 0, 0, nil, faultUnspecified
	}
	if offset == 0 || e.ends.Load() != 0 {
		return nil, 0, 0, nil, FaultUnreachable
	}
	if mem = g.arena.HeapBytes(offset, length); mem == nil {
		return nil, 0, 0, nil, faultUnspecified // the entry names memory outside the heap
	}
	if known.others++; known.others == knownFor || known.word == 0 || !known.IsPresent() {
		*known = knownBind{word: word, entry: e, base: base, mem: mem}
		if word.allows(token, Remote|Write) && (base-shm.AddressOf(mem))%8 == 0 && base+length >= base {
			known.words = wordsIn(uint64(len(mem)))
		}
	}
	return e, word, base, mem, NoFault
}

// CopyToEntry copies the memory of sge to entry, the payload of a ring entry. Only this process
// invalidates a local token, and it does so rarely. So the hazard needs no fence here;
// ownEntry.revoke calls [asym.Heavy].
func (g *Guard) CopyToEntry(entry []byte, sge *nd.SGE) (ok bool) {
	localToken, buf := sge.Token, sge.Buffer
	if !g.lastEntry.hasToken(localToken) {
		return g.findEntry(localToken) && g.CopyToEntry(entry, sge)
	}
	asym.StoreRelease(&g.privateHazard, makeHazard(0, localToken)) // HAZARD-PUBLISH
	// ORDER local-hazard: between the store of the hazard and the load of permissions; pairs with
	// Heavy in ownEntry.revoke
	asym.Light()
	failpoint.Reach(failpoint.LocalHazardPublished)
	p, word := g.lastEntry.load()
	if p.allows(word, localToken, Local|Read, shm.AddressOf(buf), uint64(len(buf))) {
		if entry = entry[:len(buf)]; !copyWord(entry, buf) { // COPY: copyWord stores 8 aligned bytes at once
			copy(entry, buf)
		}
		failpoint.Reach(failpoint.LocalCopied)
		ok = g.lastEntry.permissions.Load() == p // ENTRY-RECHECK
	}
	asym.StoreRelease(&g.privateHazard, 0) // HAZARD-CLEAR; ORDER hazard-clear: as in clearHazard
	failpoint.Reach(failpoint.LocalHazardCleared)
	return ok
}

// DeliverSend copies data, the payload of a peer's Send or the old value of an atomic of ours, to an
// address of ours with a local token. The hazard is that of [Guard.CopyToEntry].
func (g *Guard) DeliverSend(address uint64, localToken nd.Token, data []byte) (ok bool) {
	if !g.lastEntry.hasToken(localToken) {
		return g.findEntry(localToken) && g.DeliverSend(address, localToken, data)
	}
	asym.StoreRelease(&g.privateHazard, makeHazard(localToken, 0)) // HAZARD-PUBLISH
	// ORDER local-hazard: between the store of the hazard and the load of permissions; pairs with
	// Heavy in ownEntry.revoke
	asym.Light()
	failpoint.Reach(failpoint.LocalHazardPublished)
	p, word := g.lastEntry.load()
	if p.allows(word, localToken, Local|Write, address, uint64(len(data))) {
		if at := p.mem[address-p.base:][:len(data)]; !copyWord(at, data) { // COPY: copyWord stores 8 aligned bytes at once
			copyOrdered(at, data)
		}
		failpoint.Reach(failpoint.LocalCopied)
		ok = g.lastEntry.permissions.Load() == p // ENTRY-RECHECK
	}
	asym.StoreRelease(&g.privateHazard, 0) // HAZARD-CLEAR; ORDER hazard-clear: as in clearHazard
	failpoint.Reach(failpoint.LocalHazardCleared)
	return ok
}

// CanDeliverSend reports whether DeliverSend of n bytes would succeed at this moment. It stores no
// hazard: the permissions of a region's local token are never reused.
func (g *Guard) CanDeliverSend(address uint64, localToken nd.Token, n uint64) bool {
	if !g.lastEntry.hasToken(localToken) {
		return g.findEntry(localToken) && g.CanDeliverSend(address, localToken, n)
	}
	p, word := g.lastEntry.load()
	return p.allows(word, localToken, Local|Write, address, n)
}

// DeliverWrite copies data, the payload of a peer's Write, to an address of ours with a remote
// token. endpoint is the one that is connected to the peer.
func (g *Guard) DeliverWrite(address uint64, remoteToken nd.Token, data []byte, endpoint uint64) (ok bool) {
	// HAZARD-PUBLISH. ORDER hazard: as in publishHazard; only this process invalidates the token
	g.privateHazard.Swap(makeHazard(remoteToken, 0))
	failpoint.Reach(failpoint.LocalHazardPublished)
	if !g.lastEntry.hasToken(remoteToken) {
		g.findEntry(remoteToken)
	}
	p, word := g.lastEntry.load()
	if p.allows(word, remoteToken, Remote|Write, address, uint64(len(data))) && (p.scope == 0 || p.scope == endpoint) {
		if at := p.mem[address-p.base:][:len(data)]; !copyWord(at, data) { // COPY: copyWord stores 8 aligned bytes at once
			copyOrdered(at, data)
		}
		failpoint.Reach(failpoint.LocalCopied)
		ok = g.lastEntry.permissions.Load() == p // ENTRY-RECHECK
	}
	asym.StoreRelease(&g.privateHazard, 0) // HAZARD-CLEAR; ORDER hazard-clear: as in clearHazard
	failpoint.Reach(failpoint.LocalHazardCleared)
	return ok
}

// allows is ENTRY-CHECK for a token of this domain. p and word are the permissions and the word of
// Guard.lastEntry. It returns false if they belong to another token, or if the token is invalid.
func (p *permissions) allows(word entryWord, token nd.Token, rights Rights, address, n uint64) bool {
	return p != nil && word.allows(token, rights) && within(address, n, p.base, uint64(len(p.mem)))
}
