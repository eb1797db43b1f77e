package endpoint

import (
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Choices of FuzzRingEntry, one bit each. The upper byte says which token the
// attacker claims to be using meanwhile.
const (
	oneByOne   = iota // serve each message before the next is published
	targeting         // the victim's requests travel
	lateToPost        // the Receives come after the messages
	swapping          // a message that is being served is replaced by the next
	busyVictim        // the victim has requests of its own
	overrunning
	hangingUp // the victim disconnects at the end
	leaving   // the attacker does so before, or both
)

// maxMessages bounds the work of one input.
const maxMessages = 24

func slotsOf(slots ...ring.Words) (b []byte) {
	for _, s := range slots {
		b = append(b, bytesOf(s[:]...)...)
	}
	return b
}

// FuzzRingEntry publishes arbitrary slots in the ring of a connected peer.
func FuzzRingEntry(f *testing.F) { fuzzMessages(f, false) }

// FuzzSharedReceiveEntry does the same where a shared receive queue provides the receives. A correct peer sends only entries
// with FlagAckRequest there.
func FuzzSharedReceiveEntry(f *testing.F) { fuzzMessages(f, true) }

func fuzzMessages(f *testing.F, shared bool) {
	r := newFuzzPair(f)
	awaited := uint8(0)
	if shared {
		awaited = wire.FlagAckRequest
	}
	whole := wire.FlagFirst | wire.FlagLast | awaited
	v, l := theVictim, theAttacker
	from := func(area, rng int, n uint32) wire.SGE {
		return wire.SGE{Address: address(l, area, rng, 0), Length: n, Token: localOf(l, area, rng)}
	}
	inline := func(flags uint8, n int, token nd.Token) ring.Words {
		return ring.Words{wire.Header(wire.SendInEntry, flags, n, token), 1, 2, 3, 4, 5, 6}
	}
	put := func(n int, token nd.Token, at uint64) ring.Words {
		return ring.Words{wire.Header(wire.WriteInEntry, whole|wire.FlagAckRequest, n, token), at, 7, 8, 9}
	}
	send := func(flags uint8, e wire.SGE, total uint64, token nd.Token) ring.Words {
		return wire.Fragment(wire.SendFragment, flags, token, e, 0, total)
	}
	move := func(k wire.Kind, e wire.SGE, token nd.Token, at uint64) ring.Words {
		return wire.Fragment(k, whole|wire.FlagAckRequest, token, e, at, uint64(e.Length))
	}
	one := func(n int) uint16 { return 1 << n }

	f.Add([]byte{}, []byte{}, uint16(0))
	f.Add([]byte{0, 1, 2}, slotsOf(inline(whole, 48, 0), inline(whole, 48, 0), inline(whole, 48, 0)), one(busyVictim))
	f.Add([]byte{3}, slotsOf(inline(whole|wire.FlagAckRequest, 48, 0)), uint16(0))
	f.Add([]byte{4}, slotsOf(inline(whole|wire.FlagAckRequest, 0, 0)), uint16(0))
	f.Add([]byte{}, slotsOf(inline(whole, 8, 0)), one(lateToPost))
	f.Add([]byte{5}, slotsOf(inline(whole, 8, 0)), uint16(0))
	f.Add([]byte{8, 9}, slotsOf(inline(whole, 0, 0), inline(whole, 48, 0)), one(hangingUp))
	f.Add([]byte{0, 0}, slotsOf(inline(whole|wire.FlagInvalidate|wire.FlagAckRequest, 8, windowToken(v, 0)), inline(whole|wire.FlagInvalidate|wire.FlagAckRequest, 8, windowToken(v, 0))), uint16(0))
	f.Add([]byte{0}, slotsOf(inline(whole|wire.FlagInvalidate|wire.FlagAckRequest, 8, windowToken(v, 3))), uint16(0))
	f.Add([]byte{4, 3}, slotsOf(inline(whole|wire.FlagInvalidate, 0, windowToken(v, 2)), inline(whole, 48, 0), inline(whole, 48, 0)), one(swapping)|uint16(windowToken(v, 2))<<8)
	f.Add([]byte{0, 6}, slotsOf(inline(0, 1, 0), ring.Words{wire.Header(wire.SendPlaced, whole, 0, 0), 1000}, ring.Words{wire.Header(wire.SendFailed, whole, 0, 0), 5}), uint16(0))
	f.Add([]byte{0}, slotsOf(ring.Words{wire.Header(wire.SendPlaced, whole, 3, 0)}), uint16(0))
	f.Add([]byte{0}, slotsOf(ring.Words{wire.Header(wire.SendPlaced, whole, 0, 0), 65}), uint16(0))
	f.Add([]byte{0}, slotsOf(ring.Words{wire.Header(wire.SendFailed, whole, 0, 0), uint64(nd.BufferOverflow)}), one(leaving))
	f.Add([]byte{6, 7}, slotsOf(send(whole, from(inArena, vast, vastSize), vastSize, 0), send(whole, from(inArena, vast, vastSize), vastSize, 0)), one(swapping))
	f.Add([]byte{1}, slotsOf(send(wire.FlagFirst|awaited, from(inArena, small, 60), 100, 0), send(wire.FlagLast|awaited, from(inArena, small, 40), 100, 0)), one(oneByOne))
	f.Add([]byte{1}, slotsOf(send(wire.FlagFirst|awaited, from(inArena, small, 60), 100, 0), send(wire.FlagLast|awaited, from(inArena, small, 41), 100, 0)), one(oneByOne))
	f.Add([]byte{1}, slotsOf(send(0, from(private, small, 60), 100, 0)), uint16(0))
	// Another message takes the receive of an unfinished one; then that one ends in a smaller receive.
	f.Add([]byte{0, 3}, slotsOf(send(wire.FlagFirst|awaited, from(inArena, small, 60), 60, 0), ring.Words{wire.PlainSend(8), 1}, send(wire.FlagLast|awaited, from(inArena, small, 0), 60, 0)), uint16(0))
	f.Add([]byte{0, 3}, slotsOf(send(wire.FlagFirst|awaited, from(inArena, small, 60), 60, 0), inline(whole|wire.FlagAckRequest, 8, 0), send(wire.FlagLast|awaited, from(inArena, small, 0), 60, 0)), uint16(0))
	f.Add([]byte{1}, slotsOf(send(whole|wire.FlagInvalidate, from(inArena, small, 60), 60, windowToken(v, 4))), uint16(0))
	f.Add([]byte{1}, slotsOf(send(wire.FlagFirst|awaited, from(inArena, small, 0), 1<<40, 0)), one(busyVictim)|one(targeting))
	f.Add([]byte{}, slotsOf(put(40, remote(v, inArena, small), address(v, inArena, small, 0)), put(8, windowToken(v, 2), address(v, inArena, windowy, 320))), one(busyVictim)|one(leaving))
	f.Add([]byte{}, slotsOf(put(40, remote(v, inArena, small), address(v, inArena, small, rangeSize-39))), one(hangingUp))
	f.Add([]byte{}, slotsOf(put(8, windowToken(v, 1), address(v, inArena, windowy, 160))), uint16(0))
	f.Add([]byte{}, slotsOf(put(8, windowToken(v, 3), address(v, inArena, windowy, 448))), uint16(0))
	f.Add([]byte{}, slotsOf(put(8, localOf(v, private, local), address(v, private, local, 0))), uint16(0))
	f.Add([]byte{}, slotsOf(put(41, remote(v, private, small), address(v, private, small, 0))), uint16(0))
	f.Add([]byte{}, slotsOf(put(8, remote(v, private, foreign), address(v, private, foreign, 0))), uint16(0))
	f.Add([]byte{}, slotsOf(move(wire.WriteFragment, from(inArena, vast, vastSize), remote(v, private, vast), address(v, private, vast, 0))), uint16(0))
	f.Add([]byte{}, slotsOf(move(wire.WriteFragment, from(inArena, vast, vastSize), remote(v, private, vast), address(v, private, vast, 1))), one(oneByOne))
	f.Add([]byte{}, slotsOf(move(wire.ReadFragment, from(inArena, vast, vastSize), remote(v, private, vast), address(v, private, vast, 0)), move(wire.WriteFragment, from(inArena, vast, 5), remote(v, private, small), address(v, private, small, 0))), one(swapping))
	f.Add([]byte{}, slotsOf(move(wire.ReadFragment, from(inArena, small, 100), remote(v, private, forPeers), address(v, private, forPeers, 0)), move(wire.ReadFragment, from(inArena, forPeers, 100), remote(v, private, forPeers), address(v, private, forPeers, 0))), uint16(0))
	f.Add([]byte{}, slotsOf(move(wire.ReadFragment, from(inArena, small, ^uint32(0)), remote(v, inArena, forPeers), ^uint64(0))), uint16(0))
	f.Add([]byte{}, slotsOf(move(wire.WriteFragment, wire.SGE{Address: address(v, inArena, local, 0), Length: 64, Token: localOf(v, inArena, local)}, remote(v, inArena, small), address(v, inArena, small, 0))), uint16(0))
	f.Add([]byte{5}, slotsOf(move(wire.ReadFragment, from(inArena, vast, quantum), remote(v, private, vast), address(v, private, vast, 0)), inline(whole, 8, 0)), one(hangingUp))
	hashed := whole | wire.FlagAckRequest | wire.FlagHashed
	f.Add([]byte{0, 1}, slotsOf(inline(hashed, 40, 0), inline(hashed, 41, 0)), uint16(0))
	f.Add([]byte{}, slotsOf(ring.Words{wire.Header(wire.WriteInEntry, hashed, 32, remote(v, inArena, small)), address(v, inArena, small, 0), 1, 2, 3, 4, 5}), uint16(0))
	numbered := whole | wire.FlagImmediate
	f.Add([]byte{0, 1}, slotsOf(inline(numbered, 40, 7), send(numbered, from(inArena, small, 60), 60, 8)), one(lateToPost))
	f.Add([]byte{0, 1, 2}, slotsOf(
		ring.Words{wire.Header(wire.WriteInEntry, numbered, 8, remote(v, inArena, small)), address(v, inArena, small, 0), 1, 2, 3, 4, 9},
		ring.Words{wire.Header(wire.WritePlaced, numbered, 0, 9), ^uint64(0)},
		wire.Fragment(wire.WriteFragment, numbered, remote(v, private, forPeers), from(inArena, small, 60), address(v, private, forPeers, 0), 60)), uint16(0))
	change := func(token nd.Token, at uint64, op wire.Operation, index uint64) ring.Words {
		return ring.Words{wire.Header(wire.Atomic, wire.FlagFirst|wire.FlagLast|wire.FlagAckRequest, 0, token), at, 1, 2, uint64(op), index}
	}
	f.Add([]byte{}, slotsOf(
		change(remote(v, inArena, forPeers), address(v, inArena, forPeers, 0), wire.FetchAndAdd, 0),
		change(remote(v, private, forPeers), address(v, private, forPeers, 4), wire.Swap, 1)), one(busyVictim))
	f.Add([]byte{}, slotsOf(change(remote(v, inArena, small), address(v, inArena, small, 0), wire.CompareAndSwap, wire.Results)), uint16(0))
	for _, k := range []wire.Kind{wire.SendFragment, wire.WriteFragment, wire.ReadFragment} {
		e := wire.Fragment(k, hashed, remote(v, inArena, small), from(inArena, small, 60), address(v, inArena, small, 0), 60)
		e[wire.HashWord] = 99 // no index, and no hash of anything
		f.Add([]byte{1}, slotsOf(e), one(busyVictim))
	}
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, slotsOf(ring.Words{}, ring.Words{8}, ring.Words{^uint64(0)}), one(overrunning))

	f.Fuzz(func(t *testing.T, receives, slots []byte, choices uint16) {
		defer r.begin(t)()
		if shared {
			r.victim.share(t)
		}
		r.connect(t, len(slots)%2 == 0)
		v, l := r.victim, r.attacker
		if bit(choices, targeting) {
			v.provider.options.Executor = Target
		}
		l.ep.localQP.Hazard.Store(uint64(r.token(nd.Token(choices >> 8))))
		if !bit(choices, lateToPost) {
			v.receiveAll(receives)
		}
		if bit(choices, busyVictim) {
			r.busy()
		}
		var swap func()
		list := cutSlots(slots)
		next := func() (s ring.Words) {
			s, list = r.slot(list[0]), list[1:]
			return s
		}
		if bit(choices, swapping) {
			swap = func() {
				if len(list) > 0 && v.ep.state() == cm.QPConnected && (v.ep.resp.fragmentCopied != 0 || v.ep.resp.invalidating != nil) {
					s := next()
					r.write(v.ep.conn.in.Consumed(), &s)
				}
			}
		}
		if bit(choices, leaving) {
			l.ep.conn.record.Shared.Disconnected[l.ep.conn.record.Side].Store(1)
		}
		for len(list) > 0 {
			if bit(choices, oneByOne) || bit(choices, swapping) || !r.room() {
				r.rest(t, bit(choices, busyVictim), swap)
			}
			if !r.room() && !bit(choices, overrunning) || len(list) == 0 {
				break
			}
			s := next()
			r.write(r.published, &s)
			r.published++
		}
		if bit(choices, lateToPost) {
			v.receiveAll(receives)
		}
		if !bit(choices, hangingUp) || bit(choices, oneByOne) {
			r.rest(t, false, swap)
		}
		l.ep.localQP.Hazard.Store(0)
		if bit(choices, hangingUp) {
			v.ep.beginDisconnect()
			if v.ep.state() == cm.QPDisconnecting && v.ep.conn.detached {
				t.Fatal("a connection that has failed is being closed in good order")
			}
			r.rest(t, bit(choices, leaving), nil)
		}
		if v.ep.state() != cm.QPDisconnecting {
			r.alive(t)
		}
		r.part(t)
	})
}

// cutSlots cuts a part of an input into slots.
func cutSlots(b []byte) (list [][]byte) {
	const size = 8 * len(ring.Words{})
	for len(b) > 0 && len(list) < maxMessages {
		n := min(size, len(b))
		list, b = append(list, b[:n]), b[n:]
	}
	return list
}

func (a *fuzzSide) receiveAll(kinds []byte) {
	for _, k := range kinds[:min(len(kinds), 8)] {
		a.receive(k)
	}
}

// busy gives the victim some requests of each kind.
func (r *fuzzPair) busy() {
	v, l := r.victim, r.attacker
	l.receive(6)
	l.receive(2)
	l.receive(0)
	far := l.areas[inArena]
	at, token := shm.AddressOf(far.of(vast)), far.remote[vast]
	v.posted(0, v.ep.Send(v.context(), nd.One(v.sge(private, forPeers, 0, 20)), 0))
	v.posted(0, v.ep.Write(v.context(), nd.One(v.sge(inArena, forPeers, 0, 30)), at, token, nd.SilentSuccess))
	v.ledger.requests[len(v.ledger.requests)-1] = nd.SilentSuccess
	v.posted(0, v.ep.Read(v.context(), nd.List(v.sge(inArena, small, 0, 300), v.sge(inArena, vast, 0, vastSize)), at, token, 0))
	v.posted(0, v.ep.Send(v.context(), nd.One(v.sge(inArena, forPeers, 0, 100)), 0))
	v.posted(0, v.ep.Write(v.context(), nd.One(v.sge(inArena, vast, 0, vastSize)), at, token, 0))
	v.posted(0, v.ep.Send(v.context(), nd.One(v.sge(inArena, forPeers, 0, 60)), 0))
}
