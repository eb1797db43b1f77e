package endpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// queue is the shared receive queue of side 0.
func (p *pair) queue() *sharedReceiveQueue { return p.a.shared.(*sharedReceiveQueue) }

// shared returns s with a shared receive queue of side 0, and a number of peers.
func shared(s setup, peers int) setup {
	s.Shared, s.Peers = new(nd.SharedReceiveQueueConfig), peers
	return s
}

// of makes the result of a receive one of side 0's endpoint i.
func of(i int, r nd.Result) nd.Result {
	r.EndpointContext = endpointContext(i)
	return r
}

// impatient is an option with which plain Sends fail soon; those to a shared receive queue wait
// without limit.
var impatient = sideOptions{Options: Options{ReceiveTimeout: time.Millisecond}}

// TestSharedReceive: each message takes the oldest receive, at any endpoint, and its result
// shows that endpoint.
func TestSharedReceive(t *testing.T) {
	t.Parallel()
	onEvery(t, shared(setup{Both: impatient}, 2), func(t *testing.T, p *pair) {
		for _, n := range []int{0, 1, 8, 47, 48, 49, 1000, 60_000} {
			for i := range uint64(4) {
				p.a.must(order{Do: doReceive, Context: i, Parts: mine(int(i)*60_000, n)})
			}
			for i := range uint64(4) {
				peer := p.peers[i%2]
				peer.fill(0, 0, n, i+7)
				peer.must(order{Do: doSend, Context: i, Parts: mine(0, n)})
				p.a.expect(receiveQueue, of(int(i%2), success(nd.RequestReceive, i, n)))
				peer.expect(initiatorQueue, success(nd.RequestSend, i, n))
				if p.a.sum(0, int(i)*60_000, n) != peer.sum(0, 0, n) {
					t.Errorf("%d bytes: the data differ", n)
				}
			}
		}
		// The other direction has no shared queue.
		for i, peer := range p.peers {
			peer.must(order{Do: doReceive, Context: 5, Parts: mine(0, 100)})
			p.a.must(order{Do: doSend, Endpoint: i, Context: 6, Parts: mine(0, 100)})
			peer.expect(receiveQueue, success(nd.RequestReceive, 5, 100))
			p.a.expect(initiatorQueue, of(i, success(nd.RequestSend, 6, 100)))
		}
	})
}

// TestSharedReceivePostedLate: a message waits for a receive without limit, and later requests
// wait with it.
func TestSharedReceivePostedLate(t *testing.T) {
	t.Parallel()
	onEvery(t, shared(setup{Both: impatient}, 1), func(t *testing.T, p *pair) {
		peer := p.b
		for i, n := range []int{0, 8, 48, 49, 1000, 200_000} {
			context := uint64(i)
			peer.fill(0, 0, n, context)
			p.a.fill(0, 0, n+16, context+100)
			before := p.a.sum(0, n, 16)
			peer.must(order{Do: doSend, Context: context, Parts: mine(0, n)})
			peer.must(order{Do: doWrite, Context: context, Parts: mine(n, 16), Far: at(p.a.memory, n)})
			peer.must(order{Do: doRead, Context: context, Parts: mine(250_000, 8), Far: p.a.memory})
			time.Sleep(5 * time.Millisecond) // five times the time-out of a plain Send
			peer.nothing(initiatorQueue)
			p.a.nothing(receiveQueue)
			if p.a.sum(0, n, 16) != before {
				t.Errorf("%d bytes: a Write has overtaken the message", n)
			}
			p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, n)})
			p.a.expect(receiveQueue, of(0, success(nd.RequestReceive, context, n)))
			peer.expect(initiatorQueue, success(nd.RequestSend, context, n), success(nd.RequestWrite, context, 16), success(nd.RequestRead, context, 8))
			if peer.sum(0, 0, n+16) != p.a.sum(0, 0, n+16) {
				t.Errorf("%d bytes: the data differ", n)
			}
		}
	})
}

// TestSharedReceiveLetsEngineSleep: the engine does not poll messages that wait for a
// receive, however many there are.
func TestSharedReceiveLetsEngineSleep(t *testing.T) {
	for name, n := range map[string]int{"one small": 1, "more than the ring takes": 300} {
		for _, private := range []bool{false, true} {
			for _, size := range []int{8, 200_000} {
				t.Run(fmt.Sprintf("%s/private=%v/%d bytes", name, private, size), func(t *testing.T) {
					s := setup{Private: [2]bool{private, private}, Both: sideOptions{InitiatorDepth: 512}, Shared: &nd.SharedReceiveQueueConfig{Depth: 512}}
					p := newPair(t, s)
					peer := p.b
					for i := range n {
						peer.must(order{Do: doSend, Context: uint64(i), Parts: mine(0, size)})
					}
					for _, side := range []*side{p.a, peer} {
						proctest.Eventually(t, "no progress is made", func() bool {
							return p.a.provider.progressAll() == noProgress && peer.provider.progressAll() == noProgress
						})
						// It can be armed for a moment while another goroutine drives the endpoint.
						proctest.Eventually(t, "the engine does not look again and again", func() bool { return !side.provider.needsPolling() })
					}
					for i := range n {
						p.a.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, size)})
					}
					p.a.results(receiveQueue, n)
					peer.results(initiatorQueue, n)
				})
			}
		}
	}
}

// TestSharedReceiveWakesEngine: a process that neither polls nor waits notices a receive for
// which a message waits.
func TestSharedReceiveWakesEngine(t *testing.T) {
	p := newPair(t, shared(setup{}, 1))
	bell := p.a.member.EngineDoorbell()
	const n = 20
	for range n {
		p.b.must(order{Do: doSend, Parts: mine(0, 8)})
	}
	rung := 0
	for range n {
		proctest.Eventually(t, "a message waits", func() bool {
			p.queue().mu.Lock()
			defer p.queue().mu.Unlock()
			return len(p.queue().waiting) == 1
		})
		before := bell.Arm() // the engine may disarm it at once, but not each time
		p.a.must(order{Do: doReceive, Parts: mine(0, 8)})
		if bell.Arm() != before {
			rung++
		}
		p.b.results(initiatorQueue, 1)
	}
	if rung == 0 {
		t.Errorf("none of %d receives has woken the engine", n)
	}
}

// TestSharedReceiveLargeMessages: large messages of several peers arrive at the same time, each in
// the receive that it took.
func TestSharedReceiveLargeMessages(t *testing.T) {
	t.Parallel()
	const n, rounds = 3 * quantum / 2, 5 // more than a call of progress transfers
	onEvery(t, shared(setup{Both: sideOptions{Size: 4 * n}}, 3), func(t *testing.T, p *pair) {
		var sums [3]uint64
		for i, peer := range p.peers {
			peer.fill(0, 0, n, uint64(i))
			sums[i] = peer.sum(0, 0, n)
			for k := range uint64(rounds) {
				peer.must(order{Do: doSend, Context: k, Parts: []part{{Off: 0, Len: n / 3}, {Off: n / 3, Len: n - n/3}}})
			}
		}
		slot := func(k int) order {
			return order{Do: doReceive, Context: uint64(k), Parts: []part{{Off: k * n, Len: n / 2}, {Off: k*n + n/2, Len: n / 2}}}
		}
		for k := range 4 {
			p.a.must(slot(k))
		}
		var got [3]int
		for range len(p.peers) * rounds {
			res := p.a.results(receiveQueue, 1)[0]
			i, k := int(res.EndpointContext-endpointContext(0)), int(res.RequestContext)
			if res.Status != nd.Success || res.BytesTransferred != n {
				t.Fatalf("%v\n%s", res, p.a.why())
			}
			if p.a.sum(0, k*n, n) != sums[i] {
				t.Fatalf("what came from peer %d into receive %d is something else", i, k)
			}
			got[i]++
			p.a.must(slot(k))
		}
		for i, peer := range p.peers {
			if got[i] != rounds {
				t.Errorf("%d messages of peer %d, want %d", got[i], i, rounds)
			}
			for k, res := range peer.results(initiatorQueue, rounds) {
				if res != (nd.Result{RequestType: nd.RequestSend, RequestContext: uint64(k), BytesTransferred: n, EndpointContext: endpointContext(0)}) {
					t.Errorf("%v", res)
				}
			}
		}
	})
}

// TestSharedReceiveFairness: an endpoint with a steady stream of messages does not starve the
// others.
func TestSharedReceiveFairness(t *testing.T) {
	p := newPair(t, shared(setup{}, 3))
	var waiting [3]int
	wait := func(what string, endpoints int) {
		t.Helper()
		proctest.Eventually(t, what, func() bool {
			p.a.provider.progressAll()
			p.queue().mu.Lock()
			defer p.queue().mu.Unlock()
			return len(p.queue().waiting) == endpoints
		})
	}
	for i := range p.peers {
		for range 10 {
			p.peers[i].must(order{Do: doSend, Parts: mine(0, 8)})
		}
		wait("its first message waits", i+1)
	}
	for k := range 30 {
		left := 0
		for _, got := range waiting {
			if got < 10 {
				left++
			}
		}
		wait("each endpoint with a message waits", left) // otherwise no endpoint waits for its turn
		p.a.must(order{Do: doReceive, Context: uint64(k), Parts: mine(0, 8)})
		res := p.a.results(receiveQueue, 1)[0]
		waiting[res.EndpointContext-endpointContext(0)]++
		if low, high := min(waiting[0], waiting[1], waiting[2]), max(waiting[0], waiting[1], waiting[2]); high-low > 1 {
			t.Fatalf("after %d receives the endpoints have got %v", k+1, waiting)
		}
	}
	p.queue().mu.Lock()
	defer p.queue().mu.Unlock()
	if len(p.queue().waiting) != 0 || p.queue().outstanding() != 0 {
		t.Errorf("%d endpoints wait, %d receives are outstanding", len(p.queue().waiting), p.queue().outstanding())
	}
}

// TestSharedReceiveHotPath: neither a receive that is posted in time nor one that a message
// waits for costs an allocation.
func TestSharedReceiveHotPath(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, n := range []int{0, 48, 4096, 100_000} {
			p := newPair(t, shared(setup{Executors: [2]Executor{executor, executor}}, 1))
			var q nd.SharedReceiveQueue = p.queue()
			h := hotPath{a: p.a, b: p.b, from: p.b.endpointAt(0), n: n}
			for name, f := range map[string]func(){
				"receive first": func() {
					h.post(q.Receive(1, nd.One(h.entry(h.a))))
					h.post(h.from.Send(1, nd.One(h.entry(h.b)), 0))
				},
				"message first": func() {
					h.post(h.from.Send(1, nd.One(h.entry(h.b)), 0))
					h.a.queues[receiveQueue].Poll(h.results[:1])
					h.post(q.Receive(1, nd.One(h.entry(h.a))))
				},
			} {
				allocs := testing.AllocsPerRun(50, func() {
					f()
					h.take(receiveQueue, h.a)
					h.take(initiatorQueue, h.b)
				})
				if h.err != nil {
					t.Fatal(h.err)
				}
				if allocs != 0 {
					t.Errorf("%s, %d bytes: %v allocations", name, n, allocs)
				}
			}
			for q.Receive(1, nd.One(h.entry(h.a))) == nil {
			}
			if allocs := testing.AllocsPerRun(50, func() { h.post(q.Receive(1, nd.One(h.entry(h.a)))) }); allocs != 0 {
				t.Errorf("a full queue: %v allocations", allocs)
			}
			wantStatus(t, h.err, nd.NoMoreEntries)
		}
	}
}
