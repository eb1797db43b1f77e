package endpoint

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestSendToLimitedReceiveWaitsForPeer completes a message at once if it is known to fit. A message that may not fit completes when the
// peer has received it.
func TestSendToLimitedReceiveWaitsForPeer(t *testing.T) {
	for _, c := range []struct {
		capacity, n int
		atOnce      bool
	}{
		{1, 1, true}, {8, 8, true}, {8, 1, true}, {47, 47, true}, {48, 48, true}, {200, 48, true},
		{8, 9, false}, {47, 48, false}, {1, 2, false},
	} {
		t.Run(fmt.Sprintf("%d for %d", c.n, c.capacity), func(t *testing.T) {
			p := newPair(t, setup{})
			p.b.provider.engine.stop() // no goroutine serves the receiver
			p.a.fill(0, 0, c.n, 1)
			for i := range uint64(2) {
				p.b.must(order{Do: doReceive, Context: i, Parts: mine(0, c.capacity)})
				p.b.must(order{Do: doReceive, Context: 9, Parts: mine(0, 64)}) // it is not this one that counts
				p.a.must(order{Do: doSend, Context: i, Parts: mine(0, c.n)})
				p.a.must(order{Do: doSend, Context: 10})
				got := p.a.must(order{Do: doPoll, N: 1}).Results
				if done := len(got) == 1; done != c.atOnce {
					t.Fatalf("round %d: done at once %v, want %v", i, done, c.atOnce)
				}
				if !c.atOnce {
					break
				}
				if got[0].Status != nd.Success || got[0].BytesTransferred != uint32(c.n) || got[0].RequestContext != i {
					t.Fatalf("round %d: %v", i, got[0])
				}
				p.b.expect(receiveQueue, success(nd.RequestReceive, i, c.n), success(nd.RequestReceive, 9, 0))
				p.a.expect(initiatorQueue, success(nd.RequestSend, 10, 0))
				if p.a.sum(0, 0, c.n) != p.b.sum(0, 0, c.n) {
					t.Fatal("the data differ")
				}
			}
			if !c.atOnce {
				p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.BufferOverflow), failure(nd.RequestReceive, 9, nd.Canceled))
				p.a.expect(initiatorQueue, failure(nd.RequestSend, 0, nd.RemoteError), failure(nd.RequestSend, 10, nd.Canceled))
			}
		})
	}
}

// TestSmallestReceiveLimitsSends posts several small receives: the smallest limits all, until they are complete.
func TestSmallestReceiveLimitsSends(t *testing.T) {
	p := newPair(t, setup{})
	p.b.provider.engine.stop()
	for round := range 3 {
		for i, room := range []int{40, 8, 40, 64} {
			p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(100*i, room)})
		}
		for i, n := range []int{30, 8, 30, 48} {
			p.a.must(order{Do: doSend, Context: uint64(i), Parts: mine(0, n)})
		}
		if n := len(p.a.must(order{Do: doPoll, N: 4}).Results); n != 0 {
			t.Fatalf("round %d: %d sends are done, although the first may not fit", round, n)
		}
		p.b.expect(receiveQueue, success(nd.RequestReceive, 0, 30), success(nd.RequestReceive, 1, 8), success(nd.RequestReceive, 2, 30),
			success(nd.RequestReceive, 3, 48))
		p.a.expect(initiatorQueue, success(nd.RequestSend, 0, 30), success(nd.RequestSend, 1, 8), success(nd.RequestSend, 2, 30),
			success(nd.RequestSend, 3, 48))
		// They are gone: a roomy one is roomy, a tight one has its own room.
		p.b.must(order{Do: doReceive, Context: 5, Parts: mine(0, 40)})
		p.a.must(order{Do: doSend, Context: 5, Parts: mine(0, 30)})
		if n := len(p.a.must(order{Do: doPoll, N: 4}).Results); n != 1 {
			t.Fatalf("round %d: a send that fits for sure is not done", round)
		}
		p.b.expect(receiveQueue, success(nd.RequestReceive, 5, 30))
	}
}

// TestReceiveRevokedAfterPostFails invalidates the token of a posted receive, to which the peer has completed a Send. The receive
// fails; the Send stays completed.
func TestReceiveRevokedAfterPostFails(t *testing.T) {
	for _, n := range []int{8, 48} {
		for _, when := range []string{"before the message", "with the message in its slot"} {
			t.Run(fmt.Sprintf("%d bytes, %s", n, when), func(t *testing.T) {
				p := newPair(t, setup{})
				p.b.provider.engine.stop()
				const room = 64
				p.b.must(order{Do: doRegion, Len: room, Rights: nd.AllowLocalWrite})
				p.b.fill(1, 0, room, 3)
				before := p.b.sum(1, 0, room)
				p.b.must(order{Do: doReceive, Context: 1, Parts: []part{{Region: 1, Len: room}}})
				p.b.must(order{Do: doReceive, Context: 2, Parts: mine(0, room)})
				send := order{Do: doSend, Context: 3, Parts: mine(0, n)}
				if when == "before the message" {
					p.b.must(order{Do: doDeregister, Region: 1})
					p.a.must(send)
					if r := p.a.results(initiatorQueue, 1)[0]; r.Status != nd.Success && r.Status != nd.RemoteError {
						t.Errorf("the sender is told %v", r)
					}
					p.b.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.AccessViolation), failure(nd.RequestReceive, 2, nd.Canceled))
					if p.b.sum(1, 0, room) != before {
						t.Error("deregistered memory was written")
					}
					return
				}
				p.a.must(send)
				p.b.must(order{Do: doDeregister, Region: 1}) // takes what has been delivered before
				p.a.expect(initiatorQueue, success(nd.RequestSend, 3, n))
				p.b.expect(receiveQueue, success(nd.RequestReceive, 1, n))
				if p.b.sum(1, 0, n) != p.a.sum(0, 0, n) {
					t.Error("the data differ")
				}
			})
		}
	}
}

// TestConcurrentPollsKeepOrder lets two goroutines poll one queue. The results of an endpoint that a poll returns are later than
// those of any poll that ended before it began.
func TestConcurrentPollsKeepOrder(t *testing.T) {
	const endpoints, messages, depth = 3, 3000, 16
	p := newPair(t, setup{Unwired: true, Both: sideOptions{OneQueue: true, ReceiveDepth: depth, Options: Options{ReceiveTimeout: proctest.Timeout}}})
	addr := p.b.must(order{Do: doListen}).Addr
	p.connect(addr)
	for range endpoints - 1 {
		p.addEndpoints(addr)
	}
	ctx, cancel := context.WithCancel(proctest.Context(t))
	defer cancel()
	var both sync.WaitGroup
	for what, s := range map[verb]*side{doReceive: p.b, doSend: p.a} {
		both.Go(func() {
			var results [8]nd.Result
			for i := range uint64(endpoints * messages) {
				ep := int(i % endpoints)
				o := order{Do: what, Endpoint: ep, Context: 1 + i/endpoints, Parts: mine(8*ep, 8)}
				for s.post(o, new(reply)) != nil && ctx.Err() == nil { // there is no slot yet
					if what == doSend {
						s.queues[initiatorQueue].Poll(results[:])
					}
					runtime.Gosched()
				}
			}
		})
	}
	var taken [endpoints]atomic.Uint64 // the latest that has been taken for sure
	var left atomic.Int64
	left.Store(endpoints * messages)
	both.Go(func() {
		for left.Load() > 0 && ctx.Err() == nil { // takes nothing, so that results pile up in the queue
			p.b.queues[receiveQueue].Poll(nil)
			runtime.Gosched()
		}
	})
	for range 2 {
		both.Go(func() {
			var results [5]nd.Result
			for left.Load() > 0 && ctx.Err() == nil {
				var last [endpoints]uint64
				for ep := range last {
					last[ep] = taken[ep].Load()
				}
				n := p.b.queues[receiveQueue].Poll(results[:])
				for _, r := range results[:n] {
					ep := r.EndpointContext - endpointContext(0)
					if r.Status != nd.Success || r.RequestContext <= last[ep] {
						t.Errorf("endpoint %d: after %d comes %v", ep, last[ep], r)
						cancel()
					}
					last[ep] = r.RequestContext
					for old := taken[ep].Load(); old < r.RequestContext && !taken[ep].CompareAndSwap(old, r.RequestContext); old = taken[ep].Load() {
					}
				}
				left.Add(-int64(n))
				runtime.Gosched()
			}
		})
	}
	both.Wait()
	if n := left.Load(); n != 0 {
		t.Errorf("%d results are missing\n%s\n%s", n, p.a.why(), p.b.why())
	}
}

// TestResultsDoNotOvertakeQueuedOnes checks that results bypass the completion queue only while it is empty.
func TestResultsDoNotOvertakeQueuedOnes(t *testing.T) {
	p := newPair(t, setup{})
	s := p.b
	s.provider.engine.stop()
	q, ep := s.queues[receiveQueue].(*completionQueue), s.endpointAt(0).(*queuePair)
	var room [4]nd.Result
	for i := range uint64(3) {
		p.b.must(order{Do: doReceive, Context: i, Parts: mine(0, 64)})
		p.a.must(order{Do: doSend, Context: i, Parts: mine(0, 8)})
		want := 0
		switch i {
		case 0:
			want = 1 // past the queue
		case 1:
			q.Poll(nil) // into the queue, where it stays
			continue
		}
		if n, _ := ep.progressInto(q, room[:]); n != want {
			t.Fatalf("message %d: %d results came past the queue, want %d", i, n, want)
		}
	}
	p.b.expect(receiveQueue, success(nd.RequestReceive, 1, 8), success(nd.RequestReceive, 2, 8))
}

// TestPollNoticesPeerGone only polls one queue of many endpoints. It notices each way in which a peer can disappear.
func TestPollNoticesPeerGone(t *testing.T) {
	const endpoints = 64
	for name, leave := range map[string]func(p *pair, ep int){
		"flush": func(p *pair, ep int) { p.b.must(order{Do: doFlush, Endpoint: ep}) },
		"close": func(p *pair, ep int) { p.b.must(order{Do: doCloseEndpoint, Endpoint: ep}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{Unwired: true, Both: sideOptions{OneQueue: true, InitiatorDepth: 4, ReceiveDepth: 4}})
			addr := p.b.must(order{Do: doListen}).Addr
			p.connect(addr)
			for range endpoints - 1 {
				p.addEndpoints(addr)
			}
			for ep := range endpoints {
				p.a.must(order{Do: doReceive, Endpoint: ep, Context: uint64(ep), Parts: mine(0, 8)})
			}
			p.a.provider.engine.stop() // so that it is the polls that find out
			for _, ep := range []int{37, 0, endpoints - 1} {
				p.a.nothing(receiveQueue)
				leave(p, ep)
				var got []nd.Result
				proctest.Eventually(t, "a poll finds out", func() bool {
					for i := 0; i < 2*thoroughInterval*endpoints/thoroughEndpoints && len(got) == 0; i++ {
						got = p.a.execute(order{Do: doPoll, Queue: receiveQueue, N: 4}).Results
					}
					return len(got) > 0
				})
				want := failure(nd.RequestReceive, uint64(ep), nd.Canceled)
				want.EndpointContext = endpointContext(ep)
				if len(got) != 1 || got[0] != want {
					t.Fatalf("results %v, want %v", got, want)
				}
			}
			p.b.must(order{Do: doSend, Endpoint: 5, Context: 1}) // the others go on
			r := success(nd.RequestReceive, 5, 0)
			r.EndpointContext = endpointContext(5)
			p.a.expect(receiveQueue, r)
		})
	}
}

// TestPeersWithAndWithoutMembarrier connects processes of which none, one, or both can rely on membarrier.
func TestPeersWithAndWithoutMembarrier(t *testing.T) {
	for _, barriers := range [][2]uint64{{1, 1}, {0, 1}, {1, 0}, {0, 0}} {
		t.Run(fmt.Sprint(barriers), func(t *testing.T) {
			p := newPair(t, setup{Unwired: true})
			sides := [2]*queuePair{p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)}
			for i, ep := range sides {
				ep.localQP.Membarrier = min(barriers[i], ep.localQP.Membarrier) // before the peer looks
			}
			p.connect(p.b.must(order{Do: doListen}).Addr)
			for i, ep := range sides {
				if want := sides[1-i].localQP.Membarrier == 1; ep.conn.peerFences != want {
					t.Fatalf("side %d relies on barriers: %v, want %v", i, ep.conn.peerFences, want)
				}
			}
			// Each round both sides fall asleep, and the other one's message, or
			// receive, has to wake them.
			const rounds = 300
			var both sync.WaitGroup
			for i, x := range [2]*side{p.a, p.b} {
				both.Go(func() {
					for round := range uint64(rounds) {
						x.must(order{Do: doReceive, Context: round, Parts: mine(0, 8)})
						send := order{Do: doSend, Context: round, Parts: mine(8, 8)}
						first := (round+uint64(i))%2 == 0
						if first {
							x.must(send)
						}
						x.expect(receiveQueue, success(nd.RequestReceive, round, 8))
						if !first {
							x.must(send)
						}
						x.expect(initiatorQueue, success(nd.RequestSend, round, 8))
					}
				})
			}
			both.Wait()
		})
	}
}
