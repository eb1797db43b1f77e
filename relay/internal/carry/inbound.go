package carry

import (
	"fmt"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// inbound executes the requests of the other host on the local process, as a requester of the arena.
type inbound struct {
	region  nd.MemoryRegion // staging buffer
	staging staging
	last    uint64    // number of the last request that has begun
	arrived uint32    // bytes of it that have arrived
	posted  []arrival // requests that are not answered, in order; the last one may not be complete
	told    uint64    // number of the last request that a Done has named
	sges    [1]nd.SGE
}

// arrival is a request of the other host.
type arrival struct {
	kind     frame.Kind
	flags    uint8
	address  uint64
	token    nd.Token
	position int
	size     int
	isPosted bool
	finished bool
	status   nd.Status
	sent     int // bytes of the answer to a Read that were sent
}

// accept handles a Send, Write or Read, or a part of one.
func (t *tunnel) accept(f *frame.Frame) error {
	in := &t.in
	if f.Offset == 0 && f.Request == in.last+1 {
		if n := len(in.posted); n > 0 && !in.posted[n-1].isPosted || n >= tunnelDepth {
			return errOrder
		}
		position, ok := in.staging.take(uint64(f.Total))
		if !ok {
			return errRoom
		}
		in.last, in.arrived = f.Request, 0
		in.posted = append(in.posted, arrival{kind: f.Kind, flags: f.Flags, address: f.Address, token: nd.Token(f.Token), position: int(position), size: int(f.Total)})
	} else if f.Request != in.last || len(in.posted) == 0 {
		return errOrder
	}
	a := &in.posted[len(in.posted)-1]
	if a.isPosted || a.kind != f.Kind || f.Offset != in.arrived || int(f.Total) != a.size {
		return errOrder
	}
	copy(in.region.Bytes()[a.position+int(f.Offset):a.position+a.size], f.Payload)
	in.arrived += uint32(len(f.Payload))
	if a.kind != frame.Read && int(in.arrived) < a.size {
		return nil
	}
	a.isPosted = true
	if err := t.execute(a); err != nil && nd.StatusOf(err) != nd.ConnectionInvalid { // that one is an end, which passOnEnd handles
		return fmt.Errorf("post: %w", err)
	}
	return nil
}

// execute posts a request to the local endpoint.
func (t *tunnel) execute(a *arrival) error {
	in := &t.in
	sges := in.sges[:0]
	if a.size > 0 {
		sges = append(sges, nd.SGEOf(in.region, a.position, a.size))
	}
	var flags nd.OpFlags
	if a.flags&frame.Solicited != 0 {
		flags = nd.SendAndSolicitEvent
	}
	switch {
	case a.kind == frame.Write:
		return t.ep.Write(in.last, sges, a.address, a.token, 0)
	case a.kind == frame.Read:
		return t.ep.Read(in.last, sges, a.address, a.token, 0)
	case a.flags&frame.Invalidate != 0:
		return t.ep.SendAndInvalidate(in.last, sges, a.token, flags)
	}
	return t.ep.Send(in.last, sges, flags)
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
		if a := &in.posted[i]; a.isPosted && (!a.finished || a.status != nd.Canceled) {
			return false
		}
	}
	return true
}

// answer answers requests that are finished, in order. It reports whether it has sent anything.
func (t *tunnel) answer() (worked bool) {
	in, l := &t.in, t.link
	done := 0
	for i := range in.posted {
		a := &in.posted[i]
		if !a.finished || a.status != nd.Success || a.kind == frame.Read && !t.sendData(a, in.last+1-uint64(len(in.posted))+uint64(i)) {
			break
		}
		in.staging.free()
		done++
	}
	first := in.last + 1 - uint64(len(in.posted)) + uint64(done) // number of the oldest request that is left
	in.posted = in.posted[:copy(in.posted, in.posted[done:])]
	worked = done > 0
	if in.told+1 < first && l.hasRoom() {
		in.told = first - 1
		l.send(&frame.Frame{Kind: frame.Done, Tunnel: t.remote, Request: in.told}, nil)
		worked = true
	}
	if len(in.posted) > 0 && in.told+1 == first {
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
	return worked
}

// sendData sends the data of a Read. It reports whether all of it is sent.
func (t *tunnel) sendData(a *arrival, number uint64) bool {
	for a.sent < a.size {
		if !t.link.hasRoom() {
			return false
		}
		buffer, payload := t.link.begin()
		n := copy(payload[:min(maxPayload, a.size-a.sent)], t.in.region.Bytes()[a.position+a.sent:a.position+a.size])
		t.link.commit(buffer, &frame.Frame{Kind: frame.Data, Tunnel: t.remote, Request: number, Total: uint32(a.size), Offset: uint32(a.sent)}, n)
		a.sent += n
	}
	return true
}
