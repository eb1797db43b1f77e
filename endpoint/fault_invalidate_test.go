package endpoint

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/mode/fault"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// traces are what an invalidation in the middle of a transfer leaves at both sides.
type traces struct {
	Initiator, Receive   nd.Status // of the results
	InitiatorErr, Err    nd.Status // of both endpoints
	HeadCopied, TailSame bool
	OldToken             nd.Status // of a Write with it, on another endpoint
	Rebind               nd.Status // of the window, on another endpoint
	Refused              uint64    // accesses, as the initiator counts them; the responder counts only those that it runs itself
}

// TestFaultInvalidateLooksLikeInvalidate compares the action invalidate with an Invalidate of the target at the same byte.
func TestFaultInvalidateLooksLikeInvalidate(t *testing.T) {
	const n, k = 3 * window.ChunkSize, window.ChunkSize + 34_467 // in the second chunk
	for _, operation := range []string{"write", "read"} {
		t.Run(operation, func(t *testing.T) {
			runEach(t, faultSetups(), func(t *testing.T, s setup) {
				real := tracesOf(t, s, operation, n, k, faults.Rule{Action: "delay", Delay: time.Hour})
				emulated := tracesOf(t, s, operation, n, k, faults.Rule{Action: "invalidate"})
				if real != emulated || real.Initiator != nd.AccessViolation || !real.HeadCopied || !real.TailSame {
					t.Errorf("Invalidate:\n%+v\nthe action:\n%+v", real, emulated)
				}
			})
		})
	}
}

// tracesOf posts a transfer of n bytes and invalidates its window after k bytes. If the rule is a delay, the target does so.
func tracesOf(t *testing.T, s setup, operation string, n, k int, rule faults.Rule) (seen traces) {
	t.Helper()
	var later atomic.Bool // the delay is over
	fault.Now = func() (now time.Time) {
		if now = time.Now(); later.Load() {
			now = now.Add(rule.Delay)
		}
		return now
	}
	t.Cleanup(func() { fault.Now = time.Now }) // when the pair is closed
	rule.After = uint64(k)
	s.Unwired, s.Both.Size = true, n
	p := newFaultyPair(t, s, []faults.Rule{on(operation, rule)}, nil)
	at := p.b.listen(0)
	p.connect(at)
	other := p.addEndpoints(at)
	from, to := p.a, p.b
	if operation == "read" {
		from, to = p.b, p.a
	}
	from.fill(0, 0, n, 1)
	to.fill(0, 0, n, 2)
	tail := to.sum(0, k, n-k)
	mw := p.b.must(order{Do: doWindow}).N
	far := p.b.must(order{Do: doBind, Window: mw, Len: n, Flags: nd.AllowRead | nd.AllowWrite}).Far
	p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
	p.b.must(order{Do: doReceive, Parts: mine(0, 8)})

	do := map[string]verb{"write": doWrite, "read": doRead}[operation]
	p.a.must(order{Do: do, Parts: mine(0, n), Far: far})
	if rule.Action == "delay" {
		proctest.Eventually(t, "the transfer pauses", func() bool {
			p.a.nothing(initiatorQueue) // drives it
			p.b.nothing(initiatorQueue)
			return to.sum(0, 0, k) == from.sum(0, 0, k)
		})
		p.b.must(order{Do: doInvalidate, Window: mw})
		p.b.expect(initiatorQueue, success(nd.RequestInvalidate, 0, 0))
		later.Store(true)
	}
	seen.Initiator = p.a.results(initiatorQueue, 1)[0].Status
	seen.Receive = p.b.results(receiveQueue, 1)[0].Status
	for _, side := range []*side{p.a, p.b} {
		proctest.Eventually(t, side.name+" has ended", func() bool { return isClosed(side.endpointAt(0).Done()) })
	}
	seen.InitiatorErr, seen.Err = p.a.do(order{Do: doWhy}).Status, p.b.do(order{Do: doWhy}).Status
	seen.HeadCopied = to.sum(0, 0, k) == from.sum(0, 0, k)
	seen.TailSame = to.sum(0, k, n-k) == tail
	p.b.must(order{Do: doBind, Endpoint: other, Window: mw, Len: 8, Flags: nd.AllowWrite})
	seen.Rebind = p.b.results(initiatorQueue, 1)[0].Status
	p.a.must(order{Do: doWrite, Endpoint: other, Parts: mine(0, 8), Far: far})
	seen.OldToken = p.a.results(initiatorQueue, 1)[0].Status
	seen.Refused = p.a.endpointAt(0).(*queuePair).Stats().AccessesRefused
	return seen
}
