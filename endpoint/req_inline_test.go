package endpoint

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// Sizes around the edges of a slot's payload, up to the InlineSize of the endpoint.
var inlineSizes = []int{0, 1, 39, 40, 41, 47, 48, 49, 255, maxInline}

// bogus is the token of no region.
const bogus nd.Token = 0xdeadbe01

// scraps cuts b into n entries with a token that is none, some of them empty.
func scraps(b []byte, n int) nd.SGL {
	sge := make([]nd.SGE, n)
	for i := range sge {
		sge[i] = nd.SGE{Buffer: b[len(b)*i/n : len(b)*(i+1)/n], Token: bogus}
	}
	return nd.List(sge...)
}

// TestInlineDataIsCopiedByPost changes the memory right after the post. The data may lie in any memory, needs no token, and may
// have more entries than the endpoint grants.
func TestInlineDataIsCopiedByPost(t *testing.T) {
	t.Parallel()
	onEvery(t, setup{Both: sideOptions{InlineSize: maxInline}}, func(t *testing.T, p *pair) {
		s := p.a
		ep, taken := s.endpointAt(0), s.regionAt(0).bytes()
		w := p.b.newWindow()
		context := uint64(0)
		for _, n := range inlineSizes {
			for _, entries := range []int{1, 3, 40} {
				wanted, source := make([]byte, n), make([]byte, n)
				post := func(f func(sge nd.SGL) error) {
					t.Helper()
					context++
					fill(wanted, context)
					copy(source, wanted)
					if err := f(scraps(source, entries)); err != nil {
						t.Fatal(err)
					}
					clear(source) // at once
				}
				arrived := func(what string, off int) {
					t.Helper()
					p.a.must(order{Do: doRead, Context: 7, Parts: mine(0, n), Far: at(p.b.memory, off)})
					p.a.expect(initiatorQueue, success(nd.RequestRead, 7, n))
					if !bytes.Equal(taken[:n], wanted) {
						t.Errorf("%s of %d bytes in %d entries: the data differ", what, n, entries)
					}
				}

				post(func(sge nd.SGL) error {
					return ep.Write(context, sge, p.b.memory.Address+5, p.b.memory.Token, nd.Inline)
				})
				p.a.expect(initiatorQueue, success(nd.RequestWrite, context, n))
				arrived("write", 5)

				p.b.must(order{Do: doReceive, Context: 1, Parts: []part{{Off: 4096, Len: n / 2}, {Off: 4096 + n/2, Len: n}}})
				post(func(sge nd.SGL) error { return ep.Send(context, sge, nd.Inline) })
				p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
				p.b.expect(receiveQueue, success(nd.RequestReceive, 1, n))
				arrived("send", 4096)

				far := p.b.bind(w, 0, 10, nd.AllowRead)
				p.b.must(order{Do: doReceive, Context: 1, Parts: mine(8192, n)})
				post(func(sge nd.SGL) error { return ep.SendAndInvalidate(context, sge, far.Token, nd.Inline) })
				p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
				p.b.expect(receiveQueue, nd.Result{RequestType: nd.RequestReceiveAndInvalidate, RequestContext: 1, BytesTransferred: uint32(n), InvalidatedToken: far.Token})
				arrived("send and invalidate", 8192)
			}
		}
	})
}

// TestWaitingInlineRequestsKeepData overwrites the source of inline requests that cannot run yet, in all places of the queue.
func TestWaitingInlineRequestsKeepData(t *testing.T) {
	const depth, n = 8, 500
	both := sideOptions{InlineSize: n, InitiatorDepth: depth, Options: Options{ReceiveTimeout: proctest.Timeout}}
	onEvery(t, setup{Both: both}, func(t *testing.T, p *pair) {
		ep, b := p.a.endpointAt(0), make([]byte, n)
		for round := range 3 {
			var want, receives []nd.Result
			for i := range depth {
				fill(b, uint64(i+1))
				if err := ep.Send(uint64(i), scraps(b, 2), nd.Inline); err != nil {
					t.Fatal(err)
				}
				want, receives = append(want, success(nd.RequestSend, uint64(i), n)), append(receives, success(nd.RequestReceive, uint64(i), n))
			}
			clear(b)
			for i := range depth {
				p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(i*n, n)})
			}
			p.a.expect(initiatorQueue, want...)
			p.b.expect(receiveQueue, receives...)
			for i := range depth {
				p.a.fill(0, 0, n, uint64(i+1))
				if p.a.sum(0, 0, n) != p.b.sum(0, i*n, n) {
					t.Errorf("round %d: message %d differs", round, i)
				}
			}
			p.a.must(order{Do: doWrite, Context: 99, Parts: mine(0, 8), Far: p.b.memory}) // moves the places on
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 99, 8))
		}
	})
}

// TestInlineTooLongFailsPost checks that the post has no other effect.
func TestInlineTooLongFailsPost(t *testing.T) {
	for _, limit := range []int{0, 1, 100, maxInline} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			p := newPair(t, setup{Both: sideOptions{InlineSize: limit}})
			ep, far := p.a.endpointAt(0), p.b.memory
			for _, sge := range []nd.SGL{scraps(make([]byte, limit+1), 1), scraps(make([]byte, limit+1), 40), scraps(make([]byte, 3<<20), 7)} {
				wantStatus(t, ep.Send(1, sge, nd.Inline), nd.BufferOverflow)
				wantStatus(t, ep.SendAndInvalidate(1, sge, 1, nd.Inline|nd.SilentSuccess), nd.BufferOverflow)
				wantStatus(t, ep.Write(1, sge, far.Address, far.Token, nd.Inline), nd.BufferOverflow)
			}
			wantStatus(t, ep.Read(1, nd.SGL{}, far.Address, far.Token, nd.Inline), nd.InvalidParameter)
			p.a.nothing(initiatorQueue)
			if err := ep.Write(2, scraps(make([]byte, limit), 3), far.Address, far.Token, nd.Inline); err != nil {
				t.Error(err)
			}
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 2, limit))
		})
	}
}

// TestInlineLimitsMatchAdapter asks for the limits that the adapter reports, and for more.
func TestInlineLimitsMatchAdapter(t *testing.T) {
	s := newPair(t, setup{Unwired: true}).a
	info := must(s.adapter.Query())
	if info.MaxInlineDataSize == 0 || info.InlineRequestThreshold > info.MaxInlineDataSize || info.InlineRequestThreshold == 0 {
		t.Errorf("%d bytes at most, worth it up to %d", info.MaxInlineDataSize, info.InlineRequestThreshold)
	}
	for size, want := range map[int]nd.Status{-1: nd.InvalidParameter, int(info.MaxInlineDataSize): nd.Success, int(info.MaxInlineDataSize) + 1: nd.InvalidParameter} {
		ep, err := s.adapter.CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: s.queues[0], InitiatorCQ: s.queues[0], InlineSize: size,
			ReceiveDepth: maxQueueDepth, InitiatorDepth: maxQueueDepth, MaxReceiveSGE: maxSGE, MaxInitiatorSGE: maxSGE})
		wantStatus(t, err, want)
		if err == nil {
			ep.Close()
		}
	}
}

// TestInlineToInvalidTokenFails checks that an inline request fails like any other.
func TestInlineToInvalidTokenFails(t *testing.T) {
	t.Parallel()
	for _, n := range []int{8, 48, 100, maxInline} {
		onEvery(t, setup{Both: sideOptions{InlineSize: maxInline}}, func(t *testing.T, p *pair) {
			ep, far := p.a.endpointAt(0), at(p.b.memory, 256<<10-n+1)
			if err := ep.Write(1, scraps(make([]byte, n), 1), far.Address, far.Token, nd.Inline|nd.SilentSuccess); err != nil {
				t.Fatal(err)
			}
			p.a.expect(initiatorQueue, failure(nd.RequestWrite, 1, nd.AccessViolation))
			p.b.must(order{Do: doNotify})
		})
	}
}
