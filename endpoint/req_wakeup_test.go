package endpoint

import (
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestRingSlotsWakeSleepingRequester lets a request sleep because the ring is full. It wakes when the peer has released slots, even if
// the peer consumes few entries at a time.
func TestRingSlotsWakeSleepingRequester(t *testing.T) {
	const slots = 64
	p := newPair(t, setup{Both: sideOptions{InitiatorDepth: slots, ReceiveDepth: 2 * slots}})
	a, b := p.a, p.b
	a.provider.engine.stop() // so that only this test takes results and makes progress
	b.provider.engine.stop()
	for i := range uint64(slots) {
		p.b.must(order{Do: doReceive, Context: i, Parts: mine(0, 8)})
		p.a.must(order{Do: doSend, Context: i, Parts: mine(0, 8)})
		p.a.expect(initiatorQueue, success(nd.RequestSend, i, 8))
	}
	p.a.must(order{Do: doWrite, Context: slots, Parts: mine(0, 8), Far: p.b.memory}) // behind the entries in the ring
	ctx := proctest.Context(t)
	done := make(chan error)
	go func() {
		var results [1]nd.Result
		_, err := a.queues[initiatorQueue].Wait(ctx, results[:])
		done <- err
	}()
	ep := a.endpointAt(0).(*queuePair)
	proctest.Eventually(t, "the Write sleeps", func() bool { return a.provider.waiters.Sleeping() == 1 && ep.localQP.NeedWakeup.Load() == 1 })
	bell := a.member.WaitDoorbell()
	before := bell.Arm() // it is armed, because the Write sleeps
	var one [1]nd.Result
	if n := b.queues[receiveQueue].Poll(one[:]); n != 1 {
		t.Fatalf("%d messages", n)
	}
	if bell.Arm() == before {
		t.Error("the peer has released slots, and the doorbell has not rung")
	}
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			b.queues[receiveQueue].Poll(one[:]) // the rest of the messages, and the Write
		}
	}
}
