package endpoint

import (
	"testing"

	"github.com/softnd/softnd/nd"
)

// overtakingTrials is how often each trial of this file runs.
const overtakingTrials = 200

// whileBlocked runs f while the peer takes nothing out of its rings.
func (p *pair) whileBlocked(f func()) {
	ep := p.b.endpointAt(0).(*queuePair)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	f()
}

// TestMessageDoesNotOvertakeRequests posts a message that does not fit a slot while earlier
// requests wait in the peer's ring. Its receive overlaps what those store to; the message is
// posted last, so its bytes win.
func TestMessageDoesNotOvertakeRequests(t *testing.T) {
	t.Parallel()
	const at, n = 1024, 100
	for _, trial := range []struct {
		name  string
		first func(p *pair)
	}{
		{"a Write", func(p *pair) {
			p.a.must(order{Do: doWrite, Context: 2, Parts: mine(0, n), Far: atFar(p.b, at)})
		}},
		{"a small Write", func(p *pair) {
			p.a.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: atFar(p.b, at+20)})
		}},
		{"a small message", func(p *pair) {
			p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, 40)})
		}},
	} {
		for _, s := range someSetups(setup{}) {
			t.Run(trial.name+"/"+s.String(), func(t *testing.T) {
				p := newPair(t, s)
				wrong := 0
				for i := range overtakingTrials {
					seed := uint64(2 * i)
					p.a.fill(0, 0, n, seed)
					p.a.fill(0, 4096, n, seed+1)
					p.b.must(order{Do: doReceive, Context: 11, Parts: mine(8192, 8)})
					receives := 2
					if trial.name == "a small message" {
						p.b.must(order{Do: doReceive, Context: 12, Parts: mine(at+50, 64)})
						receives++
					}
					p.b.must(order{Do: doReceive, Context: 13, Parts: mine(at, n)})
					p.whileBlocked(func() {
						p.a.must(order{Do: doSend, Context: 1, Parts: mine(0, 8)})
						trial.first(p)
						p.a.must(order{Do: doSend, Context: 3, Parts: mine(4096, n)})
					})
					for _, r := range append(p.a.results(initiatorQueue, 3), p.b.results(receiveQueue, receives)...) {
						if r.Status != nd.Success {
							t.Fatalf("trial %d: %v\n%s\n%s", i, r, p.a.why(), p.b.why())
						}
					}
					if p.b.sum(0, at, n) != p.a.sum(0, 4096, n) {
						wrong++
					}
				}
				if wrong > 0 {
					t.Errorf("in %d of %d trials earlier bytes overwrote the message", wrong, overtakingTrials)
				}
			})
		}
	}
}

// TestMessageBehindFailedWriteIsNotCopied checks that its receive is canceled and its memory unchanged.
func TestMessageBehindFailedWriteIsNotCopied(t *testing.T) {
	t.Parallel()
	const at, n = 1024, 100
	for _, s := range someSetups(setup{}) {
		t.Run(s.String(), func(t *testing.T) {
			for range 20 {
				p := newPair(t, s)
				p.a.fill(0, 0, n, 1)
				p.b.fill(0, at, n, 2)
				before := p.b.sum(0, at, n)
				p.b.must(order{Do: doReceive, Context: 11, Parts: mine(8192, 8)})
				p.b.must(order{Do: doReceive, Context: 12, Parts: mine(at, n)})
				bad := p.b.memory
				bad.Token ^= 1 << 20
				p.whileBlocked(func() {
					p.a.must(order{Do: doSend, Context: 1, Parts: mine(0, 8)})
					p.a.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: bad})
					p.a.must(order{Do: doSend, Context: 3, Parts: mine(0, n)})
				})
				p.a.expect(initiatorQueue, success(nd.RequestSend, 1, 8), failure(nd.RequestWrite, 2, nd.AccessViolation), failure(nd.RequestSend, 3, nd.Canceled))
				p.b.expect(receiveQueue, success(nd.RequestReceive, 11, 8), failure(nd.RequestReceive, 12, nd.Canceled))
				if p.b.sum(0, at, n) != before {
					t.Fatal("the canceled receive holds the message")
				}
			}
		})
	}
}

// TestInvalidateRegionWaitsForItsUsers: earlier requests that the peer has yet to run
// name the region's local token.
func TestInvalidateRegionWaitsForItsUsers(t *testing.T) {
	const n = 200_000
	for _, s := range someSetups(setup{}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			region := p.a.fastRegion(n)
			for i := range uint64(20) {
				d := p.a.must(order{Do: doFastRegister, Context: 1, Region: region, Len: n, Far: nd.WindowDescriptor{Address: fastBase}, Rights: nd.AllowLocalWrite})
				p.a.expect(initiatorQueue, success(nd.RequestFastRegister, 1, 0))
				p.a.fill(region, 0, n, i)
				p.b.must(order{Do: doReceive, Context: 10, Parts: mine(8192, 8)})
				p.b.must(order{Do: doReceive, Context: 11, Parts: mine(16384, n)})
				part := []part{{Region: region, Len: n, Token: nd.Token(d.Sum)}}
				p.whileBlocked(func() {
					p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, 8)})
					p.a.must(order{Do: doWrite, Context: 3, Parts: part, Far: atFar(p.b, 16384)})
					p.a.must(order{Do: doSend, Context: 4, Parts: part})
					p.a.must(order{Do: doInvalidateRegion, Context: 5, Region: region})
					p.a.provider.progressAll()
				})
				p.a.expect(initiatorQueue, success(nd.RequestSend, 2, 8), success(nd.RequestWrite, 3, n), success(nd.RequestSend, 4, n),
					success(nd.RequestInvalidate, 5, 0))
				p.b.expect(receiveQueue, success(nd.RequestReceive, 10, 8), success(nd.RequestReceive, 11, n))
				if p.b.sum(0, 16384, n) != p.a.sum(region, 0, n) {
					t.Fatal("other bytes arrived than were sent")
				}
			}
		})
	}
}
