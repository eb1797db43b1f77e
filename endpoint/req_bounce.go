package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

func (ep *queuePair) allocateBounce() error {
	heap := ep.provider.member
	off, err := heap.Alloc(bounceCount * bounceSize)
	if err != nil {
		return err
	}
	mem, err := ep.provider.arena.Bytes(off, bounceCount*bounceSize)
	if err != nil {
		return err
	}
	region, err := ep.adapter.domain.NewRegion()
	if err == nil {
		err = region.Register(mem, nd.AllowLocalWrite, nil)
	}
	if err != nil {
		_ = heap.Free(off)
		return err
	}
	ep.req.bounce = bounceBuffers{region: region, offset: off, mem: mem}
	return nil
}

// bounceOut takes a free bounce buffer for as much of the private entry e as fits, and returns the
// entry that names the buffer instead. Unless r is a Read, it copies the data into the buffer.
func (ep *queuePair) bounceOut(r *request, e wire.SGE) (buffer int, sge wire.SGE, out outcome) {
	if ep.req.bounce.region == nil {
		if err := ep.allocateBounce(); err != nil {
			return 0, e, ep.reject(r, nd.InternalError, "no memory for bounce buffers: %v", err)
		}
	}
	buffer = -1
	for i, end := range ep.req.bounce.freedBy {
		if ep.conn.out.IsReleased(end) {
			buffer = i
		}
	}
	if buffer < 0 {
		return 0, e, ep.stall(r, stallQueue)
	}
	n := min(uint64(e.Length), bounceSize)
	mem := ep.req.bounce.mem[buffer*bounceSize:][:n]
	if r.Kind != nd.RequestRead {
		r.setOperand(&ep.source, e, window.Read)
		ep.sink = window.Operand{Mem: mem}
		if _, _, f := ep.guard.Copy(&ep.sink, &ep.source, n); f != window.NoFault {
			return 0, e, ep.rejectLocal(r, e, f)
		}
		if r.parts != nil {
			r.parts.advance(r, n)
		}
	}
	local, _ := ep.req.bounce.region.Tokens()
	return buffer, wire.SGE{Address: shm.AddressOf(mem), Length: uint32(n), Token: local}, executed
}

// bounceIn copies a fragment of a Read from its bounce buffer to private memory, once the peer has
// filled the buffer.
func (ep *queuePair) bounceIn(r *request) outcome {
	if !ep.conn.out.IsReleased(r.EndEntry) {
		return blocked
	}
	if r.parts != nil {
		return ep.bounceToRoom(r)
	}
	n := uint64(r.bounceSGE.Length)
	e := wire.SGEAt(r.SGEs, r.Transferred-n)
	r.setOperand(&ep.sink, e, window.Write)
	ep.source = window.Operand{Mem: ep.req.bounce.mem[r.bounceIndex*bounceSize:][:n]}
	r.bounceIndex = -1
	if _, f, _ := ep.guard.Copy(&ep.sink, &ep.source, n); f != window.NoFault {
		return ep.rejectLocal(r, e, f)
	}
	return executed
}

// bounceToRoom stores the data of a Read, which has arrived in a bounce buffer, in the room that the program passes.
func (ep *queuePair) bounceToRoom(r *request) outcome {
	p := r.parts
	n := copy(p.room, ep.req.bounce.mem[r.bounceIndex*bounceSize:][:r.bounceSGE.Length][p.bounced:])
	p.room, p.bounced = p.room[n:], p.bounced+uint64(n)
	if p.bounced < uint64(r.bounceSGE.Length) {
		return blocked
	}
	p.bounced, r.bounceIndex = 0, -1
	return executed
}
