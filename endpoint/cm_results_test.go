package endpoint

import (
	"context"
	"errors"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// foreignQueue is a queue of another provider to nd.WaitOne: it has no WaitEndpoint.
type foreignQueue struct{ nd.CompletionQueue }

// TestResultsEndWithThePeersDisconnect: nd.Results yields every message that the peer has sent before it
// disconnects, and then ends, although a receive is still posted. This side can then disconnect, too.
func TestResultsEndWithThePeersDisconnect(t *testing.T) {
	t.Parallel()
	const large = quantum/2 + smallTransfer // two are more than a call of progress transfers
	for _, s := range everySetup(setup{Both: sideOptions{DisconnectTimeout: proctest.Timeout, Size: large}}) {
		for _, foreign := range []bool{false, true} {
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				sizes := []int{0, 8, 4000, large, large, 1}
				for i, n := range append(sizes, 8) {
					p.a.must(order{Do: doReceive, Context: uint64(i + 1), Parts: mine(0, n)})
				}
				q := p.a.queues[receiveQueue]
				if foreign {
					q = foreignQueue{q}
				}
				type ending struct {
					sizes []int
					err   error
				}
				ended := make(chan ending, 1)
				go func() {
					var e ending
					for r, err := range nd.Results(proctest.Context(t), q, p.a.endpointAt(0)) {
						if e.err = err; err == nil {
							e.sizes = append(e.sizes, int(r.BytesTransferred))
						}
					}
					ended <- e
				}()
				for _, n := range sizes {
					p.b.must(order{Do: doSend, Parts: mine(0, n)})
				}
				p.b.results(initiatorQueue, len(sizes))
				left := p.b.start(disconnect)
				e := proctest.Receive(t, "Results ends", ended)
				if len(e.sizes) != len(sizes) || !errors.Is(e.err, nd.ConnectionDisconnected) {
					t.Errorf("messages of %v bytes, then %v; want %v bytes and the disconnect", e.sizes, e.err, sizes)
				}
				if _, err := nd.WaitOne(t.Context(), q, p.a.endpointAt(0)); nd.StatusOf(err) != nd.ConnectionDisconnected {
					t.Errorf("WaitOne after the end: %v", err)
				}
				p.a.must(disconnect)
				if r := <-left; r.Status != nd.Success {
					t.Error(r.Text)
				}
				p.a.expect(receiveQueue, failure(nd.RequestReceive, uint64(len(sizes)+1), nd.Canceled))
			})
		}
	}
}

// TestWaitOneEndsWithEachEnd: WaitOne returns the canceled receive first, then the cause of the end.
func TestWaitOneEndsWithEachEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(p *pair)
		want nd.Status
	}{
		"the peer closes its endpoint": {func(p *pair) { p.b.must(order{Do: doCloseEndpoint}) }, nd.ConnectionAborted},
		"the peer flushes":             {func(p *pair) { p.b.must(order{Do: doFlush}) }, nd.ConnectionAborted},
		"the endpoint is flushed":      {func(p *pair) { p.a.must(order{Do: doFlush}) }, nd.Canceled},
		"both disconnect":              {func(p *pair) { p.goodEnd(p.a, p.b) }, nd.ConnectionDisconnected},
		"a request fails":              {func(p *pair) { p.a.must(order{Do: doWrite, Parts: mine(0, 8)}) }, nd.AccessViolation},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []setup{{}, {Processes: true}, {Executors: [2]Executor{Target, Target}}} {
				t.Run(s.String(), func(t *testing.T) {
					p := newPair(t, s)
					p.a.must(order{Do: doReceive, Context: 7, Parts: mine(0, 8)})
					c.end(p)
					ep, q := p.a.endpointAt(0), p.a.queues[receiveQueue]
					ctx := proctest.Context(t)
					if r, err := nd.WaitOne(ctx, q, ep); r.RequestContext != 7 || r.Status != nd.Canceled {
						t.Errorf("the receive: %v, %v", r, err)
					}
					if r, err := nd.WaitOne(ctx, q, ep); r != (nd.Result{}) || nd.StatusOf(err) != nd.StatusOf(ep.Err()) || !errors.Is(err, c.want) {
						t.Errorf("after it: %v, %v, want %v", r, err, c.want)
					}
				})
			}
		})
	}
}

// TestWaitEndpointOfAnotherProvider: a queue does not wait for an endpoint that it cannot watch.
func TestWaitEndpointOfAnotherProvider(t *testing.T) {
	p := newPair(t, setup{})
	w := p.a.queues[receiveQueue].(nd.EndpointWaiter)
	for name, ep := range map[string]nd.Endpoint{"wrapped": struct{ nd.Endpoint }{p.a.endpointAt(0)}, "of the peer": p.b.endpointAt(0)} {
		if n, err := w.WaitEndpoint(context.Background(), make([]nd.Result, 1), ep); n != 0 || !errors.Is(err, nd.NotSupported) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}
