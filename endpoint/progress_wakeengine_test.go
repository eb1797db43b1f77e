package endpoint

import (
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// TestEndedWaitWakesEngine ends a wait that was woken but could not drive an endpoint, because another
// goroutine held it. The ring that woke it did not reach the engine, so the wait has to ring the
// engine's doorbell.
func TestEndedWaitWakesEngine(t *testing.T) {
	p := newPair(t, setup{})
	b := p.b.local.provider
	b.engine.stop()
	ep := p.b.local.endpoint(0).(*queuePair)
	var over atomic.Bool
	done := make(chan error)
	go func() { done <- b.WaitFor(t.Context(), statuspage.Call{Op: "test"}, over.Load) }()
	proctest.Eventually(t, "the wait sleeps", func() bool { return b.waiters.Sleeping() == 1 })
	ep.mu.Lock()
	ep.uncompleted.Store(1) // so that a wait checks it
	b.engine.bell.Arm()
	over.Store(true)
	b.waiters.Wake()
	err := <-done
	ep.uncompleted.Store(0)
	ep.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if b.engine.bell.Armed() {
		t.Error("the wait has ended without a check of the endpoint, and the engine still sleeps")
		b.engine.bell.Disarm()
	}
}

// TestEndedWaitLeavesTransferToEngine ends a wait in the middle of a transfer that this side executes. The peer
// has rung only for that wait, so the wait has to ring the engine's doorbell.
func TestEndedWaitLeavesTransferToEngine(t *testing.T) {
	const n = 8 * quantum
	p := newPair(t, setup{Private: [2]bool{false, true}, Both: sideOptions{Size: n}})
	b := p.b.local.provider
	ep := p.b.local.endpoint(0).(*queuePair)
	b.engine.stop()
	b.engine.bell.Arm()
	begun := func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		return ep.resp.fragmentCopied > 0
	}
	done := make(chan error)
	go func() { done <- b.WaitFor(t.Context(), statuspage.Call{Op: "test"}, begun) }()
	proctest.Eventually(t, "the wait sleeps", func() bool { return b.waiters.Sleeping() == 1 })
	p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: p.b.memory})
	if err := proctest.Receive(t, "the wait ends", done); err != nil {
		t.Fatal(err)
	}
	if b.engine.bell.Armed() {
		t.Error("the wait has ended in the middle of a transfer, and the engine still sleeps")
		b.engine.bell.Disarm()
	}
	for b.progressAll() != noProgress { // the engine is stopped
	}
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, n))
}
