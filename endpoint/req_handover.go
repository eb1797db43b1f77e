package endpoint

import (
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// handOver sends a request to the peer, a piece for each entry, and leaves the
// copying to it. Private memory of ours goes through a staging buffer, because
// the peer cannot reach it.
func (ep *Endpoint) handOver(r *request, budget *uint64) outcome {
	c := ep.conn
	r.awaited = true
	if r.kind == nd.RequestWrite && r.total <= inlineWritePayload {
		return ep.writeSmall(r)
	}
	for {
		if r.staged >= 0 {
			if out := ep.unstage(r); out != ready {
				return out
			}
		}
		if r.finished || r.moved == r.total {
			return ready
		}
		if *budget == 0 {
			return partial
		}
		if r.kind == nd.RequestRead && r.moved == 0 && c.hasReadsInFlight(uint64(ep.readLimit)) {
			return waits
		}
		e := cut(r.entries, r.moved)
		right := window.Read
		if r.kind == nd.RequestRead {
			right = window.Write
		}
		r.name(&ep.source, e, right)
		private, f := ep.guard.IsPrivate(&ep.source, uint64(e.length))
		if f != window.NoFault {
			return ep.ownFault(r, e, f)
		}
		if c.out.FreeSlots() == 0 {
			if ep.stall(); c.out.FreeSlots() == 0 {
				return waits
			}
		}
		n := uint64(e.length)
		buffer := -1
		if private {
			var out outcome
			if buffer, e, out = ep.stageEntry(r, e); out != ready {
				return out
			}
			if r.finished {
				return ready
			}
			n = uint64(e.length)
			*budget -= min(n, *budget)
		}
		flags := flagAwaited | r.marks()
		if r.moved == 0 {
			flags |= flagFirst
		}
		if r.moved+n == r.total {
			flags |= flagLast
		}
		ep.slot = piece(pieceKind(r.kind), flags, r.token, e, r.remote+r.moved, r.total)
		ep.push(r, &ep.slot)
		if r.moved == 0 && r.kind == nd.RequestSend {
			c.credit.takeReceive()
		}
		c.peer.Ring()
		if r.moved += n; r.kind == nd.RequestRead && r.moved == r.total {
			c.readEnds[c.readsSent%maxReads] = r.end
			c.readsSent++
		}
		if buffer >= 0 {
			ep.stage.until[buffer] = r.end
			if r.kind == nd.RequestRead {
				r.staged, r.stagedEntry = buffer, e
			}
		}
	}
}

func pieceKind(t nd.RequestType) kind {
	switch t {
	case nd.RequestWrite:
		return writePiece
	case nd.RequestRead:
		return readPiece
	}
	return sendPiece
}

// writeSmall puts the data of a Write into the slot itself.
func (ep *Endpoint) writeSmall(r *request) outcome {
	c := ep.conn
	if c.out.FreeSlots() == 0 {
		if ep.stall(); c.out.FreeSlots() == 0 {
			return waits
		}
	}
	payload, ok := ep.gather(r)
	if !ok {
		return ready
	}
	ep.slot[0], ep.slot[1] = head(writeInline, flagFirst|flagLast|flagAwaited, int(r.total), r.token), r.remote
	putPayload(&ep.slot, 2, payload)
	ep.push(r, &ep.slot)
	c.peer.Ring()
	return ready
}

const (
	stageBuffers = 2
	stageSize    = window.ChunkSize
)

// stage is arena memory through which private memory passes. It is made when
// an endpoint first needs it.
type stage struct {
	region *window.Region
	offset shm.Offset
	mem    []byte
	until  [stageBuffers]uint64 // number of the message that frees the buffer

	local, remote nd.Token // being drained, when the endpoint is freed
}

func (ep *Endpoint) makeStage() error {
	heap := ep.provider.member.Heap()
	off, err := heap.Alloc(stageBuffers * stageSize)
	if err != nil {
		return err
	}
	mem, err := ep.provider.arena.Bytes(off, stageBuffers*stageSize)
	if err != nil {
		return err
	}
	region, err := ep.adapter.space.NewRegion()
	if err == nil {
		err = region.Register(mem, nd.AllowLocalWrite)
	}
	if err != nil {
		_ = heap.Free(off)
		return err
	}
	ep.stage = stage{region: region, offset: off, mem: mem}
	return nil
}

// stageEntry puts (the start of) a private entry into a free buffer and
// returns the entry that names it instead.
func (ep *Endpoint) stageEntry(r *request, e entry) (buffer int, staged entry, out outcome) {
	if ep.stage.region == nil {
		if err := ep.makeStage(); err != nil {
			return 0, e, ep.reject(r, nd.InternalError, "no staging memory: %v", err)
		}
	}
	buffer = -1
	for i, until := range ep.stage.until {
		if int64(ep.conn.out.Consumed()-until) >= 0 {
			buffer = i
		}
	}
	if buffer < 0 {
		return 0, e, waits
	}
	n := min(uint64(e.length), stageSize)
	mem := ep.stage.mem[buffer*stageSize:][:n]
	if r.kind != nd.RequestRead {
		r.name(&ep.source, e, window.Read)
		ep.sink = window.Operand{Mem: mem}
		if _, _, f := ep.guard.Copy(&ep.sink, &ep.source, n); f != window.NoFault {
			return 0, e, ep.ownFault(r, e, f)
		}
	}
	local, _ := ep.stage.region.Tokens()
	return buffer, entry{shm.AddressOf(mem), uint32(n), local}, ready
}

// unstage waits for a piece of a Read and moves it to where it belongs.
func (ep *Endpoint) unstage(r *request) outcome {
	if int64(ep.conn.out.Consumed()-r.end) < 0 {
		return waits
	}
	n := uint64(r.stagedEntry.length)
	e := cut(r.entries, r.moved-n)
	r.name(&ep.sink, e, window.Write)
	ep.source = window.Operand{Mem: ep.stage.mem[r.staged*stageSize:][:n]}
	r.staged = -1
	if _, f, _ := ep.guard.Copy(&ep.sink, &ep.source, n); f != window.NoFault {
		return ep.ownFault(r, e, f)
	}
	return ready
}
