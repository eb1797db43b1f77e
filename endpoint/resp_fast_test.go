package endpoint

import (
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestWriteDoesNotOvertakeInlineSends posts other requests between the inline Send and the Write.
func TestWriteDoesNotOvertakeInlineSends(t *testing.T) {
	p := newPair(t, setup{})
	for _, side := range []*side{p.a, p.b} {
		side.provider.engine.stop() // only this test polls
	}
	x, y := p.a, p.b
	ep, m := x.endpointAt(0).(*queuePair), x.regionAt(0)
	part := func(n int) nd.SGL { return nd.One(nd.SGE{Buffer: m.cut(0, n), Token: m.mr.LocalToken()}) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		must(y.endpointAt(0).Receive(1, nd.One(nd.SGE{Buffer: y.regionAt(0).cut(0, 4096), Token: y.regionAt(0).mr.LocalToken()})))
	}
	must(ep.Send(1, part(8), 0))
	if !ep.conn.copyWouldOvertake() {
		t.Error("a small message is in its slot, and nothing is pending")
	}
	must(ep.Send(2, part(1000), 0)) // placed in the receive
	if !ep.conn.copyWouldOvertake() {
		t.Error("a large message follows, and no entry is pending")
	}
	var results [4]nd.Result
	for n := 0; n < 2; n += y.queues[receiveQueue].Poll(results[:]) {
	}
	if ep.conn.copyWouldOvertake() {
		t.Error("everything has arrived, and something is pending")
	}
}

// TestPollAfterEmptyPollReturnsOneMessage checks that a poll returns at most one message if the previous poll was empty, and otherwise all
// that have arrived.
func TestPollAfterEmptyPollReturnsOneMessage(t *testing.T) {
	p := newPair(t, setup{})
	for _, side := range []*side{p.a, p.b} {
		side.provider.engine.stop()
	}
	x, y := p.a, p.b
	m := x.regionAt(0)
	var results [16]nd.Result
	poll := func(want int) {
		t.Helper()
		if n := y.queues[receiveQueue].Poll(results[:]); n != want {
			t.Errorf("%d results, want %d", n, want)
		}
	}
	for range 3 {
		for range 5 {
			if err := y.endpointAt(0).Receive(1, nd.One(nd.SGE{Buffer: y.regionAt(0).cut(0, 64), Token: y.regionAt(0).mr.LocalToken()})); err != nil {
				t.Fatal(err)
			}
		}
		poll(0)
		for range 5 {
			if err := x.endpointAt(0).Send(1, nd.One(nd.SGE{Buffer: m.cut(0, 8), Token: m.mr.LocalToken()}), 0); err != nil {
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

// The rest of a budget does not divide a small Write: a program may read it as one word.
func TestSmallWriteIsStoredAtOnce(t *testing.T) {
	p := newPair(t, setup{Executors: [2]Executor{Target, Target}})
	ep := any(p.b.endpointAt(0)).(*queuePair)
	ep.stateWord.Or(slowBit) // the fast path has no budget
	for _, side := range []*side{p.a, p.b} {
		side.provider.engine.stop() // only this test drives the endpoints
	}
	from, to := p.a.regionAt(0), p.b.regionAt(0).cut(0, 8)
	source := nd.One(nd.SGE{Buffer: from.cut(0, 8), Token: from.mr.LocalToken()})
	copy(from.cut(0, 8), "at once!")
	copy(to, "nothing.")
	if err := p.a.endpointAt(0).Write(1, source, p.b.memory.Address, p.b.memory.Token, 0); err != nil {
		t.Fatal(err)
	}
	budget := uint64(4)
	ep.mu.Lock()
	ep.serveRing(&budget)
	ep.mu.Unlock()
	if string(to) != "at once!" {
		t.Errorf("after a turn with a budget of 4 bytes the memory is %q", to)
	}
}
