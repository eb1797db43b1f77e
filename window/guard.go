package window

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// ChunkSize is the number of bytes that are copied between two checks of the tokens. An invalidation waits for one chunk of
// a running transfer at most.
const ChunkSize = 64 << 10

// Peer is the other end of a connection: whose tokens an executor may use, and whether the connection is open.
//
// The state is loaded after HAZARD-PUBLISH. This makes the end of a connection as safe as an invalidation. A side ends the
// connection and then loads the executor's hazard. Once the hazard is 0, no transfer over this connection accesses the
// memory of that side.
type Peer struct {
	Adapter       uint64         // the only adapter whose tokens are accepted
	Endpoint      uint64         // the endpoint at the other end, for tokens that are limited to one connection
	State         *atomic.Uint32 // of the connection; equal to Established while it is open
	Established   uint32
	Disconnecting *atomic.Uint32 // not 0: the other side has begun to disconnect
}

// Connected reports whether neither side has ended the connection.
func (p *Peer) Connected() bool {
	// ORDER hazard: after Guard.publishHazard; pairs with the change of either word
	// before the load of the hazard, in queuePair.releasePeerState of package endpoint.
	return p.State.Load() == p.Established && p.Disconnecting.Load() == 0
}

// Operand is the memory at one end of a copy, as a token and an address or as plain bytes.
type Operand struct {
	Token     nd.Token
	Rights    Rights // all that the token must allow
	Address   uint64 // of the first byte, as the token's owner counts
	Peer      *Peer  // the peer whose token it is; nil = a token of this domain
	Endpoint  uint64 // for a token of this domain in a peer's request: the endpoint connected to that peer; 0 = our own request
	Mem       []byte // not nil: plain memory that needs no token; all other fields are ignored
	BindCheck *BindCheck
}

// BindCheck makes sure that all parts of a request use a token under the same bind. It stores the bind that the first part
// found, and a later part fails if it finds another. Between two parts no hazard names the token, so its owner can
// invalidate it, and 4,096 binds later the same token is valid for other memory. When the request moves to another token,
// BindCheck stores the bind of that one. Its zero value is ready for the first part. A request of a single part needs none.
type BindCheck struct{ first entryWord }

// continues reports whether a part may use the bind that word names: the token is new to the request, or its bind is unchanged.
func (g *BindCheck) continues(word entryWord) bool {
	switch {
	case g == nil:
		return true
	case g.first.token() != word.token(): // no token is 0
		g.first = word
	}
	return g.first == word
}

// Fault says why a copy was refused.
type Fault uint8

const (
	NoFault           Fault = iota // it was not refused
	faultBadToken                  // the token is unknown, not valid, or of an adapter that is not at the other end
	faultRevoked                   // the token became invalid during the transfer
	faultOtherScope                // the token is valid on another connection only
	faultNoRight                   // the token does not grant the access right
	faultOutOfRange                // the range is not within the memory
	FaultUnreachable               // the memory is private to its owner, so only the owner can copy
	FaultDisconnected              // the connection has ended
)

var faultText = [...]string{"none", "the token is not valid", "the token was revoked during the transfer",
	"the token is valid on another connection only", "the token does not grant this right", "the range is outside the granted memory",
	"the memory is private to its owner", "the connection has ended"}

func (f Fault) String() string {
	if int(f) < len(faultText) {
		return faultText[f]
	}
	return "unknown fault"
}

// Guard makes the guarded copies of one executor. Only one goroutine uses it at a time: the one that holds the lock of the
// executor's endpoint.
type Guard struct {
	domain      *Domain
	arena       *shm.Arena
	entries     *[shm.WindowEntries]accessEntry
	cachedEntry *ownEntry      // of the local token that was used last; never nil
	unreachable nd.Token       // see KnownUnreachable
	hazard      *atomic.Uint64 // in the arena, for the peers that own tokens
	localHazard atomic.Uint64  // the same for this process: a peer could clear the other
}

// NewGuard returns a guard that publishes in a hazard word of the arena. That word must be among the hazards of each domain
// whose tokens are used through the guard.
func NewGuard(d *Domain, hazard *atomic.Uint64) *Guard {
	return &Guard{domain: d, arena: d.table.arena, entries: (*[shm.WindowEntries]accessEntry)(d.table.entries), cachedEntry: new(ownEntry), hazard: hazard}
}

// LocalHazard returns the hazard that the domains of this process must have.
func (g *Guard) LocalHazard() *Hazard { return &Hazard{Word: &g.localHazard} }

// checkedRange is the memory of an operand that has been checked, and the words that must be the same after the copy.
type checkedRange struct {
	mem         []byte
	entry       *accessEntry // of a peer's token: its word must still be word
	word        entryWord
	ownEntry    *ownEntry // of a token of this domain: its permissions must still be permissions
	permissions *permissions
}

// isUnchanged is ENTRY-RECHECK.
func (r *checkedRange) isUnchanged() bool {
	switch {
	case r.entry != nil:
		return entryWord(r.entry.word.Load()) == r.word // ORDER entry-recheck: after the copy; pairs with the exchange in ownEntry.revoke
	case r.ownEntry != nil:
		return r.ownEntry.permissions.Load() == r.permissions
	}
	return true
}

// Copy copies n bytes from source to sink. It returns how many bytes it copied while both tokens were certainly valid, and
// the fault of each operand. After a fault, up to one chunk after those bytes may have been written as well.
//
// The last word is stored last, and atomically if it is aligned, because programs poll for it.
func (g *Guard) Copy(sink, source *Operand, n uint64) (moved uint64, sinkFault, sourceFault Fault) {
	var to, from checkedRange
	g.publishHazard(makeHazard(sink.Token, source.Token))
	if sinkFault = g.check(&to, sink, n); sinkFault == NoFault {
		sourceFault = g.check(&from, source, n)
	}
	if sinkFault|sourceFault != NoFault {
		g.clearHazard()
		return 0, sinkFault, sourceFault
	}
	for {
		chunk := min(n-moved, ChunkSize)
		copyOrdered(to.mem[moved:moved+chunk], from.mem[moved:moved+chunk]) // COPY
		if !to.isUnchanged() {
			sinkFault = faultRevoked
			break
		}
		if !from.isUnchanged() {
			sourceFault = faultRevoked
			break
		}
		if moved += chunk; moved == n {
			break
		}
	}
	g.clearHazard()
	return moved, sinkFault, sourceFault
}

// Check returns the fault that a copy of n bytes from or to o would have at this moment. It does not access the memory.
func (g *Guard) Check(o *Operand, n uint64) Fault {
	var r checkedRange
	g.publishHazard(makeHazard(o.Token, 0))
	defer g.clearHazard()
	return g.check(&r, o, n)
}

// publishHazard is HAZARD-PUBLISH.
func (g *Guard) publishHazard(hazard uint64) {
	// ORDER hazard: this exchange, then the loads of check, or of copyFast; pairs with the
	// exchange of ownEntry.revoke and the loads of Domain.Drained. Either the owner sees
	// the hazard, or we see that the token is invalid.
	asym.StoreRelease(&g.localHazard, hazard)
	g.hazard.Swap(hazard)
}

// clearHazard is HAZARD-CLEAR.
func (g *Guard) clearHazard() {
	asym.StoreRelease(g.hazard, 0) // ORDER hazard-clear: after the last copy; pairs with the load in Domain.Drained
	asym.StoreRelease(&g.localHazard, 0)
}

// HazardOverwritten reports whether another process has written the hazard word: it is set although this guard is not in a
// copy. The caller holds the endpoint's lock, or takes a true answer as a hint only.
func (g *Guard) HazardOverwritten() bool { return g.hazard.Load() != 0 && g.localHazard.Load() == 0 }

// ClearOverwrittenHazard clears a hazard that another process wrote: the tokens' owners would wait for it. The caller holds the endpoint's lock.
func (g *Guard) ClearOverwrittenHazard() {
	if g.HazardOverwritten() {
		g.clearHazard()
	}
}

// check is ENTRY-CHECK: it finds the memory of o if o's token allows the access.
func (g *Guard) check(r *checkedRange, o *Operand, n uint64) Fault {
	switch {
	case o.Mem != nil:
		r.mem = o.Mem
		return NoFault
	case o.Peer != nil:
		return g.checkPeer(r, o, n)
	}
	return g.checkOwn(r, o, n)
}

// checkOwn checks a token of this domain against our private records.
func (g *Guard) checkOwn(r *checkedRange, o *Operand, n uint64) Fault {
	p, word := g.cachedEntry.load()
	if p == nil || word.token() != o.Token { // not the token that was used last
		if !g.cacheEntry(o.Token) {
			return faultBadToken
		}
		p, word = g.cachedEntry.load()
	}
	switch {
	case p == nil: // invalidated since
		return faultBadToken
	case p.scope != 0 && o.Endpoint != 0 && p.scope != o.Endpoint:
		return faultOtherScope
	case word.rights()&o.Rights != o.Rights:
		return rightsFault(word.rights(), o.Rights)
	case !within(o.Address, n, p.base, uint64(len(p.mem))):
		return faultOutOfRange
	case !o.BindCheck.continues(word):
		return faultRevoked
	}
	at := o.Address - p.base
	r.mem, r.ownEntry, r.permissions = p.mem[at:at+n], g.cachedEntry, p
	return NoFault
}

// cacheEntry stores the entry of a token in cachedEntry. It returns false, and changes nothing, if the token is not valid
// in this domain. An entry never changes its domain.
func (g *Guard) cacheEntry(token nd.Token) bool {
	e, p, _ := g.domain.table.lookup(token)
	if p == nil || p.adapter != g.domain.Adapter {
		return false
	}
	g.cachedEntry = e
	return true
}

// checkPeer checks a token of the adapter at the other end against the shared table. It loads each word once. The fields
// belong to the word that was loaded, because they do not change while a hazard names its token.
func (g *Guard) checkPeer(r *checkedRange, o *Operand, n uint64) Fault {
	peer := o.Peer
	if !peer.Connected() {
		return FaultDisconnected
	}
	e := &g.entries[indexOf(o.Token)]
	word := entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in ownEntry.bind
	if !word.valid() || word.token() != o.Token || e.owner.Load() != peer.Adapter {
		return faultBadToken
	}
	if scope := e.scope.Load(); scope != 0 && scope != peer.Endpoint {
		return faultOtherScope
	}
	if word.rights()&o.Rights != o.Rights {
		return rightsFault(word.rights(), o.Rights)
	}
	// ENTRY-FIELDS, as are owner and scope above.
	base := e.base.Load()
	if !within(o.Address, n, base, e.length.Load()) {
		return faultOutOfRange
	}
	offset := shm.Offset(e.offset.Load())
	if offset == 0 {
		return FaultUnreachable
	}
	if r.mem = g.arena.HeapBytes(offset+shm.Offset(o.Address-base), n); r.mem == nil {
		return faultOutOfRange // the entry names memory outside the heap
	}
	if !o.BindCheck.continues(word) {
		return faultRevoked
	}
	r.entry, r.word = e, word
	return NoFault
}

// rightsFault returns the fault of a token that lacks rights. A local token used as a remote one, or the reverse, counts as
// an invalid token.
func rightsFault(have, want Rights) Fault {
	if kind := want & (Remote | Local); have&kind != kind {
		return faultBadToken
	}
	return faultNoRight
}

// within reports whether [at, at+n) is within [base, base+size). No sum overflows.
func within(at, n, base, size uint64) bool {
	return at >= base && n <= size && at-base <= size-n
}

// IsPrivate reports whether o, memory of this domain, is private memory that no peer can reach.
func (g *Guard) IsPrivate(o *Operand, n uint64) (bool, Fault) {
	if o.Mem != nil {
		return true, NoFault
	}
	var r checkedRange
	if f := g.checkOwn(&r, o, n); f != NoFault {
		return false, f
	}
	return r.permissions.offset == 0, NoFault
}
