package endpoint

import (
	"errors"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/shm"
)

func TestFalseRingIsRefused(t *testing.T) {
	p := newPair(t, setup{})
	ep := p.a.endpointAt(0).(*queuePair)
	at, slots := ep.conn.peerQP.Ring, ep.conn.peerQP.RingSlots
	size := testArena / uint64(ring.SlotSize)
	attach := func(at, slots uint64) error {
		c := &connection{provider: ep.provider, record: cm.Record{Peer: ep.conn.record.Peer}}
		return c.attachRing(ep, &wire.SharedQP{Ring: at, RingSlots: slots})
	}
	if err := attach(at, slots); err != nil {
		t.Errorf("%d slots at offset %#x: %v", slots, at, err)
	}
	for _, tc := range []struct {
		name      string
		at, slots uint64
	}{
		{"no slots", at, 0},
		{"not a power of two", at, slots - 1},
		{"size wraps to 0", at, 1 << 58},
		{"size wraps to one slot", at, 1<<58 + 1},
		{"all of the size", at, ^uint64(0)},
		{"more than the arena", at, 2 * size},
		{"more than the peer's memory", at, size / 4},
		{"ends behind the arena", testArena - ring.SlotSize, 2},
		{"begins at the end of the arena", testArena, 1},
		{"far away", 1 << 62, slots},
		{"end wraps to the start", ^uint64(0) - ring.SlotSize + 1, 2},
		{"not aligned to a word", at + 4, slots},
		{"not aligned to a line", at + 8, slots},
		{"memory of this member", uint64(ep.localQPOffset) + wire.SharedQPSize, slots},
		{"the arena's header", 0, 1},
	} {
		if err := attach(tc.at, tc.slots); !errors.Is(err, shm.ErrDamaged) {
			t.Errorf("%s: %d slots at offset %#x: %v, want %v", tc.name, tc.slots, tc.at, err, shm.ErrDamaged)
		}
	}
}
