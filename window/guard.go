package window

// TWIN c/src/window/guard.c, c/src/window/guard.h.

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// ChunkSize is the number of bytes that are copied between two checks of the tokens. An
// invalidation waits for one chunk of a running transfer at most.
const ChunkSize = 256 << 10

// Guard makes the guarded copies of one executor. Only one goroutine uses it at a time: the one
// that holds the lock of the executor's endpoint.
//
// Each copy takes the steps in docs/architecture.md, whose labels are at the code; [Guard.Copy] is the general form.
type Guard struct {
	domain        *Domain
	arena         *shm.Arena
	entries       *[shm.WindowEntries]accessEntry
	lastEntry     *ownEntry      // of the token of this domain that was used last; never nil
	sharedHazard  *atomic.Uint64 // in the arena, for the peers that own tokens
	privateHazard atomic.Uint64  // for this domain: a peer could clear the other

	// Of lastEntry, when it was found. As long as its word is source, so is the rest of the bind.
	source      entryWord // 0 = local requests cannot read with its token
	sourceBase  uint64    // address of the first byte
	sourceWords uint64    // how many addresses from there on are those of 8 bytes that the token covers
	_           [8]byte   // so that a guard fills cache lines
}

// NewGuard returns a guard for tokens of domain d and of peers. hazard is the guard's hazard word
// in the arena. A domain of a peer whose tokens are used through the guard must have this word; see
// [Domain.AddHazard].
func NewGuard(d *Domain, hazard *atomic.Uint64) *Guard {
	g := &Guard{
		domain:       d,
		arena:        d.table.arena,
		entries:      (*[shm.WindowEntries]accessEntry)(d.table.entries),
		lastEntry:    new(ownEntry),
		sharedHazard: hazard,
	}
	d.AddHazard(&g.privateHazard, nil) // nil: of this process
	return g
}

// Close ends the use of the guard.
func (g *Guard) Close() { g.domain.RemoveHazard(&g.privateHazard, nil) }

// Copy copies n bytes from source to sink. It returns how many bytes it copied while both tokens
// were certainly valid, and the fault of each operand. After a fault, up to one chunk after those
// bytes may have been written as well.
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
		return 0, sink.refused(sinkFault), source.refused(sourceFault)
	}
	failpoint.Reach(failpoint.EntryChecked)
	for {
		chunk := min(n-moved, ChunkSize)
		copyOrdered(to.mem[moved:moved+chunk], from.mem[moved:moved+chunk]) // COPY
		failpoint.Reach(failpoint.ChunkCopied)
		if !to.isUnchanged() {
			sinkFault = faultRevoked
			break
		}
		if !from.isUnchanged() {
			sourceFault = faultRevoked
			break
		}
		failpoint.Reach(failpoint.EntryRechecked)
		if moved += chunk; moved == n {
			break
		}
	}
	g.clearHazard()
	return moved, sink.refused(sinkFault), source.refused(sourceFault)
}

// publishHazard is HAZARD-PUBLISH.
func (g *Guard) publishHazard(hazard uint64) {
	// ORDER hazard: the exchange of the shared word, then the loads of check, of putOrGet, or of IsPresent and Begin; pairs with the
	// exchange of ownEntry.revoke and the loads of Domain.drained. Either the owner sees
	// the hazard, or we see that the token is invalid.
	asym.StoreRelease(&g.privateHazard, hazard)
	g.sharedHazard.Swap(hazard)
	if failpoint.Enabled {
		failpoint.Reach(failpoint.HazardPublished)
	}
}

// clearHazard is HAZARD-CLEAR.
func (g *Guard) clearHazard() {
	// ORDER hazard-clear: after the last copy; pairs with the load in Domain.drained
	asym.StoreRelease(g.sharedHazard, 0)
	if failpoint.Enabled {
		failpoint.Reach(failpoint.HazardCleared)
	}
	asym.StoreRelease(&g.privateHazard, 0)
}

// checkedRange is the memory of an operand that has been checked, and the words that must be the
// same after the copy.
type checkedRange struct {
	mem         []byte
	entry       *accessEntry // of a peer's token: its word must still be word
	word        entryWord
	ownEntry    *ownEntry // of a token of this domain: its permissions must still be permissions
	permissions *permissions
}

// check is ENTRY-CHECK: it finds the memory of o if o's token allows the access.
func (g *Guard) check(r *checkedRange, o *Operand, n uint64) Fault {
	switch {
	case o.Mem != nil:
		r.mem = o.Mem
		return NoFault
	case o.Far != nil:
		return g.checkPeer(r, o, n)
	}
	return g.checkOwn(r, o, n)
}

// checkOwn checks a token of this domain against our private records.
func (g *Guard) checkOwn(r *checkedRange, o *Operand, n uint64) Fault {
	p, word := g.lastEntry.load()
	if p == nil || word.token() != o.Token { // not the token that was used last
		if !g.findEntry(o.Token) {
			return faultBadToken
		}
		p, word = g.lastEntry.load()
	}
	switch {
	case p == nil: // invalidated since
		return faultBadToken
	case o.Endpoint != 0 && p.scope != 0 && p.scope != o.Endpoint:
		return faultOtherScope
	case word.rights()&o.Rights != o.Rights:
		return rightsFault(word.rights(), o.Rights)
	case !within(o.Address, n, p.base, uint64(len(p.mem))):
		return faultOutOfRange
	case !o.BindCheck.recordOrCompare(word): // true if BindCheck is nil: the request has a single part
		return faultRevoked
	}
	at := o.Address - p.base
	r.mem, r.ownEntry, r.permissions = p.mem[at:at+n], g.lastEntry, p
	return NoFault
}

// findEntry stores the entry of a token in lastEntry. It returns false, and changes nothing, if the
// token is not valid in this domain. An entry never changes its domain.
func (g *Guard) findEntry(token nd.Token) bool {
	e, p, word := g.domain.table.lookup(token)
	if p == nil || p.adapter != g.domain.Adapter {
		return false
	}
	g.lastEntry, g.source = e, 0
	if word.allows(token, Local|Read) {
		g.source, g.sourceBase, g.sourceWords = word, p.base, wordsIn(uint64(len(p.mem)))
	}
	return true
}

// checkPeer checks a token of the adapter at the other end against the shared table. It loads each
// word once. The fields belong to the word that was loaded, because they do not change while a
// hazard names its token.
func (g *Guard) checkPeer(r *checkedRange, o *Operand, n uint64) Fault {
	far := o.Far
	if !far.IsOpen() {
		return FaultDisconnected
	}
	e := &g.entries[indexOf(o.Token)]
	word := entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in ownEntry.bind
	if !word.valid() || word.token() != o.Token || e.owner.Load() != far.Adapter {
		return faultBadToken
	}
	if scope := e.scope.Load(); scope != 0 && scope != far.Endpoint {
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
	if offset == 0 || e.ends.Load() != 0 {
		return FaultUnreachable
	}
	if r.mem = g.arena.HeapBytes(offset+shm.Offset(o.Address-base), n); r.mem == nil {
		return faultOutOfRange // the entry names memory outside the heap
	}
	if !o.BindCheck.recordOrCompare(word) { // as in checkOwn
		return faultRevoked
	}
	r.entry, r.word = e, word
	return NoFault
}

// within reports whether [at, at+n) is within [base, base+size). No sum overflows.
func within(at, n, base, size uint64) bool {
	return at >= base && n <= size && at-base <= size-n
}

// isUnchanged is ENTRY-RECHECK.
func (r *checkedRange) isUnchanged() bool {
	switch {
	case r.entry != nil:
		// ORDER entry-recheck: after the copy; pairs with the exchange in ownEntry.revoke
		return entryWord(r.entry.word.Load()) == r.word
	case r.ownEntry != nil:
		return r.ownEntry.permissions.Load() == r.permissions
	}
	return true
}

// Check returns the fault that a copy of n bytes from or to o would have at this moment. It does
// not access the memory.
func (g *Guard) Check(o *Operand, n uint64) Fault {
	var r checkedRange
	g.publishHazard(makeHazard(o.Token, 0))
	defer g.clearHazard()
	return o.refused(g.check(&r, o, n))
}

// IsPrivate reports whether o, memory of this domain, is private memory that no peer can reach. o is
// for a request of ours and needs a local token. IsPrivate stores no hazard, because the permissions
// of a local token are never reused; of other tokens checkOwn reads only the word.
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

// HazardOverwritten reports whether another process has written the shared hazard word: it is set
// although this guard is not in a copy. The owners of the tokens that it names would wait for it,
// so the caller sets it to 0. The caller holds the endpoint's lock, or takes a true answer as a
// hint only.
func (g *Guard) HazardOverwritten() bool {
	return g.sharedHazard.Load() != 0 && g.privateHazard.Load() == 0
}
