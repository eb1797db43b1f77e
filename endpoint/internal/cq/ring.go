// Package cq holds the results of a completion queue, and announces them.
package cq

// TWIN c/src/endpoint/cq.c.

import (
	"math/bits"
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
)

// Ring holds the results of a queue in the order in which they were added. It is local to the process. The queue's lock
// guards it. But the endpoint that is the only user of a queue adds results under its own lock: it checks that there is
// room (ORDER queue-head), prepares a result, and stores Tail (ORDER queue-tail).
type Ring struct {
	results    []Result      // its length is a power of two
	limit      uint64        // most results that the ring holds; len(results) unless isExact was set
	firstIndex uint64        // number of the result in results[0]; see Prepare
	Head       atomic.Uint64 // number of the next result to take
	Tail       atomic.Uint64 // number of the next result to add
}

// Result is a queued result and the counter of slots that it increments when it is taken. It is
// written and read in the same whole words: a load that spans several earlier stores stalls
// until they reach the cache.
type Result struct {
	header  uint64 // bits 0..30: request type; bit 31: hasDetails; bits 32..63: bytes
	request uint64 // context of the request
	Slots   *Slots
	status  nd.Status // valid with hasDetails
	token   nd.Token  // invalidated token; valid with hasDetails
}

// hasDetails is set in Result.header if status and token are valid. Otherwise the request
// succeeded and invalidated nothing.
const hasDetails = 1 << 31

// Set sets the result to one of any kind.
func (r *Result) Set(to *nd.Result) {
	r.header, r.request = uint64(to.RequestType)|hasDetails|uint64(to.BytesTransferred)<<32, to.RequestContext
	r.status, r.token = to.Status, to.InvalidatedToken
}

// SetSuccess sets the result to that of a successful request.
func (r *Result) SetSuccess(k nd.RequestType, bytes, request uint64) {
	r.header, r.request = uint64(k)|bytes<<32, request
}

// Get copies the result.
func (r *Result) Get(to *nd.Result) {
	SetSuccess(to, nd.RequestType(r.header&(hasDetails-1)), r.header>>32, r.Slots.Context, r.request)
	if r.header&hasDetails != 0 {
		to.Status, to.InvalidatedToken = r.status, r.token
	}
}

// SetSuccess sets a result to that of a successful request. It writes whole words.
func SetSuccess(r *nd.Result, k nd.RequestType, bytes, endpoint, request uint64) {
	outcome := uint64(nd.Success) | bytes<<32
	r.Status, r.BytesTransferred = nd.Status(outcome), uint32(outcome>>32)
	r.EndpointContext, r.RequestContext = endpoint, request
	r.RequestType, r.InvalidatedToken = k, 0
}

// Slots counts the slots of one queue of an endpoint that are free again because their results were taken. The
// completion queue's lock guards it. When none of its results is in the queue, the endpoint's lock guards it.
type Slots struct {
	Freed   atomic.Uint64
	Context uint64 // of the endpoint; never changes
}

// Add counts n freed slots.
func (s *Slots) Add(n uint64) { asym.StoreRelease(&s.Freed, s.Freed.Load()+n) }

// NewResults returns memory for the results of a queue of a depth. It is for twice as many: a program that counts on
// exactly the depth then never overruns the queue.
func NewResults(depth int) []Result { return make([]Result, 1<<bits.Len(uint(2*depth-1))) }

// SetResults gives the ring the memory for a depth, and keeps the results that it holds, which are not more than the
// depth. With isExact, the ring holds exactly its depth.
func (r *Ring) SetResults(results []Result, depth int, isExact bool) {
	for i, tail := r.Head.Load(), r.Tail.Load(); i != tail; i++ {
		results[(i-r.firstIndex)&uint64(len(results)-1)] = *r.At(i)
	}
	r.results, r.limit = results, uint64(len(results))
	if isExact {
		r.limit = uint64(depth)
	}
}

// Size returns how many results the ring has memory for.
func (r *Ring) Size() uint64 { return uint64(len(r.results)) }

// Limit returns how many results the ring holds.
func (r *Ring) Limit() uint64 { return r.limit }

// IsEmpty reports whether the ring holds no result. Without the lock it can miss a concurrent change.
func (r *Ring) IsEmpty() bool { return r.Head.Load() == r.Tail.Load() }

// IsFull reports whether the ring has no room.
func (r *Ring) IsFull() bool { return r.Tail.Load()-r.Head.Load() == r.limit }

// At returns the result with a number.
func (r *Ring) At(number uint64) *Result {
	return &r.results[(number-r.firstIndex)&uint64(len(r.results)-1)]
}

// reusedSlots is how many slots a ring uses as long as it is usually empty, so that it touches few cache lines.
const reusedSlots = 16

// Prepare returns the next result, of the endpoint that s belongs to. The caller has checked that there is room, sets it, and
// stores Tail afterwards.
func (r *Ring) Prepare(tail, head uint64, s *Slots) *Result {
	if tail == head && tail-r.firstIndex >= reusedSlots {
		r.firstIndex = tail
	}
	next := r.At(tail)
	if next.Slots != s { // usually equal; skipping the store avoids the garbage collector's write barrier
		next.Slots = s
	}
	return next
}

// Clear discards the results.
func (r *Ring) Clear() { r.Head.Store(r.Tail.Load()) }
