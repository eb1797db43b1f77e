package endpoint

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// An endpoint that checks payloads gives each of its requests a hash. The transfer fails with
// nd.DataChecksumError if the bytes are not those that were hashed. docs/integrity.md says between which two
// moments a change is found.
//
// The post of a Send hashes the message. The receiver hashes the filled receive before it completes. The post of
// a Write hashes the data. The executor hashes each byte that it stores, and stores the last bytes only if the
// hash agrees. It does not read the target memory back: a program may poll that memory, and change it before the
// Write is complete. The executor of a Read hashes each byte that it stores. The requester hashes the filled
// buffers before the Read completes.
//
// slowBit keeps such an endpoint on the slow path. wire.FlagHashed keeps its entries from the fast path of the
// peer. So an endpoint without the checks does not pay for them.

// stagingSize is the number of bytes that are copied and hashed at a time. They fit into the nearest cache.
const stagingSize = 16 << 10

// payloadChecks is the state of the checks of an endpoint. The zero value is ready for an endpoint that only
// serves the hashed requests of its peer.
type payloadChecks struct {
	sums    []payloadSum // parallel to requester.requests; nil = this side does not ask for checks
	staging []byte
	served  xxhash.Digest                             // of the peer's Read or Write that is being served
	reads   [len(wire.SharedQP{}.ReadHashes)]*request // Reads that wait for a hash in the peer's word of that index
}

// payloadSum is the hash of a request.
type payloadSum struct {
	digest xxhash.Digest // of the bytes stored so far, if this process copies them
	want   uint64        // the hash that the bytes must have
	isMade bool          // want is final
	place  int           // of a Read: index in payloadChecks.reads; -1 = none
}

// checksPayloads reports whether this side asks for checks of its requests.
func (ep *queuePair) checksPayloads() bool { return ep.checks.sums != nil }

// checkPayloads makes an endpoint ask for checks.
func (ep *queuePair) checkPayloads() {
	ep.checks.sums = make([]payloadSum, len(ep.req.requests))
	ep.checks.staging = make([]byte, stagingSize)
}

// stagingBuffer returns the staging buffer. An endpoint that does not ask for checks allocates it when its
// peer does.
func (ep *queuePair) stagingBuffer() []byte {
	if ep.checks.staging == nil {
		ep.checks.staging = make([]byte, stagingSize)
	}
	return ep.checks.staging
}

// hashPosted hashes the data of request r, which is being posted.
func (ep *queuePair) hashPosted(r *request) {
	r.sum = &ep.checks.sums[ep.sq.posted&uint64(len(ep.checks.sums)-1)]
	r.sum.isMade, r.sum.place = r.Kind == nd.RequestRead, -1
	if !r.sum.isMade && !r.PostedAfterEnd && !r.Flags.Has(nd.ReadFence) { // an earlier Read may bring the data
		// A local token may be invalid still, if an earlier FastRegister makes it valid.
		_, f := ep.hashEntries(&r.sum.digest, r, r.SGEs, r.Total)
		r.sum.want, r.sum.isMade = r.sum.digest.Sum64(), f == window.NoFault
	}
	r.sum.digest.Reset()
}

// expectHash makes the data of r, a request in parts, have a hash that another process has made.
func (ep *queuePair) expectHash(r *request, hash uint64) {
	if !ep.checksPayloads() {
		ep.checkPayloads()
	}
	r.sum = &ep.checks.sums[ep.sq.posted&uint64(len(ep.checks.sums)-1)]
	*r.sum = payloadSum{want: hash, isMade: true, place: -1}
	r.sum.digest.Reset()
}

// hashLate hashes the data of a request that its post could not hash, when the request is about to run. It reports false if it has rejected r.
func (ep *queuePair) hashLate(r *request) bool {
	if r.sum == nil || r.sum.isMade {
		return true
	}
	if e, f := ep.hashEntries(&r.sum.digest, r, r.SGEs, r.Total); f != window.NoFault {
		ep.rejectLocal(r, e, f)
		return false
	}
	r.sum.want, r.sum.isMade = r.sum.digest.Sum64(), true
	r.sum.digest.Reset()
	return true
}

// hashEntries hashes the first n bytes of entries: those of request r, or those of a receive if r is nil. If
// the guard refuses an entry, it returns the entry and the fault.
func (ep *queuePair) hashEntries(d *xxhash.Digest, r *request, entries []wire.SGE, n uint64) (wire.SGE, window.Fault) {
	staging := ep.stagingBuffer()
	d.Reset()
	for at := uint64(0); at < n; {
		e := wire.SGEAt(entries, at)
		part := staging[:min(uint64(e.Length), n-at, stagingSize)]
		if r != nil {
			r.setOperand(&ep.source, e, window.Read)
		} else {
			mode.SetLocalOperand(&ep.source, e, window.Read)
		}
		ep.sink = window.Operand{Mem: part}
		if _, _, f := ep.guard.Copy(&ep.sink, &ep.source, uint64(len(part))); f != window.NoFault {
			return e, f
		}
		_, _ = d.Write(part)
		at += uint64(len(part))
	}
	return wire.SGE{}, window.NoFault
}

// copyHashed copies n bytes from ep.source to ep.sink and adds them to d. If want is not nil, these are the last
// bytes of a request: it stores the last of them only if the hash is *want, and reports false otherwise.
func (ep *queuePair) copyHashed(d *xxhash.Digest, n uint64, want *uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	staging := ep.stagingBuffer()
	sink, source := ep.sink, ep.source
	defer func() { ep.sink, ep.source = sink, source }() // which name what a fault is about
	for {
		part := staging[:min(n, stagingSize)]
		ep.sink, ep.source = window.Operand{Mem: part}, source
		if _, _, f := ep.guard.Copy(&ep.sink, &ep.source, uint64(len(part))); f != window.NoFault {
			return true, window.NoFault, f
		}
		_, _ = d.Write(part)
		if n -= uint64(len(part)); n == 0 && want != nil && d.Sum64() != *want {
			return false, window.NoFault, window.NoFault
		}
		ep.sink, ep.source = sink, window.Operand{Mem: part}
		if _, f, _ := ep.guard.Copy(&ep.sink, &ep.source, uint64(len(part))); f != window.NoFault || n == 0 {
			return true, f, window.NoFault
		}
		advance(&sink, uint64(len(part)))
		advance(&source, uint64(len(part)))
	}
}

// advance makes o name the memory n bytes after its own.
func advance(o *window.Operand, n uint64) {
	if o.Mem != nil {
		o.Mem = o.Mem[n:]
	} else {
		o.Address += n
	}
}

// copyRequest is Guard.Copy for n bytes of request r, whose checks it makes. It reports false for wrong bytes.
func (ep *queuePair) copyRequest(r *request, n uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	if r.sum == nil {
		_, sinkFault, sourceFault = ep.guard.Copy(&ep.sink, &ep.source, n)
		return true, sinkFault, sourceFault
	}
	var want *uint64
	if r.Kind == nd.RequestWrite && r.Transferred+n == r.Total {
		want = &r.sum.want
	}
	return ep.copyHashed(&r.sum.digest, n, want)
}

// copyServed is Guard.Copy for n bytes of the entry being served, which is of a Read or Write of the peer. It
// reports false for wrong bytes.
func (ep *queuePair) copyServed(entry *wire.Entry, n uint64) (matches bool, sinkFault, sourceFault window.Fault) {
	if entry.Flags&wire.FlagHashed == 0 {
		_, sinkFault, sourceFault = ep.guard.Copy(&ep.sink, &ep.source, n)
		return true, sinkFault, sourceFault
	}
	d := &ep.checks.served
	if entry.Flags&wire.FlagFirst != 0 && ep.resp.fragmentCopied == 0 {
		d.Reset()
	}
	var want *uint64
	isEnd := entry.Flags&wire.FlagLast != 0 && ep.resp.fragmentCopied+n == entry.FragmentLength
	if isEnd && entry.Kind == wire.WriteFragment {
		want = &entry.Hash
	}
	matches, sinkFault, sourceFault = ep.copyHashed(d, n, want)
	if isEnd && entry.Kind == wire.ReadFragment {
		ep.answerHash(entry.Hash, d.Sum64())
	}
	return matches, sinkFault, sourceFault
}

// answerHash stores the hash of the data of a Read in the word that the peer has named.
func (ep *queuePair) answerHash(place, hash uint64) {
	ep.localQP.ReadHashes[place%uint64(len(ep.checks.reads))].Store(hash) // ORDER read-hash: before the release of the entry; pairs with the load in takeReadHash
}

// addHash stores the hash of r in a ring entry; in one of a Read, the index of the word for the answer.
func (r *request) addHash(entry *ring.Words) {
	if r.sum == nil {
		return
	}
	if entry[wire.HashWord] = r.sum.want; r.Kind == nd.RequestRead {
		entry[wire.HashWord] = uint64(r.sum.place)
	}
}

// takeReadPlace finds a word of the peer's SharedQP.ReadHashes for the hash of Read r. It reports false if all
// are in use. It takes the hashes that have arrived: a Read may wait long for the results before its own.
func (ep *queuePair) takeReadPlace(r *request) bool {
	for i, other := range ep.checks.reads {
		if r.sum.place >= 0 {
			break
		}
		if other == nil || ep.takeReadHash(other) {
			ep.checks.reads[i], r.sum.place = r, i
		}
	}
	return r.sum.place >= 0
}

// takeReadHash takes the hash that the peer has computed for Read r, which is sent as a whole. It reports false if
// the peer has not served the Read.
func (ep *queuePair) takeReadHash(r *request) bool {
	if !ep.conn.out.IsReleased(r.EndEntry) {
		return false
	}
	i := r.sum.place
	r.sum.want = ep.conn.peerQP.ReadHashes[i].Load() // ORDER read-hash: after the release of the entry; pairs with the store in answerHash
	ep.checks.reads[i], r.sum.place = nil, -1
	return true
}

// checkRead checks the data of r if it is a Read that is about to succeed and is not checked yet. If it is wrong, it rejects r.
func (ep *queuePair) checkRead(r *request) {
	s := r.sum
	if s == nil || r.Kind != nd.RequestRead || r.Status != nd.Success {
		return
	}
	if s.place >= 0 {
		ep.takeReadHash(r)
	}
	r.sum = nil // checked
	switch e, f := ep.hashEntries(&s.digest, r, r.SGEs, r.Total); {
	case f != window.NoFault && ep.hasEnded():
		r.cancel() // the data has arrived after revokeBound, which revokes tokens
	case f != window.NoFault:
		ep.rejectLocal(r, e, f)
	case s.digest.Sum64() != s.want:
		ep.rejectHash(r)
	}
}

// checkReads checks the Reads whose data has arrived, although requests before them may not be complete yet. It is
// called before a local token is revoked, because checkRead needs the token. It reports false if a Read has wrong data.
func (ep *queuePair) checkReads() (match bool) {
	match = true
	if !ep.checksPayloads() || ep.life.remoteReleased {
		return match
	}
	for number := ep.sq.completed; number != ep.req.next; number++ {
		r := ep.requestAt(number)
		hasArrived := r.Finished || !ep.weak.isAside(number) && ep.conn.out.IsReleased(r.EndEntry)
		if r.sum != nil && hasArrived {
			ep.corruptSink(r)
			ep.checkRead(r)
		}
		match = match && r.Status == nd.Success
	}
	return match
}

// rejectHash rejects r because its data has changed.
func (ep *queuePair) rejectHash(r *request) outcome {
	return ep.reject(r, nd.DataChecksumError, changedBytes, r.Total)
}

// checkMessage checks the message of total bytes that r has received. If it is wrong, the receive and the
// connection fail.
func (ep *queuePair) checkMessage(entry *wire.Entry, r *receive, total uint64) bool {
	if ep.faults() != nil {
		ep.corruptMessage(r, nd.Success, total)
	}
	d := &ep.checks.served
	if e, f := ep.hashEntries(d, nil, r.sges(), total); f != window.NoFault {
		ep.completeReceive(r, nd.AccessViolation, 0, 0)
		ep.failServing(nd.RemoteError, ep.opError("receive", nd.AccessViolation, fmt.Sprintf("entry of %s: %v", ep.describeLocal(e), f), ""))
		return false
	}
	if d.Sum64() == entry.Hash {
		return true
	}
	ep.completeReceive(r, nd.DataChecksumError, 0, 0)
	ep.failServing(nd.DataChecksumError, ep.opError("receive", nd.DataChecksumError, fmt.Sprintf(changedBytes, total), changedBytesNext))
	return false
}

// failHash fails a Write of n bytes of the peer whose data has changed. It makes no completion at this side.
func (ep *queuePair) failHash(n uint64) {
	ep.failServing(nd.DataChecksumError, ep.opError("serve", nd.ConnectionAborted,
		fmt.Sprintf("a write of the peer (%s): "+changedBytes, ep.conn.peerName, n), changedBytesNext))
}

const changedBytes = "the %d bytes of the transfer have changed in flight"

const changedBytesNext = "do not change a buffer before its request is complete"
