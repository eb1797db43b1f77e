package endpoint

import (
	"testing"
	"time"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
)

// onCheckedReads runs a test where side a posts a checked Read of n bytes of b into a region that a request of a has
// registered. Its data arrives at once, and its result waits for that of a Write before it, which is late by delay.
func onCheckedReads(t *testing.T, delay time.Duration, all []setup, test func(t *testing.T, p *pair, region int, d nd.WindowDescriptor)) {
	const n = 5000
	runEach(t, all, func(t *testing.T, s setup) {
		s.Both = checkedPayloads
		p := newFaultyPair(t, s, []faults.Rule{on("write", faults.Rule{Nth: 1, Phase: "complete", Action: "delay", Delay: delay})}, nil)
		p.b.fill(0, 0, n, 1)
		region := p.a.fastRegion(n + 100)
		d := p.a.register(region, 0, n+100)
		p.a.must(order{Do: doWrite, Parts: mine(n, 8), Far: at(p.b.memory, n)})
		p.a.must(order{Do: doRead, Parts: []part{{Region: region, Len: n}}, Far: p.b.memory})
		test(t, p, region, d)
	})
}

var lateWrite, checkedRead = success(nd.RequestWrite, 0, 8), success(nd.RequestRead, 0, 5000)

// TestChecksBeforeInvalidation: a token is revoked between the arrival of a Read's data and its result.
func TestChecksBeforeInvalidation(t *testing.T) {
	t.Run("region", func(t *testing.T) {
		onCheckedReads(t, 5*time.Millisecond, faultSetups(), func(t *testing.T, p *pair, region int, _ nd.WindowDescriptor) {
			p.a.must(order{Do: doInvalidateRegion, Context: 1, Region: region})
			p.a.expect(initiatorQueue, lateWrite, checkedRead, success(nd.RequestInvalidate, 1, 0))
		})
	})
	t.Run("sink", func(t *testing.T) {
		onCheckedReads(t, 5*time.Millisecond, faultSetups(), func(t *testing.T, p *pair, region int, _ nd.WindowDescriptor) {
			p.a.must(order{Do: doRead, Context: 1, Parts: []part{{Region: region, Off: 5000, Len: 100}}, Far: p.b.memory, Flags: nd.ReadLocalInvalidate})
			p.a.expect(initiatorQueue, lateWrite, checkedRead, success(nd.RequestRead, 1, 100))
		})
	})
	t.Run("message", func(t *testing.T) {
		onCheckedReads(t, 5*time.Millisecond, faultSetups(), func(t *testing.T, p *pair, _ int, d nd.WindowDescriptor) {
			p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
			p.a.must(order{Do: doReceive, Parts: mine(0, 8)})
			p.a.must(order{Do: doSend, Context: 1, Parts: mine(0, 8)})
			p.b.expect(receiveQueue, success(nd.RequestReceive, 0, 8)) // after the Read
			p.b.must(order{Do: doSendRevoking, Parts: mine(0, 8), Far: d})
			p.a.expect(initiatorQueue, lateWrite, checkedRead, success(nd.RequestSend, 1, 8))
		})
	})
}

// TestChecksBeforeInvalidationFail: nothing runs after a Read with wrong data, although its result waits for another.
func TestChecksBeforeInvalidationFail(t *testing.T) {
	runEach(t, faultSetups(), func(t *testing.T, s setup) {
		s.Both = checkedPayloads
		late := on("write", faults.Rule{Phase: "complete", Action: "delay", Delay: 5 * time.Millisecond})
		p := newFaultyPair(t, s, []faults.Rule{late, on("read", faults.Rule{Action: "corrupt"})}, nil)
		region := p.a.fastRegion(100)
		p.a.register(region, 0, 100)
		p.a.fill(0, 200, 100, 1)
		before := p.b.sum(0, 200, 100)
		p.a.must(order{Do: doWrite, Parts: mine(0, 100), Far: p.b.memory})
		p.a.must(order{Do: doRead, Context: 1, Parts: []part{{Region: region, Len: 100}}, Far: p.b.memory})
		p.a.must(order{Do: doInvalidateRegion, Context: 2, Region: region})
		p.a.must(order{Do: doWrite, Context: 3, Parts: mine(200, 100), Far: at(p.b.memory, 200)})
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 100), failure(nd.RequestRead, 1, nd.DataChecksumError),
			failure(nd.RequestInvalidate, 2, nd.Canceled), failure(nd.RequestWrite, 3, nd.Canceled))
		if p.b.sum(0, 200, 100) != before {
			t.Error("the Write after the Read has run")
		}
	})
}

// TestChecksBeforeEnd: the end of the connection revokes the token. The peer refuses the Write after the Read.
func TestChecksBeforeEnd(t *testing.T) {
	onCheckedReads(t, time.Hour, []setup{{Executors: [2]Executor{Target, Target}}}, func(t *testing.T, p *pair, _ int, d nd.WindowDescriptor) {
		p.a.must(order{Do: doWrite, Context: 1, Parts: mine(0, 100), Far: d}) // the token is of another adapter
		p.a.expect(initiatorQueue, lateWrite, checkedRead, failure(nd.RequestWrite, 1, nd.AccessViolation))
	})
}

// TestChecksAfterEnd: the data of a Read may arrive when the end of the connection has revoked its token. The result then
// blames no token.
func TestChecksAfterEnd(t *testing.T) {
	onCheckedReads(t, time.Hour, faultSetups(), func(t *testing.T, p *pair, _ int, _ nd.WindowDescriptor) {
		ep := p.a.endpointAt(0).(*queuePair)
		p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
		p.a.must(order{Do: doSend, Context: 1, Parts: mine(0, 8)})
		p.b.expect(receiveQueue, success(nd.RequestReceive, 0, 8))
		ep.mu.Lock()
		ep.revokeBound()
		ep.mu.Unlock()
		if err := ep.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.a.expect(initiatorQueue, lateWrite, failure(nd.RequestRead, 0, nd.Canceled), failure(nd.RequestSend, 1, nd.Canceled))
	})
}
