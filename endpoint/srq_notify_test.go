package endpoint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// unusedQueue is a shared receive queue without endpoints, with some receives.
func unusedQueue(t *testing.T, cfg nd.SharedReceiveQueueConfig, receives int) (*side, *sharedReceiveQueue) {
	t.Helper()
	p := newSide(t, newArena(t), "owner", sideOptions{Shared: &cfg}, false)
	for i := range receives {
		p.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, 8)})
	}
	return p, p.shared.(*sharedReceiveQueue)
}

// background starts a call that blocks, and waits until it does.
func background(t *testing.T, p *Provider, call func() error) <-chan error {
	t.Helper()
	waiting := p.waiters.Waiting
	before, done := waiting(), make(chan error, 1)
	go func() { done <- call() }()
	proctest.Eventually(t, "the call waits", func() bool { return waiting() > before || len(done) > 0 })
	return done
}

func stillWaits(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("the call has returned (%v)", err)
	case <-time.After(2 * time.Millisecond): // most errors show in this time
	}
}

// TestSharedReceiveNotify: it returns when messages leave fewer receives than the threshold, and
// not before; one event ends all waiting calls.
func TestSharedReceiveNotify(t *testing.T) {
	for _, processes := range []bool{false, true} {
		p := newPair(t, setup{Processes: processes, Shared: &nd.SharedReceiveQueueConfig{Threshold: 4}, Peers: 2})
		q := p.queue()
		for i := range uint64(6) {
			p.a.must(order{Do: doReceive, Context: i, Parts: mine(0, 8)})
		}
		var calls [3]<-chan error
		for i := range calls {
			calls[i] = background(t, p.a.provider, func() error { return q.Notify(p.a.ctx) })
		}
		for i := range 3 {
			for _, c := range calls {
				stillWaits(t, c)
			}
			p.peers[i%2].must(order{Do: doSend, Parts: mine(0, 8)})
			p.a.results(receiveQueue, 1)
		}
		for _, c := range calls {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
		if err := q.Notify(p.a.ctx); err != nil { // there are still too few
			t.Error(err)
		}
		p.a.must(order{Do: doReceive, Parts: mine(0, 8)})
		stillWaits(t, background(t, p.a.provider, func() error { return q.Notify(p.a.ctx) }))
	}
}

// TestSharedReceiveNotifyLosesNoEvent: a call that checks only after receives were posted again sees
// the event.
func TestSharedReceiveNotifyLosesNoEvent(t *testing.T) {
	s, q := unusedQueue(t, nd.SharedReceiveQueueConfig{Threshold: 2}, 2)
	call := background(t, s.provider, func() error { return q.Notify(s.ctx) })
	q.mu.Lock()
	q.head++ // a message takes a receive
	event := q.countLow(false)
	q.tail++ // and the program posts another one before the call checks
	q.mu.Unlock()
	if !event {
		t.Fatal("no event")
	}
	s.provider.waiters.Wake()
	if err := <-call; err != nil {
		t.Error(err)
	}
}

func TestSharedReceiveNotifyEnds(t *testing.T) {
	s, q := unusedQueue(t, nd.SharedReceiveQueueConfig{}, 1) // with a threshold of 0 there are no events
	ctx, cancel := context.WithCancel(s.ctx)
	call := background(t, s.provider, func() error { return q.Notify(ctx) })
	other := background(t, s.provider, func() error { return q.Notify(s.ctx) })
	stillWaits(t, call)
	cancel()
	err := <-call
	if wantStatus(t, err, nd.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("the error does not name its cause: %v", err)
	}
	if err := q.Modify(0, 2); err != nil { // there are too few receives from now on
		t.Error(err)
	}
	if err := <-other; err != nil {
		t.Error(err)
	}
	if err := q.Modify(0, 1); err != nil {
		t.Error(err)
	}
	call = background(t, s.provider, func() error { return q.Notify(s.ctx) })
	stillWaits(t, call)
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantStatus(t, <-call, nd.Canceled)
	wantStatus(t, q.Notify(s.ctx), nd.Canceled)
	wantStatus(t, q.Receive(1, nd.SGL{}), nd.InvalidHandle)
	wantStatus(t, q.Modify(0, 0), nd.InvalidHandle)
}

// TestSharedReceiveModify keeps the receives in order, and changes nothing when it fails.
func TestSharedReceiveModify(t *testing.T) {
	p := newPair(t, setup{Shared: &nd.SharedReceiveQueueConfig{Depth: 4}})
	q := p.queue()
	post := func(context, n int) {
		for i := range n {
			p.a.must(order{Do: doReceive, Context: uint64(context + i), Parts: mine(context+i, 1)})
		}
	}
	take := func(context, n int) {
		for i := range n {
			p.b.must(order{Do: doSend, Parts: mine(i, 1)})
			p.a.expect(receiveQueue, success(nd.RequestReceive, uint64(context+i), 1))
			p.b.results(initiatorQueue, 1)
		}
	}
	post(0, 4)
	take(0, 3)
	post(4, 3) // the oldest is not at the start of the ring now
	wantStatus(t, q.Receive(9, nd.SGL{}), nd.NoMoreEntries)
	wantStatus(t, q.Modify(3, 0), nd.BufferOverflow)
	wantStatus(t, q.Modify(-1, 0), nd.InvalidParameter)
	wantStatus(t, q.Modify(maxSharedDepth+1, 0), nd.InvalidParameter)
	wantStatus(t, q.Modify(0, 5), nd.InvalidParameter)
	wantStatus(t, q.Modify(5, -1), nd.InvalidParameter)
	wantStatus(t, q.Receive(9, nd.SGL{}), nd.NoMoreEntries)
	if err := q.Modify(5, 0); err != nil {
		t.Fatal(err)
	}
	post(7, 1)
	wantStatus(t, q.Receive(9, nd.SGL{}), nd.NoMoreEntries)
	if err := q.Modify(maxSharedDepth, 1); err != nil {
		t.Fatal(err)
	}
	post(8, 100)
	take(3, 104)
	if err := q.Modify(1, 0); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.Receive(9, nd.SGL{}), nd.NoMoreEntries) // the one of context 107 is queued
	take(107, 1)
}

func TestSharedReceiveParameters(t *testing.T) {
	s, q := unusedQueue(t, nd.SharedReceiveQueueConfig{}, 0)
	info, err := s.adapter.Query()
	if err != nil || info.MaxSharedReceiveQueueDepth != 4096 {
		t.Errorf("the adapter shows a depth of %d, %v", info.MaxSharedReceiveQueueDepth, err)
	}
	for _, c := range []struct {
		cfg  nd.SharedReceiveQueueConfig
		want nd.Status
	}{
		{nd.SharedReceiveQueueConfig{}, nd.Success},
		{nd.SharedReceiveQueueConfig{Depth: 4096, MaxSGE: 16, Threshold: 4096}, nd.Success},
		{nd.SharedReceiveQueueConfig{Depth: -1}, nd.InvalidParameter},
		{nd.SharedReceiveQueueConfig{Depth: 4097}, nd.InvalidParameter},
		{nd.SharedReceiveQueueConfig{MaxSGE: -1}, nd.InvalidParameter},
		{nd.SharedReceiveQueueConfig{MaxSGE: 17}, nd.InvalidParameter},
		{nd.SharedReceiveQueueConfig{Threshold: -1}, nd.InvalidParameter},
		{nd.SharedReceiveQueueConfig{Depth: 8, Threshold: 9}, nd.InvalidParameter},
	} {
		_, err := s.adapter.CreateSharedReceiveQueue(s.ctx, c.cfg)
		wantStatus(t, err, c.want)
	}

	other, err := s.provider.OpenAdapter(s.ctx, s.provider.adapterID())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*nd.EndpointConfig){
		"":                func(c *nd.EndpointConfig) { c.ReceiveDepth, c.MaxReceiveSGE = -1, 1<<20 }, // ignored
		"ReceiveCQ":       func(c *nd.EndpointConfig) { c.ReceiveCQ = nil },
		"InitiatorCQ":     func(c *nd.EndpointConfig) { c.InitiatorCQ = nil },
		"SharedReceive":   func(c *nd.EndpointConfig) { c.SharedReceive = foreign },
		"InitiatorDepth":  func(c *nd.EndpointConfig) { c.InitiatorDepth = maxQueueDepth + 1 },
		"MaxInitiatorSGE": func(c *nd.EndpointConfig) { c.MaxInitiatorSGE = maxSGE + 1 },
		"InlineSize":      func(c *nd.EndpointConfig) { c.InlineSize = -1 },
	} {
		cfg := nd.EndpointConfig{ReceiveCQ: s.queues[receiveQueue], InitiatorCQ: s.queues[initiatorQueue], SharedReceive: q}
		change(&cfg)
		ep, err := s.adapter.CreateEndpoint(s.ctx, cfg)
		switch op, ok := errors.AsType[*nd.OpError](err); {
		case err == nil:
			defer ep.Close()
			fallthrough
		case !ok || op.Status != nd.InvalidParameter || op.Field != name:
			if err != nil || name != "" {
				t.Errorf("an invalid %q: %v", name, err)
			}
		}
	}
	wantStatus(t, s.endpointAt(0).Receive(1, nd.SGL{}), nd.InvalidDeviceRequest)
	wantStatus(t, q.Receive(1, nd.List(make([]nd.SGE, minSGE+1)...)), nd.DataOverrun)
	group, mask, err := q.NotifyAffinity()
	if err != nil || group != 0 || mask == 0 {
		t.Errorf("processors %#x of group %d, %v", mask, group, err)
	}
}

// TestSharedReceiveQueueServesAfterClose: it serves its endpoints until they are closed, and no
// new ones.
func TestSharedReceiveQueueServesAfterClose(t *testing.T) {
	p := newPair(t, shared(setup{}, 1))
	q, s := p.queue(), p.a
	p.a.must(order{Do: doReceive, Context: 1, Parts: mine(0, 100_000)})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.adapter.CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: s.queues[0], InitiatorCQ: s.queues[0], SharedReceive: q})
	wantStatus(t, err, nd.InvalidParameter)
	p.b.must(order{Do: doSend, Context: 1, Parts: mine(0, 100_000)})
	p.a.expect(receiveQueue, success(nd.RequestReceive, 1, 100_000))
	p.b.expect(initiatorQueue, success(nd.RequestSend, 1, 100_000))
}

// TestSharedReceiveAfterProviderClose: calls do not access an arena that may be unmapped.
func TestSharedReceiveAfterProviderClose(t *testing.T) {
	s, q := unusedQueue(t, nd.SharedReceiveQueueConfig{}, 0)
	call := background(t, s.provider, func() error { return q.Notify(s.ctx) })
	if err := s.provider.Close(); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, <-call, nd.Canceled)
	wantStatus(t, q.Receive(1, nd.SGL{}), nd.InvalidHandle)
}
