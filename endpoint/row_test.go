package endpoint

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestNothingIsCountedForSmallMessages sets what a connection tells of its messages beside plain counts of them.
func TestNothingIsCountedForSmallMessages(t *testing.T) {
	p := newPair(t, setup{})
	owner := p.a.local.provider
	const slots = 64
	at, err := owner.member.Heap().Alloc(slots * 64)
	if err != nil {
		t.Fatal(err)
	}
	var head atomic.Uint64
	out, err := owner.arena.NewProducer(at, slots, &head)
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{out: *out}
	random := rand.New(rand.NewPCG(1, 2))
	var pushed, taken, unplaced uint64
	for step := range 100_000 {
		head.Store(min(head.Load()+random.Uint64N(3), pushed)) // what the peer has consumed
		switch random.IntN(6) {
		case 0, 1, 2: // a small Send of the fast path
			c.out.Publish()
			pushed++
			taken++
			unplaced = pushed
		case 3: // a message that has failed to be sent, and is tried again
			c.breakRow()
		case 4: // one that takes no receive, or is a later part of one that has
			c.breakRow()
			c.out.Publish()
			c.note()
			pushed++
		case 5: // one that takes a receive, its data in its slot or not
			c.breakRow()
			c.out.Publish()
			c.note()
			c.takeReceive()
			pushed++
			taken++
			if random.IntN(2) == 0 {
				c.unplaced, unplaced = pushed, pushed
			}
		}
		if c.taken() != taken || c.lastUnplaced() != unplaced {
			t.Fatalf("after step %d: %d receives taken, want %d; unplaced until %d, want %d", step, c.taken(), taken, c.lastUnplaced(), unplaced)
		}
		if got, want := c.pending(), unplaced > head.Load(); got != want {
			t.Fatalf("after step %d: pending %v, want %v", step, got, want)
		}
	}
}

// TestWriteWaitsForSmallMessages: a Write does not overtake a small message whose data lies in its slot, whatever else
// has gone between the two.
func TestWriteWaitsForSmallMessages(t *testing.T) {
	p := newPair(t, setup{})
	for _, side := range []*party{p.a, p.b} {
		side.local.provider.engine.stop() // nobody polls but us
	}
	x, y := p.a.local, p.b.local
	ep, m := x.endpoint(0).(*Endpoint), x.region(0)
	part := func(n int) []nd.SGE { return []nd.SGE{{Buffer: m.cut(0, n), Token: m.mr.LocalToken()}} }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		must(y.endpoint(0).Receive(1, []nd.SGE{{Buffer: y.region(0).cut(0, 4096), Token: y.region(0).mr.LocalToken()}}))
	}
	must(ep.Send(1, part(8), 0))
	if !ep.conn.pending() {
		t.Error("a small message is in its slot, and nothing is pending")
	}
	must(ep.Send(2, part(1000), 0)) // placed in the receive
	if !ep.conn.pending() {
		t.Error("a large message follows, and nothing is pending any more")
	}
	var results [4]nd.Result
	for n := 0; n < 2; n += y.queues[receiveQueue].Poll(results[:]) {
	}
	if ep.conn.pending() {
		t.Error("everything has arrived, and something is pending")
	}
}

// TestAnswersComeAlone: a poll takes one message if the poll before has found none, and else as many as there are.
func TestAnswersComeAlone(t *testing.T) {
	p := newPair(t, setup{})
	for _, side := range []*party{p.a, p.b} {
		side.local.provider.engine.stop()
	}
	x, y := p.a.local, p.b.local
	m := x.region(0)
	var results [16]nd.Result
	poll := func(want int) {
		t.Helper()
		if n := y.queues[receiveQueue].Poll(results[:]); n != want {
			t.Errorf("%d results, want %d", n, want)
		}
	}
	for range 3 {
		for range 5 {
			if err := y.endpoint(0).Receive(1, []nd.SGE{{Buffer: y.region(0).cut(0, 64), Token: y.region(0).mr.LocalToken()}}); err != nil {
				t.Fatal(err)
			}
		}
		poll(0)
		for range 5 {
			if err := x.endpoint(0).Send(1, []nd.SGE{{Buffer: m.cut(0, 8), Token: m.mr.LocalToken()}}, 0); err != nil {
				t.Fatal(err)
			}
		}
		poll(1)
		poll(4)
		poll(0)
		for n := 0; n < 5; n += x.queues[initiatorQueue].Poll(results[:]) {
		}
	}
}
