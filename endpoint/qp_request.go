package endpoint

import (
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// entry is a scatter/gather entry as it is kept and shared: an address
// instead of a pointer, which only its token turns into memory.
type entry struct {
	address uint64
	length  uint32
	token   nd.Token
}

// request is one posted initiator request.
type request struct {
	kind    nd.RequestType
	flags   nd.OpFlags
	context uint64
	entries []entry // capacity is allotted once
	total   uint64

	captured []byte // the bytes of an inline request; capacity is allotted once

	remote     uint64
	token      nd.Token             // remote token, or the one to be invalidated at the peer
	invalidate bool                 // SendAndInvalidate
	binding    window.Prepared      // Bind and FastRegister
	loan       window.Invalidatable // what is to be given or taken back

	// Progress.
	doomed      bool              // posted when it could only be canceled
	byRing      bool              // travels to the peer
	started     bool              // a Send that has its receive
	moved       uint64            // bytes moved or, by ring, handed over
	ours        window.Generation // of our token in use
	far         window.Generation // and of the peer's
	drain       nd.Token
	draining    bool
	deadline    time.Time // of a Send without a receive
	staged      int       // staging buffer that holds the bytes of a Read; -1 = none
	stagedEntry entry

	// Outcome.
	awaited  bool   // the peer's progress completes it
	first    uint64 // number of its first message
	end      uint64 // number after its last message
	status   nd.Status
	finished bool // status is final
}

// reset readies a request for a new life.
func (r *request) reset(k nd.RequestType, flags nd.OpFlags, context uint64) {
	entries, captured := r.entries[:0], r.captured[:0]
	*r = request{} // alone it is done in place, without a copy
	r.kind, r.flags, r.context = k, flags, context
	r.entries, r.captured, r.staged = entries, captured, -1
}

// setEntries copies the list. It returns the number of bytes.
func setEntries(to []entry, sge []nd.SGE) ([]entry, uint64) {
	total := uint64(0)
	for i := range sge {
		b := sge[i].Buffer
		if len(b) == 0 {
			continue
		}
		to = append(to, entry{shm.AddressOf(b), uint32(len(b)), sge[i].Token})
		total += uint64(len(b))
	}
	return to, total
}

// cut returns the part of the list that starts at byte at, as far as one
// entry goes.
func cut(entries []entry, at uint64) entry {
	for _, e := range entries {
		if at < uint64(e.length) {
			return entry{e.address + at, e.length - uint32(at), e.token}
		}
		at -= uint64(e.length)
	}
	return entry{}
}

// receive is one posted Receive.
type receive struct {
	context  uint64
	capacity uint64
	one      [1]entry // the only entry, if it is single: it is in the same cache line
	single   bool
	several  []entry // all entries, if not; capacity is allotted once
}

// entries returns the list.
func (r *receive) entries() []entry {
	if r.single {
		return r.one[:]
	}
	return r.several
}

// set copies the list.
func (r *receive) set(context uint64, sge []nd.SGE) {
	r.context = context
	r.several, r.capacity = setEntries(r.several[:0], sge)
	r.isolate()
}

// isolate puts a list of one where that belongs.
func (r *receive) isolate() {
	if r.single = len(r.several) == 1; r.single {
		r.one[0] = r.several[0]
	}
}
