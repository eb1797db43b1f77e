package endpoint

import (
	"encoding/binary"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// number returns the 8 bytes at an offset of a region.
func (s *side) number(region, off int) uint64 {
	s.t.Helper()
	return binary.NativeEndian.Uint64(s.must(order{Do: doPeek, Region: region, Off: off, Len: 8}).Data)
}

// atomicRegion adds a region of side s whose numbers peers may change, and returns its number.
func (p *pair) atomicRegion(s *side, private bool) (region int, far nd.WindowDescriptor) {
	s.t.Helper()
	r := s.must(order{Do: doRegion, Len: 4096, Private: private, Rights: nd.AllowRemoteAtomic | nd.AllowRemoteRead})
	s.must(order{Do: doFillByte, Region: r.N, Len: 4096})
	return r.N, r.Far
}

// An atomic takes its entry by value, so a literal allocates nothing, although the post is a call of an interface.
func TestAtomicAllocatesNothing(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		p := newPair(t, setup{Executors: [2]Executor{executor, executor}})
		_, far := p.atomicRegion(p.b, false)
		ep, q, mr := p.a.endpointAt(0), p.a.queues[initiatorQueue], p.a.regionAt(0).mr
		results := make([]nd.Result, 1)
		allocs := testing.AllocsPerRun(200, func() {
			p.a.good(ep.FetchAndAdd(1, nd.SGE{Buffer: mr.Bytes()[:8], Token: mr.LocalToken()}, far.Address, far.Token, 1, 0))
			for q.Poll(results) == 0 {
				p.b.queues[receiveQueue].Poll(nil) // which executes it
			}
		})
		if allocs != 0 {
			t.Errorf("executor %v: %v allocations", executor, allocs)
		}
	}
}

// No more atomics are sent than there are places for their results, whatever the read limit is.
func TestAtomicsInFlight(t *testing.T) {
	const count = 12
	p := newPair(t, setup{Executors: [2]Executor{Target, Target}})
	_, far := p.atomicRegion(p.b, false)
	near, peer := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)
	peer.mu.Lock() // nothing is executed
	for i := range uint64(count) {
		p.a.must(order{Do: doFetchAndAdd, Context: i, Parts: mine(8*int(i), 8), Far: far, Operand: 1})
	}
	near.mu.Lock()
	sent := near.conn.out.Published()
	near.mu.Unlock()
	if sent != wire.Results {
		t.Errorf("%d atomics are sent, want %d", sent, wire.Results)
	}
	peer.mu.Unlock()
	for i := range uint64(count) {
		p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd, i, 8))
		if got := p.a.number(0, 8*int(i)); got != i {
			t.Errorf("addition %d returns %d", i, got)
		}
	}
}

// If memory is not aligned where its owner has it, atomics are refused.
func TestUnalignedAtomics(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		region, _ := p.atomicRegion(p.b, p.Private[1])
		w := p.b.must(order{Do: doWindow}).N
		far := p.b.must(order{Do: doBind, Window: w, Region: region, Off: 4, Len: 64, Flags: nd.AllowAtomic}).Far
		p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
		p.a.refuse(nd.InvalidParameter, order{Do: doSwap, Parts: mine(0, 8), Far: far})
		p.a.must(order{Do: doSwap, Parts: mine(0, 8), Far: at(far, 4), Operand: 5})
		p.a.expect(initiatorQueue, success(nd.RequestSwap, 0, 8))
		if got := p.b.number(region, 8); got != 5 {
			t.Errorf("the number is %d, want 5", got)
		}
	})
}

// The old value is in memory before a fenced request runs, before the region is invalidated, and when the connection ends.
func TestOldValueArrivesFirst(t *testing.T) {
	t.Parallel()
	const count = 300
	onEvery(t, setup{Executors: [2]Executor{Target, Target}}, func(t *testing.T, p *pair) {
		_, far := p.atomicRegion(p.b, p.Private[1])
		for i := range uint64(count) {
			p.b.must(order{Do: doReceive, Context: i, Parts: mine(1024, 8)})
			p.a.must(order{Do: doFetchAndAdd, Parts: mine(0, 8), Far: far, Operand: 1})
			p.a.must(order{Do: doSend, Parts: mine(0, 8), Flags: nd.ReadFence})
			p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd, 0, 8), success(nd.RequestSend, 0, 8))
			p.b.expect(receiveQueue, success(nd.RequestReceive, i, 8))
			if got := p.b.number(0, 1024); got != i {
				t.Fatalf("message %d brings %d", i, got)
			}
		}
		p.a.must(order{Do: doFetchAndAdd, Context: 1, Parts: mine(0, 8), Far: far, Operand: 1})
		p.a.must(order{Do: doFetchAndAdd, Context: 2, Parts: mine(8, 8), Far: at(far, 4096)}) // refused
		p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd, 1, 8), failure(nd.RequestFetchAndAdd, 2, nd.AccessViolation))
		if got := p.a.number(0, 0); got != count {
			t.Errorf("before the end, the number was %d, want %d", got, count)
		}
	})
}

// While the peer executes atomics, the old values that are taken are those of the oldest: they make room for later atomics.
func TestOldValuesAreTakenInOrder(t *testing.T) {
	t.Parallel()
	p := newPair(t, setup{Executors: [2]Executor{Target, Target}})
	_, far := p.atomicRegion(p.b, false)
	near, peer := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)
	for range 1000 {
		peer.mu.Lock() // nothing is executed
		for i := range uint64(wire.Results) {
			p.a.must(order{Do: doFetchAndAdd, Context: i, Parts: mine(8*int(i), 8), Far: far, Operand: 1})
		}
		near.mu.Lock() // nothing else takes them
		peer.mu.Unlock()
		taken, inOrder := 0, true
		proctest.Eventually(t, "all old values", func() bool {
			near.takeResults()
			taken = 0
			for i := near.sq.completed; i != near.req.next; i++ {
				finished := near.requestAt(i).State == mode.Finished
				inOrder = inOrder && (!finished || taken == int(i-near.sq.completed))
				if finished {
					taken++
				}
			}
			return taken == wire.Results || !inOrder
		})
		near.mu.Unlock()
		if !inOrder {
			t.Fatalf("%d old values are taken, but not those of the oldest atomics", taken)
		}
		for i := range uint64(wire.Results) {
			p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd, i, 8))
		}
	}
}

// An atomic that the peer has executed succeeds with its old value, although this side notices it only after the end.
func TestOldValueAfterTheEnd(t *testing.T) {
	p := newPair(t, setup{Executors: [2]Executor{Target, Target}})
	region, far := p.atomicRegion(p.b, false)
	near, peer := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)
	p.a.fill(0, 0, 8, 1)
	peer.mu.Lock() // nothing is executed
	p.a.must(order{Do: doSwap, Context: 1, Parts: mine(0, 8), Far: far, Operand: 7})
	p.a.must(order{Do: doSwap, Context: 2, Parts: mine(8, 8), Far: at(far, 4096)}) // refused
	near.mu.Lock()                                                                 // nothing is noticed
	peer.mu.Unlock()
	proctest.Eventually(t, "the end of the connection", func() bool { return near.conn.state() == cm.ConnAborted })
	near.mu.Unlock()
	p.a.expect(initiatorQueue, success(nd.RequestSwap, 1, 8), failure(nd.RequestSwap, 2, nd.AccessViolation))
	if old, now := p.a.number(0, 0), p.b.number(region, 0); old != 0 || now != 7 {
		t.Errorf("the old value is %d, want 0, and the new one %d, want 7", old, now)
	}
}
