package relay

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// outbound carries the requests of the local process to the other relay.
type outbound struct {
	given uint64       // bytes of Sends and Writes so far
	limit uint64       // of them, that the other relay has granted
	begun uint64       // number of the last request that has one
	done  uint64       // number of the last request that is done
	sent  []outRequest // the requests after it that were sent, in order

	entry     relayhook.Request // ring entry being carried
	hasEntry  bool
	hasNumber bool   // the request of entry has a number
	fetched   uint64 // bytes of entry that were sent

	message   relayhook.Request // first entry of the Send or Write in progress
	inMessage bool
	carried   uint64 // bytes of it in the entries before entry
	fetchedTo uint64 // number after its last entry that was fetched

	readSum xxhash.Digest // of the data of the hashed Read that arrives

	refused *refusal // the request that cannot be carried; nothing behind it is
}

// outRequest is a request that was sent and is not done.
type outRequest struct {
	asked  relayhook.Request // of a Read or Atomic, its entry
	isAsk  bool              // it is one of these
	last   uint64            // number of its last ring entry
	stored uint64            // bytes of its answer that have arrived
}

// isAsk reports whether a request has data as its answer.
func isAsk(k relayhook.Kind) bool { return k == relayhook.Read || k == relayhook.Atomic }

// refusal is a request that fails when all requests before it are done.
type refusal struct {
	number uint64 // of a ring entry
	status nd.Status
	why    string
}

// forward takes entries out of the ring and sends their data. It reports whether it has done anything.
func (t *tunnel) forward() (worked bool) {
	o := &t.out
	for range entriesATurn {
		if o.refused != nil || !t.link.hasRoom() {
			return worked
		}
		if !o.hasEntry {
			if !t.ep.HasNext() || !t.ep.Next(&o.entry) {
				return worked
			}
			o.hasEntry, o.fetched, worked = true, 0, true
			if !t.checkEntry() {
				return true
			}
		}
		if !o.hasNumber {
			if len(o.sent) == tunnelDepth {
				return worked
			}
			o.hasNumber = true
			o.begun++
		}
		before := o.given
		if !t.sendEntry() {
			return worked || o.given != before || !o.hasEntry
		}
		worked = true
	}
	return worked
}

// checkEntry checks a new entry. It reports false if the entry is not carried.
func (t *tunnel) checkEntry() bool {
	o, e := &t.out, &t.out.entry
	size := e.Total
	if e.Kind == relayhook.Read {
		size = e.Length
	}
	switch {
	case size > frame.MaxTotal: // refused below
	case isAsk(e.Kind) && size > 0 && !o.inMessage:
		o.hasNumber = false
		return true
	case !isAsk(e.Kind) && e.First != o.inMessage:
		if e.First {
			o.message, o.inMessage, o.carried, o.hasNumber = *e, true, 0, false
		}
		m := &o.message
		isWhole := e.Length <= m.Total-o.carried && e.Last == (e.Length == m.Total-o.carried) && (e.Length > 0 || e.Total == 0)
		isSame := e.Kind == m.Kind && e.Total == m.Total && e.HasImmediate == m.HasImmediate && e.Immediate == m.Immediate
		if isSame && isWhole && (e.Kind == relayhook.Send || !e.Invalidate && (e.HasImmediate || !e.Solicited)) {
			return true
		}
	}
	t.end(nd.ConnectionAborted, fmt.Sprintf("ring entry %d is none that a correct process writes", e.Number))
	return false
}

// refuse makes a request fail when those before it are done.
func (t *tunnel) refuse(number uint64, status nd.Status, why string) {
	if t.out.refused == nil {
		t.out.refused = &refusal{number, status, why}
		t.failRefused()
	}
}

func (t *tunnel) failRefused() {
	o := &t.out
	if o.refused != nil && len(o.sent) == 0 {
		t.ep.Fail(o.refused.number, o.refused.status, o.refused.why)
		t.end(nd.ConnectionAborted, o.refused.why)
	}
}

// sendEntry sends frames with the rest of the entry. It reports false if it could not send all, or not in this turn.
func (t *tunnel) sendEntry() bool {
	o, e, l := &t.out, &t.out.entry, t.link
	f := frame.Frame{Tunnel: t.remote, Request: o.begun}
	if isAsk(e.Kind) {
		t.ask(&f)
		return true
	}
	f.Kind, f.Total = frame.Send, uint32(o.message.Total)
	if o.message.Kind == relayhook.Write {
		f.Kind, f.Address, f.Token = frame.Write, o.message.Address, uint32(o.message.Token)
	}
	if o.message.Invalidate {
		f.Flags, f.Token = frame.Invalidate, uint32(o.message.Token)
	}
	if o.message.Solicited {
		f.Flags |= frame.Solicited
	}
	if o.message.Hashed {
		f.Flags |= frame.Hashed
		f.Hash = o.message.Hash
	}
	if o.message.HasImmediate {
		f.Flags |= frame.Immediate
		f.Immediate = o.message.Immediate
	}
	for frames := 0; o.fetched < e.Length || frames == 0; frames++ {
		n := min(e.Length-o.fetched, maxPayload)
		if room := o.limit - o.given; n > room {
			if n = room; n < leastPart {
				return false
			}
		}
		if frames == framesATurn || !l.hasRoom() {
			return false
		}
		buffer, payload := l.begin()
		if s := t.ep.Fetch(e, o.fetched, payload[:n]); s != nd.Success {
			l.relay.ofi.FreeBuffer(buffer)
			if s == nd.AccessViolation {
				t.refuse(e.Number, s, "the request names memory of its own process that its token does not allow")
			}
			o.hasEntry = false // of an ended connection nothing more is carried
			return false
		}
		f.Offset, f.Done = uint32(o.carried+o.fetched), t.tellDone()
		l.commit(buffer, &f, int(n))
		o.fetched += n
		o.given += n
	}
	o.hasEntry, o.carried, o.fetchedTo = false, o.carried+e.Length, e.Number+1
	if e.Last {
		o.inMessage = false
		o.sent = append(o.sent, outRequest{last: e.Number})
		return true
	}
	t.releaseFetched()
	return true
}

// ask sends the entry, a Read or an Atomic, with a frame that has its tunnel and its number.
func (t *tunnel) ask(f *frame.Frame) {
	o, e := &t.out, &t.out.entry
	var room [frame.ChangeSize]byte
	payload := room[:0]
	f.Kind, f.Address, f.Token, f.Done = frame.Read, e.Address, uint32(e.Token), t.tellDone()
	if e.Kind == relayhook.Atomic {
		f.Kind = frame.Atomic
		c := frame.Change{Operation: frame.FetchAndAdd + frame.Operation(e.Change.Type-nd.RequestFetchAndAdd), Operand: e.Change.Operand, Swap: e.Change.Swap}
		payload = c.Append(payload)
	} else if f.Total = uint32(e.Length); e.Hashed {
		f.Flags = frame.Hashed
	}
	t.link.send(f, payload)
	o.sent = append(o.sent, outRequest{asked: *e, isAsk: true, last: e.Number})
	o.hasEntry = false
}

// releaseFetched releases the fetched entries of the message in progress, if all requests before it are done. The local
// process may need the entries, or the buffer to which they refer, for the rest of the message.
func (t *tunnel) releaseFetched() {
	if t.out.inMessage && len(t.out.sent) == 0 && t.out.carried > 0 {
		t.ep.Complete(t.out.fetchedTo)
	}
}

// done handles Done: all requests up to a number are complete.
func (t *tunnel) done(number uint64) error {
	o := &t.out
	if number <= o.done || number-o.done > uint64(len(o.sent)) {
		return errOrder
	}
	n := int(number - o.done)
	for i := range o.sent[:n] {
		if d := &o.sent[i]; d.isAsk && d.stored != d.asked.Length {
			return errOrder
		}
	}
	t.ep.Complete(o.sent[n-1].last + 1)
	o.sent = o.sent[:copy(o.sent, o.sent[n:])]
	o.done = number
	t.releaseFetched()
	t.failRefused()
	return nil
}

// enlarge handles Room: the other relay can hold more bytes.
func (t *tunnel) enlarge(limit uint64) error {
	if limit <= t.out.limit {
		return errOrder
	}
	t.out.limit = limit
	return nil
}

// store handles the data of a Read, or the answer to an Atomic.
func (t *tunnel) store(f *frame.Frame) error {
	i := f.Request - t.out.done - 1
	if i >= uint64(len(t.out.sent)) {
		return errOrder
	}
	for j := range t.out.sent[:i] { // data arrives in the order of the requests
		if e := &t.out.sent[j]; e.isAsk && e.stored != e.asked.Length {
			return errOrder
		}
	}
	d := &t.out.sent[i]
	if !d.isAsk || uint64(f.Total) != d.asked.Length || uint64(f.Offset) != d.stored || (f.Flags&frame.Hashed != 0) != d.asked.Hashed {
		return errOrder
	}
	if d.asked.Kind == relayhook.Atomic {
		if len(f.Payload) != frame.OldSize {
			return errOrder
		}
		t.ep.AnswerAtomic(&d.asked, frame.Old(f.Payload))
		d.stored = frame.OldSize
		return nil
	}
	if d.asked.Hashed && !t.checkData(d, f) {
		return nil
	}
	if s := t.ep.Store(&d.asked, d.stored, f.Payload); s == nd.AccessViolation {
		t.refuseRead(d.last, s, "a Read names memory of its own process that its token does not allow")
	}
	d.stored += uint64(len(f.Payload))
	return nil
}

// checkData checks a part of the data of a hashed Read. The process checks the whole, so it gets the hash of the whole. It reports false
// if the Read has failed.
func (t *tunnel) checkData(d *outRequest, f *frame.Frame) bool {
	if xxhash.Sum64(f.Payload) != f.Hash {
		t.refuseRead(d.last, nd.DataChecksumError, "data of a Read has changed between two hosts")
		return false
	}
	sum := &t.out.readSum
	if d.asked.First && d.stored == 0 {
		sum.Reset()
	}
	_, _ = sum.Write(f.Payload)
	if d.asked.Last && d.stored+uint64(len(f.Payload)) == d.asked.Length {
		t.ep.AnswerHash(&d.asked, sum.Sum64())
	}
	return true
}

// refuseRead makes a Read fail whose data cannot be stored, and everything behind it.
func (t *tunnel) refuseRead(number uint64, status nd.Status, why string) {
	t.ep.Fail(number, status, why)
	t.end(nd.ConnectionAborted, "a Read of the other process has failed there")
}

// fail handles Fail: the oldest request has failed. It may be the one in progress.
func (t *tunnel) fail(f *frame.Frame) error {
	o := &t.out
	var entry uint64
	switch {
	case f.Kind != frame.Fail || f.Request != o.done+1:
		return errOrder
	case len(o.sent) > 0:
		entry = o.sent[0].last
	case !o.inMessage || f.Request != o.begun:
		return errOrder
	case o.hasEntry:
		entry = o.entry.Number
	default:
		entry = o.fetchedTo - 1
	}
	t.ep.Fail(entry, nd.Status(f.Status), string(f.Payload))
	t.end(nd.ConnectionAborted, "a request has failed")
	return nil
}
