package window

// TWIN c/src/window/guard.h, c/src/window/guard.c.

import (
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// Operand is the memory at one end of a copy, as a token and an address or as plain bytes.
type Operand struct {
	Token     nd.Token
	Rights    Rights     // all that the token must allow
	Address   uint64     // of the first byte, as the token's owner counts
	Far       *FarEnd    // the end whose token it is; nil = a token of this domain
	Endpoint  uint64     // if a peer's request uses a token of this domain: the endpoint connected to that peer; else 0
	Mem       []byte     // not nil: plain memory that needs no token; all other fields are ignored
	BindCheck *BindCheck // nil for a request of a single part
}

// refused returns the fault of an access to o that was refused because of f. If the connection has ended, that is the
// reason: its end revokes the tokens that were bound on it.
func (o *Operand) refused(f Fault) Fault {
	// ORDER end-revoke: after the load of the token's word in the access entry; pairs with the revocation after the end in
	// queuePair.revokeBound of package endpoint
	if f != NoFault && o.Far != nil && !o.Far.IsOpen() {
		return FaultDisconnected
	}
	return f
}

// FarEnd is the other end of a connection: whose tokens an executor may use, and whether the
// connection is open.
//
// The state is loaded after HAZARD-PUBLISH. This makes the end of a connection as safe as an
// invalidation. A side ends the connection and then loads the executor's hazard. Once the hazard is
// 0, no transfer over this connection accesses the memory of that side.
type FarEnd struct {
	Adapter      uint64         // the only adapter whose tokens are accepted
	Endpoint     uint64         // the endpoint at the other end, for tokens that are limited to one connection
	State        *atomic.Uint32 // of the connection; equal to Established while it is open
	Established  uint32
	Disconnected *atomic.Uint32 // not 0: the other side has called Disconnect

	known [knownBinds]knownBind // by the last bits of the token: programs use several windows of a peer in turn
}

const (
	knownBinds = 4
	knownFor   = 64 // requests with another token of the same last bits, until one of them takes the place
)

// knownBind is a bind of the peer that a check has accepted. As long as the word of its entry is the same, so is the rest: the
// word changes with each bind, and comes again after 2³² of them.
type knownBind struct {
	word   entryWord // 0 = none yet
	entry  *accessEntry
	base   uint64 // address of mem[0]
	words  uint64 // how many addresses from base on are those of 8 bytes that a Write of one word can store; 0 = it cannot
	mem    []byte
	others uint64 // requests with another token
}

// IsOpen reports whether neither side has ended the connection.
func (f *FarEnd) IsOpen() bool {
	// ORDER hazard: after Guard.publishHazard; pairs with the change of either word
	// before the load of the hazard, in queuePair.leavePeerState of package endpoint.
	return f.State.Load() == f.Established && f.Disconnected.Load() == 0
}

// BindCheck makes sure that all parts of a request use a token under the same bind. It stores the
// bind that the first part found, and a later part fails if it finds another. Between two parts no
// hazard names the token, so its owner can invalidate it, and 4,096 binds later the same token is
// valid for other memory. When the request moves to another token, BindCheck stores the bind of
// that one. Its zero value is ready for the first part. A request of a single part needs none.
type BindCheck struct{ first entryWord }

// recordOrCompare reports whether a part may use the bind that word names. If the token is new to
// the request, it records the bind. Otherwise it compares the bind with the recorded one. A nil
// BindCheck allows all binds: the request has a single part.
func (b *BindCheck) recordOrCompare(word entryWord) bool {
	switch {
	case b == nil:
		return true
	case b.first.token() != word.token(): // no token is 0
		b.first = word
	}
	return b.first == word
}
