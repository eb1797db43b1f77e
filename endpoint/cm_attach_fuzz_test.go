package endpoint

import (
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// FuzzQueuePairState attaches to queue-pair state whose owner writes false offsets and sizes. The memory
// of the false owner to which they may point has content.
func FuzzQueuePairState(f *testing.F) {
	r := newFuzzPair(f)
	const (
		entries  = wire.SharedQPSize // offset of the ring
		slots    = 16
		receives = wire.SharedQPSize + slots*ring.SlotSize
		count    = 8
		stride   = 128
	)
	inContent := landmark(attackersMemory, margin)
	slot := func(seq uint64, s ring.Words) []byte { return append(bytesOf(seq), slotsOf(s)...) }
	for _, victimConnects := range []bool{false, true} {
		f.Add(landmark(attackersQP, entries), uint64(slots), landmark(attackersQP, receives), uint64(count), uint64(stride), uint64(1), uint64(3), []byte{}, victimConnects)
		f.Add(inContent, uint64(4), inContent, uint64(4), uint64(64), uint64(1), uint64(3), slot(1, ring.Words{wire.Header(wire.SendInEntry, wire.FlagFirst|wire.FlagLast, 40, 0)}), victimConnects)
		f.Add(inContent, uint64(1), inContent, uint64(1), uint64(64), ^uint64(0), uint64(1), append(slot(1, ring.Words{wire.Header(wire.SendPlaced, 0, 0, 0), 9}), bytesOf(100, 3)...), victimConnects)
	}
	for n := range uint64(4) {
		f.Add(landmark(attackersQP, entries), uint64(slots), uint64(0), uint64(0), uint64(0), n<<62, uint64(0), []byte{}, n%2 == 0)
	}
	good := []uint64{landmark(attackersQP, entries), slots, landmark(attackersQP, receives), count, stride}
	for i, forged := range [][]uint64{
		{0, ^uint64(0), 12, landmark(arenaEnd, 0), landmark(arenaEnd, -64), landmark(victimsQP, entries), landmark(victimsQP, 0), landmark(tables, 0), landmark(windowTable, 64), landmark(attackersQP, entries+8)},
		{0, 1, 2, 3, 1 << 20, 1 << 21, 1 << 58, 1 << 63, ^uint64(0)},
		{0, ^uint64(0), 12, landmark(arenaEnd, 0), landmark(arenaEnd, -1024), landmark(victimsQP, receives), landmark(victimsMemory, 0), landmark(heapStart, -8), landmark(attackersQP, 8)},
		{0, 1, 3, maxQueueDepth, 2 * maxQueueDepth, 1 << 60, ^uint64(0)},
		{0, 1, 8, 63, 64, 65, 4096, 4160, 1 << 60, ^uint64(0) - 63},
	} {
		for n, value := range forged {
			g := append([]uint64(nil), good...)
			g[i] = value
			f.Add(g[0], g[1], g[2], g[3], g[4], uint64(n), uint64(2), []byte{}, n%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, entries, slots, receives, count, stride, number, posted uint64, content []byte, victimConnects bool) {
		defer r.begin(t)()
		r.arrive(t)
		v, l := r.victim, r.attacker
		h := l.ep.localQP
		was := [...]uint64{h.Ring, h.RingSlots, h.Receives, h.ReceiveCount, h.ReceiveStride, h.Endpoint}
		forge := func() {
			h.Ring, h.RingSlots, h.Receives, h.ReceiveCount, h.ReceiveStride, h.Endpoint = r.mean(entries), slots, r.mean(receives), count, stride, number
			h.SharedReceive = number >> 62
			h.Posted.Store(posted)
			copy(l.areas[inArena].of(vast), content)
		}
		tell := func() { // so that the false owner's endpoint does not use the false values
			h.SharedReceive = 0
			h.Ring, h.RingSlots, h.Receives, h.ReceiveCount, h.ReceiveStride, h.Endpoint = was[0], was[1], was[2], was[3], was[4], was[5]
		}
		var err error
		if victimConnects {
			conn := v.dial(t, l)
			if err := l.accept(t); err != nil {
				t.Fatal(err)
			}
			forge()
			err = v.complete(conn)
			tell()
			l.established()
		} else {
			conn := l.dial(t, v)
			forge()
			err = v.accept(t)
			tell()
			if err == nil {
				if err := l.complete(conn); err != nil {
					t.Fatal(err)
				}
				v.established()
			} else {
				l.giveUp(conn)
			}
		}
		r.settle(t)
		if s := v.ep.state(); (err == nil) != (s == cm.QPConnected || s == cm.QPFailed && v.ep.conn.attached) {
			t.Fatalf("joining returned %v, and the endpoint is %v", err, s)
		}
		if err == nil {
			v.receive(6)
			v.receive(1)
			for i, n := range []uint64{300, 20, 0} {
				v.post(nd.RequestWrite, byte(i), n, l, 0)
				v.post(nd.RequestSend, byte(i), n, nil, 0)
				v.post(nd.RequestRead, byte(i), n, l, 0)
				r.rest(t, true, nil)
			}
		}
		r.part(t)
	})
}

// giveUp ends a Connect that was not accepted.
func (a *fuzzSide) giveUp(conn *connection) {
	a.connector.mu.Lock()
	defer a.connector.mu.Unlock()
	conn.record.Move(cm.Withdraws)
	a.connector.undoConnect(conn)
}
