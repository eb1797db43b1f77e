package endpoint

// TWIN c/src/endpoint/req_execute.c.

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// sendFragments sends a request to the peer, which copies the data: one fragment for each
// scatter/gather entry. Entries in private memory, which the peer cannot reach, go through a bounce
// buffer, one fragment for each filling of the buffer.
func (ep *queuePair) sendFragments(r *request, budget *uint64) outcome {
	c := ep.conn
	r.needsAck = true // the request completes when the peer has released its last entry
	if r.Kind == nd.RequestWrite && r.FitsEntry(wire.WriteInEntry) && ep.travelsWhole(r) {
		return ep.pushWriteInEntry(r)
	}
	for {
		if r.bounceIndex >= 0 { // the previous fragment, of a Read: its data arrives in a bounce buffer
			if out := ep.bounceIn(r); out != executed {
				return out
			}
		}
		if r.State == mode.Finished || r.Transferred == r.Total {
			return executed
		}
		if *budget == 0 {
			return partial
		}
		_, whole, out := ep.nextBytes(r, r.Total-r.Transferred)
		if whole == 0 {
			return out
		}
		if r.Kind == nd.RequestRead && r.Transferred == 0 &&
			(c.hasReadsInFlight(uint64(ep.req.readLimit)) || r.Hashed && !ep.hook.BeforeRead(&r.Request)) {
			return ep.stall(r, stallOrder)
		}
		e := wire.SGEAt(r.SGEs, r.Transferred) // transferred counts the bytes that earlier fragments name
		e.Length = uint32(min(uint64(e.Length), whole))
		if r.Kind != nd.RequestRead { // the data of a Read in parts arrives in a bounce buffer first
			if e.Length = uint32(r.limit(uint64(e.Length))); e.Length == 0 {
				return blocked
			}
		}
		right := window.Read // that the local token must grant
		if r.Kind == nd.RequestRead {
			right = window.Write
		}
		r.setOperand(&ep.source, e, right) // a field, to avoid an allocation; here it only names e for the check
		private, f := ep.guard.IsPrivate(&ep.source, uint64(e.Length))
		if f != window.NoFault {
			return ep.rejectLocal(r, e, f)
		}
		if !ep.hasFreeEntry() {
			return ep.stall(r, stallQueue)
		}
		n := uint64(e.Length)
		buffer := -1 // number of the bounce buffer, if the fragment needs one
		if private {
			if buffer, e, out = ep.bounceOut(r, e); out != executed {
				return out
			}
			if r.State == mode.Finished {
				return executed
			}
			n = uint64(e.Length)
			*budget -= min(n, *budget)
		}
		flags := wire.FlagAckRequest | r.entryFlags()
		if r.Transferred == 0 {
			flags |= wire.FlagFirst
		}
		if r.Transferred+n == r.Total {
			flags |= wire.FlagLast
		}
		entry := wire.Fragment(fragmentKind(r.Kind), flags, r.RemoteToken, e, r.RemoteAddress+r.Transferred, r.Total)
		takesReceive := r.Transferred == 0 && r.Kind == nd.RequestSend
		if r.HasImmediate && r.Kind == nd.RequestWrite {
			wire.PutImmediate(&entry, r.Immediate)
			takesReceive = flags&wire.FlagLast != 0
		}
		ep.pushEntry(r, &entry, takesReceive)
		ep.counters.fragments++
		c.record.Peer.Wake()
		if r.Transferred += n; r.Kind == nd.RequestRead && r.Transferred == r.Total {
			c.countRead(r.EndEntry)
		}
		if buffer >= 0 {
			ep.req.bounce.freedBy[buffer] = r.EndEntry
			if r.Kind == nd.RequestRead {
				r.bounceIndex, r.bounceSGE = buffer, e
			}
		}
	}
}

func fragmentKind(t nd.RequestType) wire.Kind {
	switch t {
	case nd.RequestWrite:
		return wire.WriteFragment
	case nd.RequestRead:
		return wire.ReadFragment
	}
	return wire.SendFragment
}

// pushWriteInEntry sends a Write with its data in the ring entry.
func (ep *queuePair) pushWriteInEntry(r *request) outcome {
	c := ep.conn
	if !ep.hasFreeEntry() {
		return ep.stall(r, stallQueue)
	}
	payload, ok := ep.gatherPayload(r)
	if !ok {
		return executed
	}
	flags := wire.FlagFirst | wire.FlagLast | wire.FlagAckRequest | r.entryFlags()
	entry := ring.Words{wire.Header(wire.WriteInEntry, flags, int(r.Total), r.RemoteToken), r.RemoteAddress}
	wire.PutPayload(&entry, 2, payload)
	if r.HasImmediate {
		wire.PutImmediate(&entry, r.Immediate)
	}
	ep.pushEntry(r, &entry, r.HasImmediate)
	c.record.Peer.Wake()
	return executed
}
