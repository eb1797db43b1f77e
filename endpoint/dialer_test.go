package endpoint

import (
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// dialer is one side of a connection test.
type dialer struct {
	t *testing.T
	*side
}

// strangersPair returns two members that have no connection, and the address at which the second
// one listens.
func strangersPair(t *testing.T) (a, b dialer, addr netip.AddrPort) {
	t.Helper()
	p := newPair(t, setup{Unwired: true, Both: sideOptions{DisconnectTimeout: proctest.Timeout, Options: Options{ReceiveTimeout: proctest.Timeout}}})
	a, b = dialer{t, p.a.local}, dialer{t, p.b.local}
	return a, b, b.listen(0)
}

func (d dialer) listen(backlog int) netip.AddrPort {
	d.t.Helper()
	r := d.execute(order{Do: doListen, N: backlog})
	if r.Status != nd.Success {
		d.t.Fatal(r.Text)
	}
	return r.Addr
}

// connector returns another connector, which is closed when the test ends.
func (d dialer) connector() nd.Connector {
	d.t.Helper()
	c, err := d.adapter.CreateConnector(d.ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	d.connectors = append(d.connectors, c)
	d.mu.Unlock()
	return c
}

// endpoint returns another endpoint.
func (d dialer) endpoint() nd.Endpoint {
	d.t.Helper()
	r := d.execute(order{Do: doEndpoint})
	if r.Status != nd.Success {
		d.t.Fatal(r.Text)
	}
	return d.side.endpoint(r.N)
}

// request waits for a connection request.
func (d dialer) request() nd.Connector {
	d.t.Helper()
	c := d.connector()
	d.good(d.listener.GetConnectionRequest(d.ctx, c))
	return c
}

func (d dialer) good(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// soon runs a blocking call in the background.
func soon(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// wire connects two new endpoints.
func connectEndpoints(a, b dialer, addr netip.AddrPort) (ca, cb nd.Connector, ea, eb nd.Endpoint) {
	a.t.Helper()
	ca, ea, eb = a.connector(), a.endpoint(), b.endpoint()
	limits := nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16}
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, limits) })
	cb = b.request()
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, limits) })
	a.good(<-connected)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
	return ca, cb, ea, eb
}

// listenerOf returns the side's listener, and creates it if there is none.
func (d dialer) listenerOf() nd.Listener {
	if d.side.listener == nil {
		d.listen(0)
	}
	return d.side.listener
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
