package endpoint

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// link makes and ends connections.
func (s *side) link(ctx context.Context, o order, r *reply) (err error) {
	params := nd.ConnectParams{InboundReadLimit: o.In, OutboundReadLimit: o.Out, PrivateData: o.Data}
	switch o.Do {
	case doListen:
		return s.startListener(ctx, o, r)
	case doAccept:
		c := s.connectorAt(o.Endpoint)
		if err := s.listener.GetConnectionRequest(ctx, c); err != nil {
			return err
		}
		return c.Accept(ctx, s.endpointAt(o.Endpoint), params)
	case doConnect:
		return s.connectorAt(o.Endpoint).Connect(ctx, s.endpointAt(o.Endpoint), o.Addr, params)
	case doComplete:
		return s.connectorAt(o.Endpoint).CompleteConnect(ctx)
	case doNotify:
		return s.connectorAt(o.Endpoint).NotifyDisconnect(ctx)
	case doDisconnect:
		return s.connectorAt(o.Endpoint).Disconnect(ctx)
	case doCloseLink:
		return s.connectorAt(o.Endpoint).Close()
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

func (s *side) startListener(ctx context.Context, o order, r *reply) (err error) {
	if s.listener, err = s.adapter.CreateListener(ctx); err != nil {
		return err
	}
	addrs, err := s.adapter.QueryAddressList()
	if err != nil {
		return err
	}
	if err := s.listener.Bind(netip.AddrPortFrom(addrs[0], o.Addr.Port())); err != nil {
		return err
	}
	if err := s.listener.Listen(o.N); err != nil {
		return err
	}
	r.Addr, err = s.listener.LocalAddress()
	return err
}

// unconnectedPair returns two members that have no connection, and the address at which the second
// one listens.
func unconnectedPair(t *testing.T) (a, b *side, addr netip.AddrPort) {
	t.Helper()
	p := newPair(t, setup{Unwired: true, Both: sideOptions{DisconnectTimeout: proctest.Timeout, Options: Options{ReceiveTimeout: proctest.Timeout}}})
	return p.a, p.b, p.b.listen(0)
}

func (s *side) listen(backlog int) netip.AddrPort {
	s.t.Helper()
	return s.must(order{Do: doListen, N: backlog}).Addr
}

// connector returns another connector, which is closed when the test ends.
func (s *side) newConnector() nd.Connector {
	s.t.Helper()
	c, err := s.adapter.CreateConnector(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.connectors = append(s.connectors, c)
	s.mu.Unlock()
	return c
}

// endpoint returns another endpoint.
func (s *side) newEndpoint() nd.Endpoint {
	s.t.Helper()
	return s.endpointAt(s.must(order{Do: doEndpoint}).N)
}

// request waits for a connection request.
func (s *side) request() nd.Connector {
	s.t.Helper()
	c := s.newConnector()
	s.good(s.listener.GetConnectionRequest(s.ctx, c))
	return c
}

func (s *side) good(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// soon runs a blocking call in the background.
func soon(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// wire connects two new endpoints.
func connectEndpoints(a, b *side, addr netip.AddrPort) (ca, cb nd.Connector, ea, eb nd.Endpoint) {
	a.t.Helper()
	ca, ea, eb = a.newConnector(), a.newEndpoint(), b.newEndpoint()
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
func (s *side) listenerOf() nd.Listener {
	if s.listener == nil {
		s.listen(0)
	}
	return s.listener
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func (s *side) address() netip.Addr { return Address(0, s.member.ID()) }

func (s *side) create(change func(*nd.EndpointConfig)) error {
	cfg := nd.EndpointConfig{ReceiveCQ: s.queues[0], InitiatorCQ: s.queues[0]}
	change(&cfg)
	_, err := s.adapter.CreateEndpoint(s.ctx, cfg)
	return err
}

func (s *side) newListener() nd.Listener {
	listener := must(s.adapter.CreateListener(s.ctx))
	s.t.Cleanup(func() { listener.Close() })
	return listener
}

func (s *side) dial(to string) error {
	return s.newConnector().Connect(s.ctx, s.endpoints[0], netip.MustParseAddrPort(to), nd.ConnectParams{})
}
