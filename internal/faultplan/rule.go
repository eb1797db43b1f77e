// Package faultplan is the compiled form of a fault plan: rules of fixed size, which fit into the arena.
// It also decides which operation of a rank meets which rule. Package faults compiles rules, and package
// endpoint acts on them.
package faultplan

// TWIN c/src/endpoint/faultplan.c.

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"structs"
	"sync/atomic"
	"unicode/utf8"
)

const (
	// MaxRules is the maximum number of rules of a plan.
	MaxRules = 128
	// maxRanks is the number of ranks that a rule can distinguish; see shm.MaxRanks.
	maxRanks = 1024

	recordSize = 512
)

// Rule is a compiled rule. It has the same layout in the arena and in private memory.
type Rule struct {
	_          structs.HostLayout
	Operations uint64 // one bit for each Operation
	Endpoint   uint64 // number of the rank's endpoint, from 1; 0 = any
	Window     uint64 // number of the window or token, from 1; 0 = any
	MinSize    uint64 // bytes
	MaxSize    uint64
	Nth        uint64    // of the rank's matching operations, from 1; 0 = see Every
	Every      uint64    // fire at each Every-th operation from Nth on; 0 = at Nth only, or, without Nth, at all
	Threshold  uint64    // fire if the drawn number is less; 0 = always
	Times      uint64    // most firings of one rank; 0 = no limit
	Seed       uint64    // of the drawn numbers
	After      uint64    // bytes of a transfer that are copied before the action
	Delay      uint64    // nanoseconds
	Offset     uint64    // of the byte to corrupt
	Status     uint32    // nd.Status
	Phase      uint32    // see Phase
	Action     uint32    // see Action
	Flip       uint32    // bits of the byte to invert
	reserved   [2]uint32 // 0
	Ranks      Set       // empty = all
	Peers      Set       // empty = all
	Name       [64]byte  // UTF-8, padded with zeros
}

// Record is a rule in the arena, and how often it has matched and fired at all ranks. The creator of
// the arena writes the rule once. Ranks only add to the counters, and only the creator reads them.
type Record struct {
	Rule
	Counters
	_ [48]byte
}

// Counters count for all ranks.
type Counters struct {
	Matched atomic.Uint64 // operations that the rule describes
	Fired   atomic.Uint64 // operations at which it has acted
}

// Set is a set of ranks.
type Set [maxRanks / 64]uint64

// Add adds a rank, which must be 0 to 1023.
func (s *Set) Add(rank int) { s[rank/64] |= 1 << (rank % 64) }

// has reports whether the set restricts nothing, or contains rank. -1 is the number of a member that is no rank.
func (s *Set) has(rank int) bool {
	return *s == Set{} || rank >= 0 && rank < maxRanks && s[rank/64]&(1<<(rank%64)) != 0
}

// Operation is a kind of operation.
type Operation uint8

// The first operations are requests, the others are calls.
const (
	Send Operation = iota
	SendAndInvalidate
	Receive
	Read
	Write
	Bind
	Invalidate
	InvalidateRegion
	FastRegister
	Atomic // FetchAndAdd, CompareAndSwap or Swap

	Connect
	CompleteConnect
	Accept
	Disconnect
	Listen
	ConnectionRequest // the arrival of a connection request at a listener
	Notify
	Allocate
	Register
	CreateWindow
	CreateQueue
	CreateEndpoint
	operationEnd
)

// IsCall reports whether o is a call and not a request.
func (o Operation) IsCall() bool { return o >= Connect }

// Set returns the set that contains o only.
func (o Operation) Set() uint64 { return 1 << o }

// Phase is the moment in the life of a request at which a rule acts.
type Phase uint32

const (
	Post     Phase = 1 + iota // the call that posts the request, or a call that is no post
	Execute                   // before the request runs, or before the message is stored into the receive
	Complete                  // before the result is queued
	phaseEnd
)

// Action is what a rule does.
type Action uint32

const (
	Fail          Action = 1 + iota // with Status
	Delay                           // by Delay
	Corrupt                         // the byte at Offset, by inverting the bits of Flip
	Stop                            // the process, by SIGSTOP
	Kill                            // the process, by SIGKILL
	Drop                            // the connection
	InvalidateNow                   // refuse the remote token from here on
	Overrun                         // the completion queue of the request
	Refuse                          // the connection
	Exhaust                         // fail as if no memory were left
	actionEnd
)

// name returns the rule's name.
func (r *Rule) name() string {
	b := r.Name[:]
	for i, c := range b {
		if c == 0 {
			b = b[:i]
			break
		}
	}
	return string(b)
}

// check reports the first word of a rule that no compiler of this version writes.
func (r *Rule) check() error {
	switch {
	case r.Operations == 0 || r.Operations>>operationEnd != 0:
		return fmt.Errorf("operations %#x", r.Operations)
	case r.Phase == 0 || r.Phase >= uint32(phaseEnd):
		return fmt.Errorf("phase %d", r.Phase)
	case r.Action == 0 || r.Action >= uint32(actionEnd):
		return fmt.Errorf("action %d", r.Action)
	case r.Flip > 255 || r.reserved != [2]uint32{}:
		return fmt.Errorf("reserved bits")
	case !utf8.ValidString(r.name()):
		return fmt.Errorf("name %q", r.name())
	}
	return nil
}

// Digest returns the SHA-256 of rules. A launcher passes it to its ranks in private, so that no
// peer can change the rules in the arena unnoticed.
func Digest(rules []Rule) string {
	h := sha256.New()
	for i := range rules {
		// A Rule has a fixed size, and a hash accepts all bytes: Write cannot fail.
		_ = binary.Write(h, binary.LittleEndian, &rules[i])
	}
	return hex.EncodeToString(h.Sum(nil))
}
