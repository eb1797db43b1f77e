package window

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Chunk is the number of bytes copied between two looks at the tokens, and so
// the longest that an invalidation waits for a running executor.
const Chunk = 64 << 10

// Peer is the far side of a connection as an executor must know it.
type Peer struct {
	Owner    Owner  // the adapter at the other end: only its tokens count
	Endpoint uint64 // the endpoint at the other end, for tokens of one connection only
	Link     Link
}

// Link is the connection as both sides see it. Looking at it after
// HAZARD-PUBLISH makes the end of a connection as safe as an invalidation:
// whoever ends it and then sees the executor's hazard cleared once knows that
// nothing of his memory is touched over it any more.
type Link struct {
	State *atomic.Uint32 // must be Open
	Open  uint32
	Left  *atomic.Uint32 // must be 0: the other side has not begun to disconnect
}

// IsOpen tells whether neither side has ended the connection.
func (l *Link) IsOpen() bool {
	// ORDER hazard: after Guard.publish; pairs with the change of either word
	// before the look at the hazard, in Endpoint.settle of package endpoint.
	return l.State.Load() == l.Open && l.Left.Load() == 0
}

// Ref names the memory at one end of a copy.
type Ref struct {
	Token   nd.Token
	Rights  Rights // all that the token must allow
	Address uint64 // as the token's owner counts
	Of      *Peer  // whose token it is; nil = of this space
	For     uint64 // own tokens used for a peer: the endpoint it is connected to; 0 = for ourselves
	Mem     []byte // if not nil: plain memory that needs no token, and nothing else is looked at
	Begun   *Begun // of the request that this is a part of; nil = it has no other parts
}

// Begun is the bind of a token under which the parts of a request have begun. No
// hazard names the token between two parts, so it can be revoked and, after
// enough binds, valid again: a part under another bind than those before it is
// refused. The zero value belongs to a request of which no part has run. A part
// that uses another token begins again.
type Begun struct{ word entryWord }

// under reports whether the request may continue under a bind.
func (b *Begun) under(word entryWord) bool {
	switch {
	case b == nil:
		return true
	case b.word.token() != word.token(): // token 0 is none
		b.word = word
	}
	return b.word == word
}

// Fault tells why a copy was refused; 0 means that it was not.
type Fault uint8

const (
	NoFault     Fault = iota
	BadToken          // unknown, never valid, or of an adapter that is not at the other end
	Revoked           // valid when the copy began, invalid before it ended
	OtherScope        // valid on another connection only
	NoRight           // the token does not allow it
	OutOfRange        // the range leaves the memory
	Unreachable       // the memory is private to its owner, who must move the bytes itself
	Ended             // the connection has ended
)

var faultText = [...]string{"none", "the token is not valid", "the token was revoked during the transfer",
	"the token is valid on another connection only", "the token does not give the right", "the range leaves the granted memory",
	"the memory is private to its owner", "the connection has ended"}

func (f Fault) String() string {
	if int(f) < len(faultText) {
		return faultText[f]
	}
	return "unknown fault"
}

// Guard is the one way to move bytes. It belongs to one executor at a time:
// the holder of its endpoint's lock.
type Guard struct {
	space   *Space
	arena   *shm.Arena
	entries *[shm.WindowEntries]entry
	known   *grant         // whose token of ours was used last; never nil
	private nd.Token       // see OutOfReach
	hazard  *atomic.Uint64 // for peers, in the arena
	mine    atomic.Uint64  // the same for ourselves: a peer could clear the other
}

// NewGuard returns the guard that publishes in a hazard word, which must be
// among those that the owners of all tokens used through it watch.
func NewGuard(s *Space, hazard *atomic.Uint64) *Guard {
	return &Guard{space: s, arena: s.table.arena, entries: (*[shm.WindowEntries]entry)(s.table.entries), known: new(grant), hazard: hazard}
}

// Hazard returns the hazard for the spaces of this process to watch.
func (g *Guard) Hazard() *Hazard { return NewHazard(&g.mine, nil) }

// span is the checked memory of a Ref, with what must still hold afterwards.
type span struct {
	mem   []byte
	entry *entry // a peer's token: its word must still be word
	word  entryWord
	grant *grant // an own token: its terms must still be terms
	terms *terms
}

// stands is ENTRY-RECHECK.
func (s *span) stands() bool {
	switch {
	case s.entry != nil:
		return entryWord(s.entry.word.Load()) == s.word // ORDER entry-recheck: after the copy; pairs with the exchange in grant.revoke
	case s.grant != nil:
		return s.grant.terms.Load() == s.terms
	}
	return true
}

// Copy moves n bytes from source to sink and returns how many were moved
// while both tokens were valid for sure, and what was wrong with either side.
// After a fault some of the bytes beyond moved may have been written.
//
// The last word is stored last, by itself, with an atomic store if it is
// aligned: programs poll for it.
func (g *Guard) Copy(sink, source *Ref, n uint64) (moved uint64, sinkFault, sourceFault Fault) {
	var to, from span
	g.publish(hazardOf(sink.Token, source.Token))
	if sinkFault = g.resolve(&to, sink, n); sinkFault == NoFault {
		sourceFault = g.resolve(&from, source, n)
	}
	if sinkFault|sourceFault != NoFault {
		g.clear()
		return 0, sinkFault, sourceFault
	}
	for {
		chunk := min(n-moved, Chunk)
		move(to.mem[moved:moved+chunk], from.mem[moved:moved+chunk]) // COPY
		if !to.stands() {
			sinkFault = Revoked
			break
		}
		if !from.stands() {
			sourceFault = Revoked
			break
		}
		if moved += chunk; moved == n {
			break
		}
	}
	g.clear()
	return moved, sinkFault, sourceFault
}

// Check tells whether a Ref would be granted at this moment for n bytes,
// without touching them.
func (g *Guard) Check(r *Ref, n uint64) Fault {
	var s span
	g.publish(hazardOf(r.Token, 0))
	defer g.clear()
	return g.resolve(&s, r, n)
}

// publish is HAZARD-PUBLISH.
func (g *Guard) publish(hazard uint64) {
	// ORDER hazard: this exchange, then the loads of resolve, or of direct; pairs with the
	// exchange of grant.revoke and the loads of Space.Drained. Either the owner sees the
	// hazard, or we see that the token is gone.
	asym.Store(&g.mine, hazard)
	g.hazard.Swap(hazard)
}

// clear is HAZARD-CLEAR.
func (g *Guard) clear() {
	asym.Store(g.hazard, 0) // ORDER hazard-clear: after the last copy; pairs with the load in Space.Drained
	asym.Store(&g.mine, 0)
}

// Forged reports whether the hazard names tokens that this guard is not using: another
// process has written it. A true answer counts only if the guard is not in use, which
// the holder of its endpoint's lock knows.
func (g *Guard) Forged() bool { return g.hazard.Load() != 0 && g.mine.Load() == 0 }

// Disown clears a forged hazard, for which owners of the tokens would wait. The guard
// must not be in use.
func (g *Guard) Disown() {
	if g.Forged() {
		g.clear()
	}
}

// resolve is ENTRY-CHECK: it finds the memory of r if r's token allows it.
func (g *Guard) resolve(s *span, r *Ref, n uint64) Fault {
	switch {
	case r.Mem != nil:
		s.mem = r.Mem
		return NoFault
	case r.Of != nil:
		return g.peer(s, r, n)
	}
	return g.own(s, r, n)
}

// own checks a token of this space against what we granted ourselves, for the
// peer of an endpoint or, 0, for ourselves.
func (g *Guard) own(s *span, r *Ref, n uint64) Fault {
	tm, word := g.known.now()
	if tm == nil || word.token() != r.Token { // not the one that was used last
		if !g.learn(r.Token) {
			return BadToken
		}
		tm, word = g.known.now()
	}
	switch {
	case tm == nil: // by now
		return BadToken
	case tm.scope != 0 && r.For != 0 && tm.scope != r.For:
		return OtherScope
	case word.rights()&r.Rights != r.Rights:
		return rightsFault(word.rights(), r.Rights)
	case !within(r.Address, n, tm.base, uint64(len(tm.mem))):
		return OutOfRange
	case !r.Begun.under(word):
		return Revoked
	}
	at := r.Address - tm.base
	s.mem, s.grant, s.terms = tm.mem[at:at+n], g.known, tm
	return NoFault
}

// learn makes a valid token of this space the known one, and tells whether it is
// one. A grant is of one space for good.
func (g *Guard) learn(token nd.Token) bool {
	grant, tm, _ := g.space.table.lookup(token)
	if tm == nil || tm.owner != g.space.owner {
		return false
	}
	g.known = grant
	return true
}

// peer checks a token of the adapter at the other end against the shared
// table. Each word is loaded once; the fields belong to the word, because they
// only change while no hazard names its token.
func (g *Guard) peer(s *span, r *Ref, n uint64) Fault {
	far := r.Of
	if !far.Link.IsOpen() {
		return Ended
	}
	e := &g.entries[indexOf(r.Token)]
	word := entryWord(e.word.Load()) // ORDER entry-valid: pairs with the store in grant.publish
	if !word.valid() || word.token() != r.Token || Owner(e.owner.Load()) != far.Owner {
		return BadToken
	}
	if scope := e.scope.Load(); scope != 0 && scope != far.Endpoint {
		return OtherScope
	}
	if word.rights()&r.Rights != r.Rights {
		return rightsFault(word.rights(), r.Rights)
	}
	// ENTRY-FIELDS, and owner and scope above.
	base := e.base.Load()
	if !within(r.Address, n, base, e.length.Load()) {
		return OutOfRange
	}
	offset := shm.Offset(e.offset.Load())
	if offset == 0 {
		return Unreachable
	}
	if s.mem = g.arena.HeapBytes(offset+shm.Offset(r.Address-base), n); s.mem == nil {
		return OutOfRange // the owner lies about its own memory
	}
	if !r.Begun.under(word) {
		return Revoked
	}
	s.entry, s.word = e, word
	return NoFault
}

// rightsFault: a local token used as a remote one, or the other way round, is
// no token at all there.
func rightsFault(have, want Rights) Fault {
	if kind := want & (Remote | Local); have&kind != kind {
		return BadToken
	}
	return NoRight
}

// within tells whether [at, at+n) lies in [base, base+size), without overflow.
func within(at, n, base, size uint64) bool {
	return at >= base && n <= size && at-base <= size-n
}

// Private tells whether our own memory is out of the peers' reach.
func (g *Guard) Private(r *Ref, n uint64) (bool, Fault) {
	if r.Mem != nil {
		return true, NoFault
	}
	var s span
	if f := g.own(&s, r, n); f != NoFault {
		return false, f
	}
	return s.terms.offset == 0, NoFault
}
