package endpoint

import (
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// TestDeferredRequestsComplete checks that each deferred request has its result, in order.
func TestDeferredRequestsComplete(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		w := p.a.newWindow()
		p.b.must(order{Do: doReceive, Context: 9, Parts: mine(0, 100)})
		p.a.must(order{Do: doBind, Context: 1, Window: w, Len: 100, Flags: nd.AllowRead | nd.Defer})
		p.a.must(order{Do: doInvalidate, Context: 2, Window: w, Flags: nd.Defer})
		p.a.must(order{Do: doWrite, Context: 3, Parts: mine(0, 100_000), Far: p.b.memory, Flags: nd.Defer})
		p.a.must(order{Do: doRead, Context: 4, Parts: mine(0, 10), Far: p.b.memory, Flags: nd.Defer})
		p.a.must(order{Do: doSend, Context: 5, Parts: mine(0, 100)})
		p.a.expect(initiatorQueue, success(nd.RequestBind, 1, 0), success(nd.RequestInvalidate, 2, 0), success(nd.RequestWrite, 3, 100_000),
			success(nd.RequestRead, 4, 10), success(nd.RequestSend, 5, 100))
		p.b.expect(receiveQueue, success(nd.RequestReceive, 9, 100))
	})
}

// TestFailedPostSubmitsDeferred checks that a post which fails submits the requests deferred before it.
func TestFailedPostSubmitsDeferred(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		for context := uint64(1); context < 10; context += 2 {
			p.a.must(order{Do: doWrite, Context: context, Parts: mine(0, 10), Far: p.b.memory, Flags: nd.Defer})
			p.a.must(order{Do: doWrite, Context: context + 1, Parts: mine(0, 100_000), Far: p.b.memory, Flags: nd.Defer})
			p.a.refuse(nd.DataOverrun, order{Do: doSend, Context: 99, Parts: make([]part, maxSGE+1)})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, context, 10), success(nd.RequestWrite, context+1, 100_000))
		}
		p.a.nothing(initiatorQueue)
	})
}

// TestRequestBatchesComplete checks the results of batches that are submitted and of one that is not.
func TestRequestBatchesComplete(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		ep := &ndcompat.Batch{Endpoint: p.a.endpointAt(0)}
		var want []nd.Result
		write := func(context uint64) {
			p.a.good(ep.Write(context, nd.One(nd.SGEOf(p.a.regionAt(0).mr, 0, 100)), p.b.memory.Address, p.b.memory.Token, 0))
		}
		ep.SubmitRequestBatch() // of nothing
		ep.StartRequestBatch()
		for context := range uint64(2) {
			write(context)
			want = append(want, success(nd.RequestWrite, context, 100))
			ep.StartRequestBatch()
		}
		if n := ep.Endpoint.(*queuePair).req.submitted; n != 0 {
			t.Errorf("%d requests of an open batch run", n)
		}
		ep.SubmitRequestBatch()
		p.a.expect(initiatorQueue, want...)

		ep.StartRequestBatch()
		write(50)
		p.a.must(order{Do: doFlush})
		r := p.a.results(initiatorQueue, 1)[0]
		if r.RequestContext != 50 || r.Status != nd.Success && r.Status != nd.Canceled {
			t.Errorf("the request of a batch that was flushed: %v", r)
		}
		ep.SubmitRequestBatch()
		p.a.nothing(initiatorQueue)
	})
}
