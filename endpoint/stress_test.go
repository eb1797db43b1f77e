package endpoint

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// TestInvalidateUnderLoad invalidates a window while a peer in another process uses it as fast as it can. The memory must
// not change afterwards.
func TestInvalidateUnderLoad(t *testing.T) {
	t.Parallel()
	const n, rounds = quantum + smallTransfer, 6 // two parts
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 2))
	for _, s := range everySetup(setup{Unwired: true, Both: sideOptions{Size: n}}) {
		if !s.Processes {
			continue
		}
		for _, do := range []verb{doWrite, doRead} {
			t.Run(fmt.Sprintf("%s/%s", s, do), func(t *testing.T) {
				p := newPair(t, s)
				addr := p.b.must(order{Do: doListen}).Addr
				p.connect(addr)
				w := p.a.newWindow()
				for i := range rounds {
					ep := 0
					if i > 0 {
						ep = p.addEndpoints(addr)
					}
					p.a.fill(0, 0, n, 1)
					p.b.fill(0, 0, n, 2)
					d := p.a.must(order{Do: doBind, Endpoint: ep, Window: w, Len: n, Flags: nd.AllowRead | nd.AllowWrite}).Far
					p.a.results(initiatorQueue, 1)
					o := repeat(do, n, d)
					o.Endpoint = ep
					fire := p.b.start(o)
					time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
					p.a.must(order{Do: doReceive, Endpoint: ep, Context: 3})
					p.a.must(order{Do: doInvalidate, Endpoint: ep, Window: w})
					// The result and the first check of the memory are one order.
					r := p.a.must(order{Do: doWait, N: 1, Len: n})
					if r.Results[0].Status != nd.Success {
						t.Fatalf("round %d: %v, seed %d", i, r.Results[0], seed)
					}
					if do == doRead {
						// A later copy would be seen.
						p.a.must(order{Do: doFillByte, Len: n, N: 0x77})
					} else if p.a.sum(0, 0, n) != r.Sum {
						t.Fatalf("round %d: memory has changed after the invalidation, seed %d", i, seed)
					}
					if end := <-fire; end.Status != nd.AccessViolation {
						t.Errorf("round %d: the peer's transfer ends with %v (%s) after %d, seed %d", i, end.Status, end.Text, end.N, seed)
					}
					if do == doWrite && p.a.sum(0, 0, n) != r.Sum {
						t.Fatalf("round %d: memory has changed after the invalidation, seed %d", i, seed)
					}
					if got := p.b.must(order{Do: doLongestRun, Len: n, N: 0x77}).N; got > 100 {
						t.Fatalf("round %d: %d bytes were read after the invalidation, seed %d", i, got, seed)
					}
					if r := p.a.results(receiveQueue, 1)[0]; r.Status != nd.Canceled {
						t.Errorf("round %d: %v", i, r)
					}
				}
			})
		}
	}
}

// TestRequestsCompleteWhileTargetSleeps runs one-sided requests while the program at the other end makes no call.
func TestRequestsCompleteWhileTargetSleeps(t *testing.T) {
	t.Parallel()
	const large = quantum + smallTransfer // two parts
	onEvery(t, setup{Both: sideOptions{Size: 2 * large}}, func(t *testing.T, p *pair) {
		p.a.fill(0, 0, large, 1)
		for i := range uint64(30) {
			n := []int{1, 8, 5000, large}[i%4]
			if i%10 == 9 {
				time.Sleep(5 * time.Millisecond) // both programs are idle
			}
			p.a.must(order{Do: doWrite, Context: i, Parts: mine(0, n), Far: p.b.memory})
			p.a.must(order{Do: doRead, Context: i, Parts: mine(large, n), Far: p.b.memory})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, i, n), success(nd.RequestRead, i, n))
			if p.a.sum(0, large, n) != p.a.sum(0, 0, n) {
				t.Fatalf("%d bytes came back changed", n)
			}
		}
	})
}

// TestConcurrentPostsHaveOneResultEach posts and flushes concurrently.
func TestConcurrentPostsHaveOneResultEach(t *testing.T) {
	for _, s := range someSetups(setup{Both: sideOptions{InitiatorDepth: 2000, ReceiveDepth: 2000, QueueDepth: 8000}}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			const n = 400
			var posters sync.WaitGroup
			for _, x := range []*side{p.a, p.b} {
				for k := range 2 {
					posters.Go(func() {
						for i := range n {
							o := order{Do: []verb{doReceive, doSend}[k], Context: uint64(i), Parts: mine(100*k, 60)}
							if r := x.do(o); r.Status != nd.Success {
								t.Errorf("%s: %s: %s", x.name, o.Do, r.Text)
							}
						}
					})
				}
			}
			posters.Go(func() {
				time.Sleep(time.Millisecond)
				p.a.must(order{Do: doFlush})
			})
			posters.Wait()
			for _, x := range []*side{p.a, p.b} {
				for _, q := range []queue{initiatorQueue, receiveQueue} {
					canceled := false
					for i, r := range x.results(q, n) {
						if r.RequestContext != uint64(i) {
							t.Fatalf("%s: result %d of queue %d is %v", x.name, i, q, r)
						}
						if r.Status != nd.Success && r.Status != nd.Canceled || canceled && r.Status == nd.Success {
							t.Errorf("%s: result %d of queue %d is %v", x.name, i, q, r)
						}
						canceled = r.Status == nd.Canceled
					}
					x.nothing(q)
				}
			}
		})
	}
}
