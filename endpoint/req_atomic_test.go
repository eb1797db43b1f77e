package endpoint

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

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

func TestAtomics(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		for i, way := range [][2]*side{{p.a, p.b}, {p.b, p.a}} {
			from, to := way[0], way[1]
			region, far := p.atomicRegion(to, p.Private[1-i])
			run := func(o order, kind nd.RequestType, old, now uint64) {
				t.Helper()
				o.Context, o.Parts, o.Far = 5, mine(16, 8), at(far, 64)
				from.must(o)
				from.expect(initiatorQueue, success(kind, 5, 8))
				if got := from.number(0, 16); got != old {
					t.Errorf("%s returns %d, want %d", o.Do, got, old)
				}
				if got := to.number(region, 64); got != now {
					t.Errorf("after %s the number is %d, want %d", o.Do, got, now)
				}
			}
			run(order{Do: doFetchAndAdd, Operand: 7}, nd.RequestFetchAndAdd, 0, 7)
			run(order{Do: doFetchAndAdd, Operand: ^uint64(0)}, nd.RequestFetchAndAdd, 7, 6)
			run(order{Do: doCompareAndSwap, Operand: 5, Swap: 9}, nd.RequestCompareAndSwap, 6, 6)
			run(order{Do: doCompareAndSwap, Operand: 6, Swap: 1 << 63}, nd.RequestCompareAndSwap, 6, 1<<63)
			run(order{Do: doSwap, Operand: 3}, nd.RequestSwap, 1<<63, 3)
			run(order{Do: doFetchAndAdd, Operand: 1, Flags: nd.ReadFence}, nd.RequestFetchAndAdd, 3, 4)
			if to.number(region, 56) != 0 || to.number(region, 72) != 0 {
				t.Error("a neighbour of the number has changed")
			}
			// More than there are results, and among other requests.
			for n := range uint64(40) {
				from.must(order{Do: doFetchAndAdd, Context: n, Parts: mine(8*int(n), 8), Far: far, Operand: 1})
				if n%8 == 3 {
					from.must(order{Do: doRead, Context: 100 + n, Parts: mine(1024+8*int(n), 8), Far: far, Flags: nd.ReadFence})
				}
			}
			for n := range uint64(40) {
				from.expect(initiatorQueue, success(nd.RequestFetchAndAdd, n, 8))
				if n%8 == 3 {
					from.expect(initiatorQueue, success(nd.RequestRead, 100+n, 8))
				}
			}
			for n := range 40 {
				if got := from.number(0, 8*n); got != uint64(n) {
					t.Errorf("addition %d returns %d", n, got)
				}
				if n%8 == 3 && from.number(0, 1024+8*n) != uint64(n)+1 {
					t.Errorf("a Read behind addition %d returns %d", n, from.number(0, 1024+8*n))
				}
			}
		}
	})
}

// Atomics through a window need its right, and end with it.
func TestAtomicsNeedRight(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(p *pair, region int, far nd.WindowDescriptor) order
	}{
		{"region without the right", func(p *pair, _ int, _ nd.WindowDescriptor) order { return order{Far: p.b.memory} }},
		{"past the region", func(_ *pair, _ int, far nd.WindowDescriptor) order { return order{Far: at(far, 4096)} }},
		{"no token", func(*pair, int, nd.WindowDescriptor) order { return order{} }},
		{"window without the right", func(p *pair, region int, _ nd.WindowDescriptor) order {
			w := p.b.must(order{Do: doWindow}).N
			far := p.b.must(order{Do: doBind, Window: w, Region: region, Len: 64, Flags: nd.AllowRead | nd.AllowWrite}).Far
			p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
			return order{Far: far}
		}},
		{"invalidated window", func(p *pair, region int, _ nd.WindowDescriptor) order {
			w := p.b.must(order{Do: doWindow}).N
			far := p.b.must(order{Do: doBind, Window: w, Region: region, Len: 64, Flags: nd.AllowAtomic}).Far
			p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
			p.a.must(order{Do: doFetchAndAdd, Parts: mine(0, 8), Far: far, Operand: 2})
			p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd, 0, 8))
			p.b.must(order{Do: doInvalidate, Window: w})
			p.b.expect(initiatorQueue, success(nd.RequestInvalidate, 0, 0))
			return order{Far: far}
		}},
		{"local token of another region", func(p *pair, _ int, far nd.WindowDescriptor) order {
			return order{Far: far, Parts: []part{{Len: 8, Token: 12345}}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEvery(t, setup{}, func(t *testing.T, p *pair) {
				region, far := p.atomicRegion(p.b, p.Private[1])
				o := tc.do(p, region, far)
				before := p.b.number(region, 0)
				o.Do, o.Context, o.Operand = doFetchAndAdd, 4, 1
				if o.Parts == nil {
					o.Parts = mine(0, 8)
				}
				p.a.must(o)
				p.a.expect(initiatorQueue, failure(nd.RequestFetchAndAdd, 4, nd.AccessViolation))
				if now := p.b.number(region, 0); now != before {
					t.Errorf("the number has changed from %d to %d", before, now)
				}
			})
		})
	}
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

func TestAtomicArguments(t *testing.T) {
	p := newPair(t, setup{})
	_, far := p.atomicRegion(p.b, false)
	for _, do := range []verb{doFetchAndAdd, doCompareAndSwap, doSwap} {
		p.a.refuse(nd.InvalidParameter, order{Do: do, Parts: mine(0, 8), Far: at(far, 4)})
		p.a.refuse(nd.InvalidParameter, order{Do: do, Parts: mine(0, 8), Far: far, Flags: nd.Inline})
		p.a.refuse(nd.InvalidBufferSize, order{Do: do, Parts: mine(0, 4), Far: far})
		p.a.refuse(nd.InvalidBufferSize, order{Do: do, Parts: mine(0, 0), Far: far})
	}
	p.a.must(order{Do: doSwap, Parts: mine(0, 8), Far: far, Flags: nd.SilentSuccess})
	p.a.must(order{Do: doFetchAndAdd, Context: 1, Parts: mine(0, 8), Far: far})
	p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd, 1, 8))
}

// Atomics count as Reads: without any, the limit of the connection forbids them.
func TestAtomicsNeedReadLimit(t *testing.T) {
	onEvery(t, setup{ReadLimit: -1}, func(t *testing.T, p *pair) {
		_, far := p.atomicRegion(p.b, p.Private[1])
		p.a.must(order{Do: doSwap, Context: 1, Parts: mine(0, 8), Far: far})
		p.a.expect(initiatorQueue, failure(nd.RequestSwap, 1, nd.InvalidDeviceRequest))
	})
}

// Atomics are atomic among each other, in both directions and by both executors, and with the instructions of the owner.
func TestAtomicsAreAtomic(t *testing.T) {
	const rounds = 20000
	for _, executors := range [][2]Executor{{Auto, Auto}, {Target, Target}, {Auto, Target}} {
		p := newPair(t, setup{Executors: executors, Both: sideOptions{OneQueue: true}})
		_, far := p.atomicRegion(p.b, false)
		words, err := nd.View[uint64](p.b.regionAt(1).mr.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range rounds {
				atomic.AddUint64(&words[0], 1)
			}
		})
		other := newSide(t, p.arena, "another", sideOptions{OneQueue: true, Options: Options{Executor: executors[0]}}, false)
		p.b.must(order{Do: doEndpoint})
		p.b.connectTo(1, other, 0, other.listen(0), 0)
		for _, s := range []*side{p.a, other} {
			all.Go(func() {
				result := make([]nd.Result, 1)
				old := nd.SGE{Buffer: s.regionAt(0).cut(0, 8), Token: s.regionAt(0).mr.LocalToken()}
				for range rounds {
					if err := s.endpointAt(0).FetchAndAdd(0, old, far.Address, far.Token, 1, 0); err != nil {
						t.Error(err)
						return
					}
					if _, err := s.queues[0].Wait(s.ctx, result); err != nil || result[0].Status != nd.Success {
						t.Errorf("%v, %v: %v", result[0], err, s.endpointAt(0).Err())
						return
					}
				}
			})
		}
		all.Wait()
		if got := atomic.LoadUint64(&words[0]); got != 3*rounds {
			t.Errorf("executors %v: the sum is %d, want %d", executors, got, 3*rounds)
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
	proctest.Eventually(t, "the end of the connection", func() bool { return near.conn.state() == connAborted })
	near.mu.Unlock()
	p.a.expect(initiatorQueue, success(nd.RequestSwap, 1, 8), failure(nd.RequestSwap, 2, nd.AccessViolation))
	if old, now := p.a.number(0, 0), p.b.number(region, 0); old != 0 || now != 7 {
		t.Errorf("the old value is %d, want 0, and the new one %d, want 7", old, now)
	}
}
