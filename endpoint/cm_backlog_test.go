package endpoint

import (
	"context"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A listener without a limit of the program has one: peers could make its process run out of memory.
func TestBacklogIsBounded(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	for backlog, want := range map[int]int{0: maxBacklog, 1: 1, maxBacklog: maxBacklog, maxBacklog + 1: maxBacklog} {
		l := must(p.a.adapter.CreateListener(t.Context())).(*listener)
		if err := l.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			t.Fatal(err)
		}
		if err := l.Listen(backlog); err != nil || l.backlog != want {
			t.Errorf("backlog %d: %d requests may wait, %v; want %d", backlog, l.backlog, err, want)
		}
		l.queue = make([]*connection, want)
		if !l.isFull() {
			t.Errorf("backlog %d: not full with %d requests", backlog, want)
		}
		l.queue = nil
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A request that finds the queue full takes the place of one that its sender has withdrawn, each time that this happens.
func TestBacklogForgetsWithdrawn(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	a, b := p.a, p.b
	addr := b.listen(2)
	queued := func(n uint64) func() bool {
		l := b.listener.(*listener)
		return func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.queue) == int(n) }
	}
	connect := func(ctx context.Context) (end <-chan error) {
		c, ep := a.newConnector(), a.newEndpoint()
		return soon(func() error { return c.Connect(ctx, ep, addr, nd.ConnectParams{}) })
	}
	wait := func() (withdraw func()) {
		ctx, cancel := context.WithCancel(a.ctx)
		end := connect(ctx)
		return func() { cancel(); wantStatus(t, <-end, nd.Canceled) }
	}
	for range 3 {
		var withdraw []func()
		for n := range uint64(2) {
			withdraw = append(withdraw, wait())
			proctest.Eventually(t, "the request is queued", queued(n+1))
		}
		wantStatus(t, a.newConnector().Connect(a.ctx, a.newEndpoint(), addr, nd.ConnectParams{}), nd.ConnectionRefused)
		for _, w := range withdraw {
			w()
		}
		end, isQueued := connect(a.ctx), queued(1)
		proctest.Eventually(t, "the request is queued or refused", func() bool { return isQueued() || len(end) > 0 })
		if !isQueued() { // the listener searches at every second request that finds a queue of two full
			wantStatus(t, <-end, nd.ConnectionRefused)
			connect(a.ctx)
			proctest.Eventually(t, "the next request is queued", isQueued)
		}
		b.request()
	}
}
