package relay

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// inbound executes the requests of the other host on the local process, as a requester of the arena.
type inbound struct {
	last    uint64      // number of the last request that has begun
	arrived uint32      // bytes of it that have arrived
	posted  []inRequest // requests that are not answered, in order; the last one may not have arrived completely
	done    uint64      // number of the last request that is complete, as are all before it
	acked   uint64      // number of the last request of which the other relay knows that
	waited  int         // turns of the tunnel for which a Done has waited
	since   time.Time   // when it began to wait
	delay   int         // turns for which a Done waits for an answer of the process
	late    int         // turns left in which an answer shows that the last Done was sent too early
	room    room        // of the bytes of Sends and Writes
	order   relayhook.Order
	olds    [tunnelDepth]uint64 // old values that Atomics have returned, by the rest of their numbers
}

// inRequest is a request of the other host.
type inRequest struct {
	kind     frame.Kind
	size     uint32
	hashed   bool // a Read whose Data carries hashes
	finished bool
	status   nd.Status
	sent     uint32 // bytes of the answer to a Read or Atomic that were sent
}

// isAsked reports whether the request has data as its answer.
func (a *inRequest) isAsked() bool { return a.kind == frame.Read || a.kind == frame.Atomic }

// accept handles a Send, Write, Read or Atomic, or a part of one.
func (t *tunnel) accept(f *frame.Frame) error {
	in := &t.in
	n := len(in.posted)
	isPart := n > 0 && !in.posted[n-1].isAsked() && in.arrived < in.posted[n-1].size
	switch {
	case isPart:
		if a := &in.posted[n-1]; f.Request != in.last || a.kind != f.Kind || f.Total != a.size || f.Offset != in.arrived || f.Hash != in.order.Hash || f.Immediate != in.order.Immediate {
			return errOrder
		}
	case f.Offset != 0 || f.Request != in.last+1 || n >= tunnelDepth:
		return errOrder
	}
	if f.Kind == frame.Atomic {
		return t.acceptAtomic(f)
	}
	if !in.room.receive(len(f.Payload)) {
		return errRoom
	}
	if isPart {
		in.arrived += uint32(len(f.Payload))
		t.ep.Give(f.Payload)
		return nil
	}
	in.last, in.arrived = f.Request, uint32(len(f.Payload))
	isHashed := f.Flags&frame.Hashed != 0
	in.posted = append(in.posted, inRequest{kind: f.Kind, size: f.Total, hashed: isHashed && f.Kind == frame.Read})
	if f.Kind != frame.Read && f.Total > smallRoom/2 {
		t.link.relay.enlarge(&in.room)
	}
	in.order = relayhook.Order{Context: f.Request, Kind: orderKind(f.Kind), Total: uint64(f.Total), Address: f.Address, Token: nd.Token(f.Token),
		Invalidate: f.Flags&frame.Invalidate != 0, Solicited: f.Flags&frame.Solicited != 0,
		Hashed: isHashed && f.Kind != frame.Read, Hash: f.Hash, HasImmediate: f.Flags&frame.Immediate != 0, Immediate: f.Immediate}
	return t.begin(f.Payload)
}

// acceptAtomic handles an Atomic.
func (t *tunnel) acceptAtomic(f *frame.Frame) error {
	in := &t.in
	var c frame.Change
	if err := c.Decode(f.Payload); err != nil {
		return err
	}
	in.last, in.arrived = f.Request, 0
	in.posted = append(in.posted, inRequest{kind: f.Kind, size: frame.OldSize})
	change := relayhook.Change{Type: nd.RequestFetchAndAdd + nd.RequestType(c.Operation-frame.FetchAndAdd), Operand: c.Operand, Swap: c.Swap}
	in.order = relayhook.Order{Context: f.Request, Kind: relayhook.Atomic, Total: frame.OldSize, Address: f.Address, Token: nd.Token(f.Token),
		Change: change, Old: &in.olds[f.Request%tunnelDepth]}
	return t.begin(nil)
}

// begin posts the request of in.order, with the bytes of it that have arrived.
func (t *tunnel) begin(data []byte) error {
	if err := t.ep.Begin(&t.in.order, data); err != nil && nd.StatusOf(err) != nd.ConnectionInvalid { // that one is an end, which passOnEnd handles
		return fmt.Errorf("post: %w", err)
	}
	return nil
}

func orderKind(k frame.Kind) relayhook.Kind {
	switch k {
	case frame.Write:
		return relayhook.Write
	case frame.Read:
		return relayhook.Read
	}
	return relayhook.Send
}

// finish notes the result of a request.
func (t *tunnel) finish(result *nd.Result) {
	in := &t.in
	i := result.RequestContext - (in.last + 1 - uint64(len(in.posted)))
	if i < uint64(len(in.posted)) {
		in.posted[i].finished, in.posted[i].status = true, result.Status
	}
}

// isSettled reports whether all requests that were posted have a result, and nothing is left to answer.
func (in *inbound) isSettled() bool {
	for i := range in.posted {
		if a := &in.posted[i]; !a.finished || a.status != nd.Canceled {
			return false
		}
	}
	return in.acked == in.done
}

// answer answers requests that are finished, in order. It reports whether it has sent anything.
func (t *tunnel) answer() (worked bool) {
	in, l := &t.in, t.link
	if in.late > 0 {
		in.late--
	}
	if len(in.posted) == 0 && in.acked == in.last { // nothing to answer
		return t.grantRoom()
	}
	first := in.last + 1 - uint64(len(in.posted)) // number of the oldest request that is not answered
	done, onlySends := 0, true
	for i := range in.posted {
		a := &in.posted[i]
		if a.isAsked() && a.sent < a.size && !(a.finished && a.status != nd.Success) {
			worked = t.sendData(a, first+uint64(i)) || worked
			if a.sent < a.size {
				break
			}
		}
		if !a.finished || a.status != nd.Success {
			break
		}
		done++
		onlySends = onlySends && a.kind == frame.Send
	}
	first += uint64(done)
	in.posted = in.posted[:copy(in.posted, in.posted[done:])]
	if in.done = first - 1; in.acked < in.done {
		mayWait := onlySends && !t.localEnded && in.done-in.acked < tunnelDepth/4 && (len(in.posted) == 0 || !in.posted[0].finished)
		if in.waited == 0 {
			in.since = l.relay.now
		}
		if mayWait && in.waited < in.delay && l.relay.now.Sub(in.since) < maxDelay {
			in.waited++ // Run does not sleep before that many steps
		} else if l.hasRoom() {
			in.acked, in.waited, in.delay, in.late = in.done, 0, shortDelay, longDelay
			l.send(&frame.Frame{Kind: frame.Done, Tunnel: t.remote, Request: in.acked}, nil)
			worked = true
		}
	}
	if len(in.posted) > 0 && in.acked+1 == first {
		if a := &in.posted[0]; a.finished && a.status != nd.Success && a.status != nd.Canceled {
			why := "refused"
			if err := t.ep.Err(); err != nil {
				why = err.Error()
			}
			t.post(note{kind: frame.Fail, request: first, status: a.status, payload: text(why)})
			t.end(nd.ConnectionAborted, why)
			return true
		}
	}
	return t.grantRoom() || worked
}

// tellDone returns how many further requests the other relay learns to be complete, from the frame that carries the number.
func (t *tunnel) tellDone() uint32 {
	in := &t.in
	n := in.done - in.acked
	if n > 0 || in.late > 0 {
		in.delay = longDelay
	}
	in.acked, in.waited, in.late = in.done, 0, 0
	return uint32(n)
}

// sendData sends data of a Read that the local process lets the relay have now. It reports whether it has sent any. The
// last of it makes the Read succeed.
func (t *tunnel) sendData(a *inRequest, number uint64) (worked bool) {
	if a.kind == frame.Atomic {
		return a.finished && t.sendOld(a, number)
	}
	for range framesATurn {
		if a.sent == a.size || !t.link.hasRoom() {
			return worked
		}
		buffer, payload := t.link.begin()
		n := t.ep.Take(number, payload[:min(maxPayload, a.size-a.sent)])
		if n == 0 {
			t.link.relay.ofi.FreeBuffer(buffer)
			return worked
		}
		f := frame.Frame{Kind: frame.Data, Tunnel: t.remote, Request: number, Done: t.tellDone(), Total: a.size, Offset: a.sent}
		if a.hashed {
			f.Flags, f.Hash = frame.Hashed, xxhash.Sum64(payload[:n])
		}
		t.link.commit(buffer, &f, n)
		a.sent += uint32(n)
		worked = true
	}
	return worked
}

// sendOld answers an Atomic that has succeeded. It reports false if there is no room on the link.
func (t *tunnel) sendOld(a *inRequest, number uint64) bool {
	if !t.link.hasRoom() {
		return false
	}
	var payload [frame.OldSize]byte
	f := frame.Frame{Kind: frame.Data, Tunnel: t.remote, Request: number, Done: t.tellDone(), Total: a.size}
	t.link.send(&f, frame.AppendOld(payload[:0], t.in.olds[number%tunnelDepth]))
	a.sent = a.size
	return true
}

// grantRoom lets the other relay send more.
func (t *tunnel) grantRoom() bool {
	in := &t.in
	if in.room.isRoomy() || !t.link.hasRoom() {
		return false
	}
	limit, ok := in.room.grant(t.ep.Used())
	if ok {
		t.link.send(&frame.Frame{Kind: frame.Room, Tunnel: t.remote, Request: limit}, nil)
	}
	return ok
}
