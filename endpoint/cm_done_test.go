package endpoint

import (
	"errors"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestDone: every kind of end closes Done, at an endpoint whose program neither polls nor waits
// nor posts receives.
func TestDone(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *pair)
		want nd.Status
	}{
		"the peer closes its endpoint": {func(p *pair) { p.b.must(order{Do: doCloseEndpoint}) }, nd.ConnectionAborted},
		"the peer disconnects":         {func(p *pair) { p.b.start(order{Do: doDisconnect}) }, nd.ConnectionDisconnected},
		"the peer flushes":             {func(p *pair) { p.b.must(order{Do: doFlush}) }, nd.ConnectionAborted},
		"the endpoint is flushed":      {func(p *pair) { p.a.must(order{Do: doFlush}) }, nd.Canceled},
		"the endpoint is closed":       {func(p *pair) { p.a.must(order{Do: doCloseEndpoint}) }, nd.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []setup{{}, {Processes: true}} {
				t.Run(s.String(), func(t *testing.T) {
					p := newPair(t, shared(s, 1))
					ep := p.a.endpointAt(0)
					if isClosed(ep.Done()) || ep.Err() != nil {
						t.Fatalf("a connected endpoint is done: %v", ep.Err())
					}
					c.end(p)
					wantDone(t, ep, c.want)
				})
			}
		})
	}
	t.Run("the peer dies", func(t *testing.T) {
		p := newPair(t, shared(setup{Processes: true}, 1))
		ep := p.a.endpointAt(0)
		p.b.process.kill()
		wantDone(t, ep, nd.ConnectionAborted)
	})
}

// wantDone waits for the end of an endpoint, and checks its cause.
func wantDone(t *testing.T, ep nd.Endpoint, want nd.Status) {
	t.Helper()
	proctest.Receive(t, "Done is closed", ep.Done())
	if err := ep.Err(); !errors.Is(err, want) {
		t.Errorf("Done is closed, and Err is %v, not %v", err, want)
	}
}

// TestEndpointConnector: Endpoint.Connector returns the connector of the connection, and nil
// before.
func TestEndpointConnector(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	if c := a.newEndpoint().Connector(); c != nil {
		t.Errorf("an idle endpoint has the connector %v", c)
	}
	ca, cb, ea, eb := connectEndpoints(a, b, addr)
	if ea.Connector() != ca || eb.Connector() != cb {
		t.Errorf("connected by %p and %p, not by %p and %p", ea.Connector(), eb.Connector(), ca, cb)
	}
	ended := soon(func() error { return eb.Connector().NotifyDisconnect(t.Context()) })
	a.good(ea.Close())
	b.good(<-ended)
	if eb.Connector() != cb {
		t.Error("the connector is gone with the connection")
	}
}
