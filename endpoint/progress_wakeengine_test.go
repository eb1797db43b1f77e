package endpoint

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestEndedWaitWakesEngine ends a wait that was woken but could not drive an endpoint, because another
// goroutine held it. The ring that woke it did not reach the engine, so the wait has to ring the
// engine's doorbell.
func TestEndedWaitWakesEngine(t *testing.T) {
	p := newPair(t, setup{})
	b := p.b.provider
	b.engine.stop()
	ep := p.b.endpointAt(0).(*queuePair)
	var over atomic.Bool
	done := make(chan error)
	go func() { done <- b.WaitFor(t.Context(), statuspage.Call{Op: "test"}, over.Load) }()
	proctest.Eventually(t, "the wait sleeps", func() bool { return b.waiters.Sleeping() == 1 })
	ep.mu.Lock()
	ep.uncompleted.Store(1) // so that a wait checks it
	asleep := pretendSleep(b)
	over.Store(true)
	b.waiters.Wake()
	err := <-done
	ep.uncompleted.Store(0)
	ep.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if asleep() {
		t.Error("the wait has ended without a check of the endpoint, and the engine still sleeps")
	}
}

// pretendSleep announces that the engine, which is stopped, sleeps. asleep ends that, and reports whether it would still sleep.
func pretendSleep(p *Provider) (asleep func() bool) {
	e := &p.engine
	e.asleep.Store(true)
	ticket := e.bell.Arm()
	return func() bool {
		now := e.bell.Arm()
		e.bell.Disarm()
		e.asleep.Store(false)
		return now == ticket
	}
}

// TestClearedDoorbell: another process clears the words that say that this one sleeps. Close and a wait whose context ends
// do not depend on them.
func TestClearedDoorbell(t *testing.T) {
	for name, end := range map[string]func(p *Provider, cancel func(), waited <-chan error) error{
		"Close": func(p *Provider, _ func(), waited <-chan error) error {
			err := p.Close()
			<-waited
			return err
		},
		"cancel": func(_ *Provider, cancel func(), waited <-chan error) error {
			cancel()
			if err := <-waited; !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the wait returns %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newUnconnected(t).provider
			proctest.Eventually(t, "the engine sleeps", p.engine.bell.Armed)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waited := soon(func() error { return p.WaitFor(ctx, statuspage.Call{Op: "test"}, func() bool { return false }) })
			proctest.Eventually(t, "the wait sleeps", p.waiters.IsArmed)
			p.engine.bell.Disarm()
			p.member.WaitDoorbell().Disarm()
			err := proctest.Receive(t, "the call returns", soon(func() error { return end(p, cancel, waited) }))
			wantStatus(t, err, nd.Success)
		})
	}
}

// TestEndedWaitLeavesTransferToEngine ends a wait in the middle of a transfer that this side executes. The peer
// has rung only for that wait, so the wait has to ring the engine's doorbell.
func TestEndedWaitLeavesTransferToEngine(t *testing.T) {
	const n = 8 * quantum
	p := newPair(t, setup{Private: [2]bool{false, true}, Both: sideOptions{Size: n}})
	b := p.b.provider
	ep := p.b.endpointAt(0).(*queuePair)
	b.engine.stop()
	asleep := pretendSleep(b)
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
	if asleep() {
		t.Error("the wait has ended in the middle of a transfer, and the engine still sleeps")
	}
	for b.progressAll() != noProgress { // the engine is stopped
	}
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, n))
}
