package endpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// star is an owner of a shared receive queue and its peers. Endpoint i of the owner is connected
// with endpoint 0 of peer i.
type star struct {
	setup
	owner *party
	peers []*party
}

// newStar makes a star with a number of peers. With s.Processes the peers are processes of their
// own. The first executor and memory of s are the owner's.
func newStar(t testing.TB, s setup, cfg nd.SharedReceiveQueueConfig, peers int) *star {
	t.Helper()
	r := &star{setup: s}
	arena := newArena(t)
	of := func(i int) sideOptions {
		o := s.Both
		o.Executor, o.Private = s.Executors[i], s.Private[i]
		return o
	}
	options := of(0)
	options.Shared = &cfg
	r.owner = newParty(t, arena, "owner", options, false)
	r.owner.memory = r.owner.region(0)
	for i := range peers {
		p := newParty(t, arena, fmt.Sprint("peer ", i), of(1), s.Processes)
		p.memory = p.region(0)
		r.peers = append(r.peers, p)
		if i > 0 {
			r.owner.must(order{Do: doEndpoint})
		}
		r.connect(i, p.must(order{Do: doListen}))
	}
	return r
}

func (r *star) connect(i int, listener reply) {
	r.owner.t.Helper()
	accepted := r.peers[i].start(order{Do: doAccept, In: 16, Out: 16})
	r.owner.must(order{Do: doConnect, Endpoint: i, Addr: listener.Addr, In: 16, Out: 16})
	r.owner.must(order{Do: doComplete, Endpoint: i})
	if a := <-accepted; a.Status != nd.Success {
		r.owner.t.Fatalf("accept: %s", a.Text)
	}
}

func (r *star) queue() *sharedReceiveQueue { return r.owner.local.shared.(*sharedReceiveQueue) }

// onEveryStar runs a test with every executor and memory, within a process and across several.
func onEveryStar(t *testing.T, s setup, peers int, test func(t *testing.T, r *star)) {
	t.Helper()
	runEach(t, everySetup(s), func(t *testing.T, s setup) { test(t, newStar(t, s, nd.SharedReceiveQueueConfig{}, peers)) })
}

// of makes the result of a receive one of the owner's endpoint i.
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
	onEveryStar(t, setup{Both: impatient}, 2, func(t *testing.T, r *star) {
		for _, n := range []int{0, 1, 8, 47, 48, 49, 1000, 60_000} {
			for i := range uint64(4) {
				r.owner.must(order{Do: doReceive, Context: i, Parts: mine(int(i)*60_000, n)})
			}
			for i := range uint64(4) {
				p := r.peers[i%2]
				p.fill(0, 0, n, i+7)
				p.must(order{Do: doSend, Context: i, Parts: mine(0, n)})
				r.owner.expect(receiveQueue, of(int(i%2), success(nd.RequestReceive, i, n)))
				p.expect(initiatorQueue, success(nd.RequestSend, i, n))
				if r.owner.sum(0, int(i)*60_000, n) != p.sum(0, 0, n) {
					t.Errorf("%d bytes: the data differ", n)
				}
			}
		}
		// The other direction has no shared queue.
		for i, p := range r.peers {
			p.must(order{Do: doReceive, Context: 5, Parts: mine(0, 100)})
			r.owner.must(order{Do: doSend, Endpoint: i, Context: 6, Parts: mine(0, 100)})
			p.expect(receiveQueue, success(nd.RequestReceive, 5, 100))
			r.owner.expect(initiatorQueue, of(i, success(nd.RequestSend, 6, 100)))
		}
	})
}

// TestSharedReceivePostedLate: a message waits for a receive without limit, and later requests
// wait with it.
func TestSharedReceivePostedLate(t *testing.T) {
	onEveryStar(t, setup{Both: impatient}, 1, func(t *testing.T, r *star) {
		p := r.peers[0]
		for i, n := range []int{0, 8, 48, 49, 1000, 200_000} {
			context := uint64(i)
			p.fill(0, 0, n, context)
			r.owner.fill(0, 0, n+16, context+100)
			before := r.owner.sum(0, n, 16)
			p.must(order{Do: doSend, Context: context, Parts: mine(0, n)})
			p.must(order{Do: doWrite, Context: context, Parts: mine(n, 16), Far: at(r.owner.memory, n)})
			p.must(order{Do: doRead, Context: context, Parts: mine(250_000, 8), Far: r.owner.memory})
			time.Sleep(5 * time.Millisecond) // five times the time-out of a plain Send
			p.nothing(initiatorQueue)
			r.owner.nothing(receiveQueue)
			if r.owner.sum(0, n, 16) != before {
				t.Errorf("%d bytes: a Write has overtaken the message", n)
			}
			r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, n)})
			r.owner.expect(receiveQueue, of(0, success(nd.RequestReceive, context, n)))
			p.expect(initiatorQueue, success(nd.RequestSend, context, n), success(nd.RequestWrite, context, 16), success(nd.RequestRead, context, 8))
			if p.sum(0, 0, n+16) != r.owner.sum(0, 0, n+16) {
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
					s := setup{Private: [2]bool{private, private}, Both: sideOptions{InitiatorDepth: 512}}
					r := newStar(t, s, nd.SharedReceiveQueueConfig{Depth: 512}, 1)
					p := r.peers[0]
					for i := range n {
						p.must(order{Do: doSend, Context: uint64(i), Parts: mine(0, size)})
					}
					for _, side := range []*side{r.owner.local, p.local} {
						proctest.Eventually(t, "no progress is made", func() bool {
							return r.owner.local.provider.progressAll() == noProgress && p.local.provider.progressAll() == noProgress
						})
						// It can be armed for a moment while another goroutine drives the endpoint.
						proctest.Eventually(t, "the engine does not look again and again", func() bool { return !side.provider.needsPolling() })
					}
					for i := range n {
						r.owner.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, size)})
					}
					r.owner.results(receiveQueue, n)
					p.results(initiatorQueue, n)
				})
			}
		}
	}
}

// TestSharedReceiveWakesEngine: a process that neither polls nor waits notices a receive for
// which a message waits.
func TestSharedReceiveWakesEngine(t *testing.T) {
	r := newStar(t, setup{}, nd.SharedReceiveQueueConfig{}, 1)
	bell := r.owner.local.member.EngineDoorbell()
	const n = 20
	for range n {
		r.peers[0].must(order{Do: doSend, Parts: mine(0, 8)})
	}
	rung := 0
	for range n {
		proctest.Eventually(t, "a message waits", func() bool {
			r.queue().mu.Lock()
			defer r.queue().mu.Unlock()
			return len(r.queue().waiting) == 1
		})
		before := bell.Arm() // the engine may disarm it at once, but not each time
		r.owner.must(order{Do: doReceive, Parts: mine(0, 8)})
		if bell.Arm() != before {
			rung++
		}
		r.peers[0].results(initiatorQueue, 1)
	}
	if rung == 0 {
		t.Errorf("none of %d receives has woken the engine", n)
	}
}

// TestSharedReceiveLargeMessages: large messages of several peers arrive at the same time, each in
// the receive that it took.
func TestSharedReceiveLargeMessages(t *testing.T) {
	const n, rounds = 1 << 20, 8
	onEveryStar(t, setup{Both: sideOptions{Size: 4 * n}}, 3, func(t *testing.T, r *star) {
		var sums [3]uint64
		for i, p := range r.peers {
			p.fill(0, 0, n, uint64(i))
			sums[i] = p.sum(0, 0, n)
			for k := range uint64(rounds) {
				p.must(order{Do: doSend, Context: k, Parts: []part{{Off: 0, Len: n / 3}, {Off: n / 3, Len: n - n/3}}})
			}
		}
		slot := func(k int) order {
			return order{Do: doReceive, Context: uint64(k), Parts: []part{{Off: k * n, Len: n / 2}, {Off: k*n + n/2, Len: n / 2}}}
		}
		for k := range 4 {
			r.owner.must(slot(k))
		}
		var got [3]int
		for range len(r.peers) * rounds {
			res := r.owner.results(receiveQueue, 1)[0]
			i, k := int(res.EndpointContext-endpointContext(0)), int(res.RequestContext)
			if res.Status != nd.Success || res.BytesTransferred != n {
				t.Fatalf("%v\n%s", res, r.owner.why())
			}
			if r.owner.sum(0, k*n, n) != sums[i] {
				t.Fatalf("what came from peer %d into receive %d is something else", i, k)
			}
			got[i]++
			r.owner.must(slot(k))
		}
		for i, p := range r.peers {
			if got[i] != rounds {
				t.Errorf("%d messages of peer %d, want %d", got[i], i, rounds)
			}
			for k, res := range p.results(initiatorQueue, rounds) {
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
	r := newStar(t, setup{}, nd.SharedReceiveQueueConfig{}, 3)
	var waiting [3]int
	wait := func(what string, endpoints int) {
		t.Helper()
		proctest.Eventually(t, what, func() bool {
			r.owner.local.provider.progressAll()
			r.queue().mu.Lock()
			defer r.queue().mu.Unlock()
			return len(r.queue().waiting) == endpoints
		})
	}
	for i := range r.peers {
		for range 10 {
			r.peers[i].must(order{Do: doSend, Parts: mine(0, 8)})
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
		r.owner.must(order{Do: doReceive, Context: uint64(k), Parts: mine(0, 8)})
		res := r.owner.results(receiveQueue, 1)[0]
		waiting[res.EndpointContext-endpointContext(0)]++
		if low, high := min(waiting[0], waiting[1], waiting[2]), max(waiting[0], waiting[1], waiting[2]); high-low > 1 {
			t.Fatalf("after %d receives the endpoints have got %v", k+1, waiting)
		}
	}
	r.queue().mu.Lock()
	defer r.queue().mu.Unlock()
	if len(r.queue().waiting) != 0 || r.queue().outstanding() != 0 {
		t.Errorf("%d endpoints wait, %d receives are outstanding", len(r.queue().waiting), r.queue().outstanding())
	}
}

// TestSharedReceiveHotPath: neither a receive that is posted in time nor one that a message
// waits for costs an allocation.
func TestSharedReceiveHotPath(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, n := range []int{0, 48, 4096, 100_000} {
			r := newStar(t, setup{Executors: [2]Executor{executor, executor}}, nd.SharedReceiveQueueConfig{}, 1)
			q, p := r.queue(), r.peers[0].local
			h := hotPath{a: r.owner.local, b: p, from: p.endpoint(0), n: n}
			from, to := p.region(0), r.owner.local.region(0)
			h.source = []nd.SGE{{Buffer: from.cut(0, n), Token: from.mr.LocalToken()}}
			h.sink = []nd.SGE{{Buffer: to.cut(0, n), Token: to.mr.LocalToken()}}
			for name, f := range map[string]func(){
				"receive first": func() {
					h.post(q.Receive(1, h.sink))
					h.post(h.from.Send(1, h.source, 0))
				},
				"message first": func() {
					h.post(h.from.Send(1, h.source, 0))
					h.a.queues[receiveQueue].Poll(h.results[:1])
					h.post(q.Receive(1, h.sink))
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
			for q.Receive(1, h.sink) == nil {
			}
			if allocs := testing.AllocsPerRun(50, func() { h.post(q.Receive(1, h.sink)) }); allocs != 0 {
				t.Errorf("a full queue: %v allocations", allocs)
			}
			wantStatus(t, h.err, nd.NoMoreEntries)
		}
	}
}
