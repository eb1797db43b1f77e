// Package integrity is a mode of endpoints that checks payloads: it gives each request a hash. The transfer fails with
// nd.DataChecksumError if the bytes are not those that were hashed. docs/integrity.md says between which two
// moments a change is found.
//
// The post of a Send hashes the message. The receiver hashes the filled receive before it completes. The post of
// a Write hashes the data. The executor hashes each byte that it stores, and stores the last bytes only if the
// hash agrees. It does not read the target memory back: a program may poll that memory, and change it before the
// Write is complete. The executor of a Read hashes each byte that it stores. The requester hashes the filled
// buffers before the Read completes.
package integrity

// TWIN c/src/endpoint/integrity.c.

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// StagingSize is the number of bytes that are copied and hashed at a time. They fit into the nearest cache.
const StagingSize = 16 << 10

// Hook checks the payloads of an endpoint.
type Hook struct {
	mode.Hook
	ep      mode.Endpoint
	sums    []sum // one for each of Endpoint.Requests; nil = this side does not ask for checks
	staging []byte
	served  xxhash.Digest                                  // of the peer's Read or Write that is being served
	reads   [len(wire.SharedQP{}.ReadHashes)]*mode.Request // Reads that wait for a hash in the peer's word of that index
}

// sum is the hash of a request.
type sum struct {
	digest    xxhash.Digest // of the bytes stored so far, if this process copies them
	want      uint64        // the hash that the bytes must have
	isMade    bool          // want is final
	isChecked bool
	place     int // of a Read: index in Hook.reads; -1 = none
}

// New returns the hook of an endpoint. asks says that this side asks for checks of its requests; otherwise the hook serves
// the hashed requests of the peer. inner is the hook inside it.
func New(ep mode.Endpoint, inner mode.Hook, asks bool) *Hook {
	h := &Hook{Hook: inner, ep: ep}
	if asks {
		h.sums, h.staging = make([]sum, ep.Requests), make([]byte, StagingSize)
	}
	return h
}

// stagingBuffer returns the staging buffer. An endpoint that does not ask for checks allocates it when its
// peer does.
func (h *Hook) stagingBuffer() []byte {
	if h.staging == nil {
		h.staging = make([]byte, StagingSize)
	}
	return h.staging
}

// sum returns the hash of a request with Hashed.
func (h *Hook) sum(r *mode.Request) *sum { return &h.sums[r.Number&uint64(len(h.sums)-1)] }

// Post hashes the data of a request.
func (h *Hook) Post(r *mode.Request) error {
	if err := h.Hook.Post(r); err != nil || h.sums == nil || r.Total == 0 || r.IsAtomic() { // an atomic has no data that waits
		return err
	}
	r.Hashed = true
	s := h.sum(r)
	*s = sum{isMade: r.Kind == nd.RequestRead, place: -1}
	if !s.isMade && !r.PostedAfterEnd && !h.ep.HasEnded() && !r.Flags.Has(nd.ReadFence) { // an earlier Read may bring the data
		// A local token may be invalid still, if an earlier FastRegister makes it valid.
		h.make(s, r)
	}
	s.digest.Reset()
	return nil
}

// make hashes the data of r. If the guard refuses an entry, it returns the entry and the fault.
func (h *Hook) make(s *sum, r *mode.Request) (wire.SGE, window.Fault) {
	e, f := h.hash(&s.digest, r, r.SGEs, r.Total)
	s.want, s.isMade = s.digest.Sum64(), f == window.NoFault
	r.Hash = s.want
	s.digest.Reset()
	return e, f
}

// Expect makes the data of r, a request in parts, have a hash that another process has made.
func (h *Hook) Expect(r *mode.Request, hash uint64) {
	if h.sums == nil {
		h.sums = make([]sum, h.ep.Requests)
	}
	r.Hashed, r.Hash = true, hash
	s := h.sum(r)
	*s = sum{want: hash, isMade: true, place: -1}
	s.digest.Reset()
}

// BeforeRun hashes the data of a request that its post could not hash.
func (h *Hook) BeforeRun(r *mode.Request) mode.Answer {
	if r.Hashed {
		if s := h.sum(r); !s.isMade {
			if e, f := h.make(s, r); f != window.NoFault {
				h.ep.RejectLocal(r, e, f)
				return mode.Done
			}
		}
	}
	return h.Hook.BeforeRun(r)
}

// hash hashes the first n bytes of entries: those of request r, or those of a receive if r is nil. If
// the guard refuses an entry, it returns the entry and the fault.
func (h *Hook) hash(d *xxhash.Digest, r *mode.Request, entries []wire.SGE, n uint64) (wire.SGE, window.Fault) {
	staging := h.stagingBuffer()
	d.Reset()
	for at := uint64(0); at < n; {
		e := wire.SGEAt(entries, at)
		part := staging[:min(uint64(e.Length), n-at, StagingSize)]
		if r != nil {
			r.SetOperand(h.ep.Source, e, window.Read)
		} else {
			mode.SetLocalOperand(h.ep.Source, e, window.Read)
		}
		*h.ep.Sink = window.Operand{Mem: part}
		if _, _, f := h.ep.Guard.Copy(h.ep.Sink, h.ep.Source, uint64(len(part))); f != window.NoFault {
			return e, f
		}
		_, _ = d.Write(part)
		at += uint64(len(part))
	}
	return wire.SGE{}, window.NoFault
}

// copy copies n bytes and adds them to d. If want is not nil, these are the last bytes of a request: it stores
// the last of them only if the hash is *want, and reports false otherwise.
func (h *Hook) copy(d *xxhash.Digest, n uint64, want *uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	staging := h.stagingBuffer()
	sink, source := *h.ep.Sink, *h.ep.Source
	defer func() { *h.ep.Sink, *h.ep.Source = sink, source }() // which name what a fault is about
	for {
		part := staging[:min(n, StagingSize)]
		*h.ep.Sink, *h.ep.Source = window.Operand{Mem: part}, source
		if _, _, f := h.ep.Guard.Copy(h.ep.Sink, h.ep.Source, uint64(len(part))); f != window.NoFault {
			return true, window.NoFault, f
		}
		_, _ = d.Write(part)
		if n -= uint64(len(part)); n == 0 && want != nil && d.Sum64() != *want {
			return false, window.NoFault, window.NoFault
		}
		*h.ep.Sink, *h.ep.Source = sink, window.Operand{Mem: part}
		if _, f, _ := h.ep.Guard.Copy(h.ep.Sink, h.ep.Source, uint64(len(part))); f != window.NoFault || n == 0 {
			return true, f, window.NoFault
		}
		mode.Advance(&sink, uint64(len(part)))
		mode.Advance(&source, uint64(len(part)))
	}
}

// Copy copies bytes of r. The last bytes of a Write are stored only if all have the hash.
func (h *Hook) Copy(r *mode.Request, n uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	s := h.sum(r)
	var want *uint64
	if r.Kind == nd.RequestWrite && r.Transferred+n == r.Total {
		want = &s.want
	}
	if matches, sinkFault, sourceFault = h.copy(&s.digest, n, want); !matches {
		h.reject(r)
	}
	if r.Kind == nd.RequestRead {
		s.want = s.digest.Sum64() // of what the Read has found; Arrived compares
	}
	return matches, sinkFault, sourceFault
}

// CopyServed copies bytes of a Read or Write of the peer.
func (h *Hook) CopyServed(e *wire.Entry, n uint64, isFirst, isLast bool) (matches bool, sinkFault, sourceFault window.Fault) {
	if isFirst {
		h.served.Reset()
	}
	var want *uint64
	if isLast && e.Kind == wire.WriteFragment {
		want = &e.Hash
	}
	if matches, sinkFault, sourceFault = h.copy(&h.served, n, want); !matches {
		h.failWrite(e.RequestLength)
	}
	if isLast && e.Kind == wire.ReadFragment {
		h.AnswerRead(e.Hash, h.served.Sum64())
	}
	return matches, sinkFault, sourceFault
}

// AnswerRead stores the hash of the data of a Read in the word that the peer has named.
func (h *Hook) AnswerRead(place, hash uint64) {
	local, _ := h.ep.SharedState()
	local.ReadHashes[place%uint64(len(h.reads))].Store(hash) // ORDER read-hash: before the release of the entry; pairs with the load in takeHash
}

// BeforeServing checks a Write whose data is in the entry.
func (h *Hook) BeforeServing(e *wire.Entry) mode.Answer {
	if e.Kind == wire.WriteInEntry && e.Flags&wire.FlagHashed != 0 && xxhash.Sum64(e.Payload[:e.PayloadLength]) != e.Hash {
		h.failWrite(uint64(e.PayloadLength))
		return mode.Done
	}
	return h.Hook.BeforeServing(e)
}

// BeforeRead finds a word of the peer's SharedQP.ReadHashes for the hash of Read r. It reports false if all
// are in use. It takes the hashes that have arrived: a Read may wait long for the results before its own.
func (h *Hook) BeforeRead(r *mode.Request) bool {
	s := h.sum(r)
	for i, other := range h.reads {
		if s.place >= 0 {
			break
		}
		if other == nil || h.takeHash(other) {
			h.reads[i], s.place = r, i
			r.Hash = uint64(i)
		}
	}
	return s.place >= 0
}

// takeHash takes the hash that the peer has computed for Read r, which is sent as a whole. It reports false if
// the peer has not served the Read.
func (h *Hook) takeHash(r *mode.Request) bool {
	if !h.ep.IsReleased(r.EndEntry) {
		return false
	}
	s := h.sum(r)
	_, peer := h.ep.SharedState()
	s.want = peer.ReadHashes[s.place].Load() // ORDER read-hash: after the release of the entry; pairs with the store in AnswerRead
	h.reads[s.place], s.place = nil, -1
	return true
}

// Arrived checks the data of a Read that is about to succeed and is not checked yet. If it is wrong, it rejects the Read.
func (h *Hook) Arrived(r *mode.Request) {
	h.Hook.Arrived(r)
	if !r.Hashed || r.Kind != nd.RequestRead || r.Status != nd.Success {
		return
	}
	s := h.sum(r)
	if s.isChecked {
		return
	}
	if s.place >= 0 {
		h.takeHash(r)
	}
	s.isChecked = true
	switch e, f := h.hash(&s.digest, r, r.SGEs, r.Total); {
	case f != window.NoFault && h.ep.HasEnded():
		r.Finish(nd.Canceled) // the data has arrived after the end of the connection, which revokes tokens
	case f != window.NoFault:
		h.ep.RejectLocal(r, e, f)
	case s.digest.Sum64() != s.want:
		h.reject(r)
	}
}

// reject rejects r because its data has changed.
func (h *Hook) reject(r *mode.Request) {
	h.ep.Reject(r, nd.DataChecksumError, fmt.Sprintf(changed, r.Total))
}

// Received checks a message. If it is wrong, the receive and the connection fail.
func (h *Hook) Received(e *wire.Entry, entries []wire.SGE, n uint64) bool {
	if !h.Hook.Received(e, entries, n) {
		return false
	}
	if e.Flags&wire.FlagHashed == 0 {
		return true
	}
	if bad, f := h.hash(&h.served, nil, entries, n); f != window.NoFault {
		h.ep.FailReceive(nd.AccessViolation, nd.RemoteError, fmt.Sprintf("entry of %s: %v", h.ep.DescribeLocal(bad), f), "")
		return false
	}
	if h.served.Sum64() != e.Hash {
		h.ep.FailReceive(nd.DataChecksumError, nd.DataChecksumError, fmt.Sprintf(changed, n), changedNext)
		return false
	}
	return true
}

// failWrite fails a Write of n bytes of the peer whose data has changed. It makes no completion at this side.
func (h *Hook) failWrite(n uint64) {
	h.ep.FailServing(nd.DataChecksumError, fmt.Sprintf("a write of the peer (%s): "+changed, h.ep.PeerName(), n), changedNext)
}

const changed = "the %d bytes of the transfer have changed in flight"

const changedNext = "do not change a buffer before its request is complete"
