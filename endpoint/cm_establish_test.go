package endpoint

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestConnectorUnboundAfterFailure: after a failed Connect that may be repeated, the connector has no
// address. After a wrong argument nothing has changed.
func TestConnectorUnboundAfterFailure(t *testing.T) {
	a, _, addr := unconnectedPair(t)
	bound := netip.AddrPortFrom(Address(0, a.member.ID()), 77)
	ca, ea := a.newConnector(), a.newEndpoint()
	for to, want := range map[string]nd.Status{"10.1.2.3:5": nd.NetworkUnreachable, "127.77.7.7:5": nd.HostUnreachable, addr.Addr().String() + ":9": nd.ConnectionRefused} {
		a.good(ca.Bind(bound))
		if got := must(ca.LocalAddress()); got != bound {
			t.Errorf("bound to %v", got)
		}
		wantStatus(t, ca.Connect(a.ctx, ea, netip.MustParseAddrPort(to), nd.ConnectParams{}), want)
		_, err := ca.LocalAddress()
		wantStatus(t, err, nd.ConnectionInvalid)
		other := a.newConnector()
		a.good(other.Bind(bound))
		a.good(other.Close())
	}
	wantStatus(t, ca.Connect(a.ctx, ea, netip.AddrPort{}, nd.ConnectParams{}), nd.BadNetworkName)
	ea.Flush(a.ctx) // it cannot be connected after that
	wantStatus(t, ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}), nd.ConnectionActive)
	_, err := ca.LocalAddress()
	wantStatus(t, err, nd.ConnectionInvalid)
	a.good(ca.Bind(bound))
	wantStatus(t, ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}), nd.ConnectionActive)
	if got := must(ca.LocalAddress()); got != bound {
		t.Errorf("bound to %v after a wrong argument", got)
	}
}

// TestListenerPaused: a paused listener queues requests up to its backlog, and delivers none.
func TestListenerPaused(t *testing.T) {
	a, b, _ := unconnectedPair(t)
	l, fresh := must(b.adapter.CreateListener(b.ctx)), must(b.adapter.CreateListener(b.ctx))
	defer l.Close()
	defer fresh.Close()
	wantStatus(t, fresh.PauseEvents(true), nd.InvalidDeviceState)
	b.good(l.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)))
	wantStatus(t, l.PauseEvents(true), nd.InvalidDeviceState)
	b.good(l.Listen(2))
	b.good(l.PauseEvents(true))
	addr := must(l.LocalAddress())
	cb := b.newConnector()
	taken := soon(func() error { return l.GetConnectionRequest(b.ctx, cb) })
	proctest.Eventually(t, "the call waits", func() bool {
		x := l.(*listener)
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.calls) == 1
	})
	results := make(chan error, 3)
	for range 3 {
		go func() { results <- a.newConnector().Connect(a.ctx, a.newEndpoint(), addr, nd.ConnectParams{}) }()
	}
	wantStatus(t, <-results, nd.ConnectionRefused) // of one of the three
	select {
	case err := <-taken:
		t.Errorf("a paused listener hands out a request: %v", err)
	default:
	}
	b.good(l.PauseEvents(false))
	b.good(<-taken)
	b.good(cb.Reject(nil))
	wantStatus(t, <-results, nd.ConnectionRefused)
	b.good(l.Close())
	wantStatus(t, <-results, nd.ConnectionRefused)
	wantStatus(t, l.PauseEvents(true), nd.InvalidDeviceState)
}

// TestConnectorOfOtherAdapterHandle: a connector of another adapter handle cannot take a request.
func TestConnectorOfOtherAdapterHandle(t *testing.T) {
	_, b, _ := unconnectedPair(t)
	other := must(b.provider.OpenAdapter(b.ctx, b.provider.adapterID()))
	foreign := must(other.CreateConnector(b.ctx))
	defer foreign.Close()
	wantStatus(t, b.listener.GetConnectionRequest(b.ctx, foreign), nd.InvalidParameter)
	wantStatus(t, b.listener.GetConnectionRequest(b.ctx, nil), nd.InvalidParameter)
}

// TestConnectorClosedDuringAccept: a connector that is closed during Accept, before or after the
// connection is complete, does not get connected.
func TestConnectorClosedDuringAccept(t *testing.T) {
	for i := range 20 {
		a, b, addr := unconnectedPair(t)
		ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
		dialed := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
		cb := b.request()
		accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
		a.good(<-dialed)
		held := cb.(*connector)
		held.mu.Lock()
		closed := soon(cb.Close)
		completed := soon(func() error { return ca.CompleteConnect(a.ctx) })
		if i%2 == 0 { // Accept is about to return, but Close comes first
			proctest.Eventually(t, "the connection is up", func() bool { return eb.(*queuePair).state() == cm.QPConnected })
		}
		held.mu.Unlock()
		b.good(<-closed)
		if err := <-accepted; err != nil {
			wantStatus(t, err, nd.Canceled)
		}
		if err := <-completed; err == nil {
			a.good(ca.NotifyDisconnect(a.ctx))
		} else {
			wantStatus(t, err, nd.ConnectionAborted)
		}
		wantStatus(t, ea.Err(), nd.ConnectionAborted)
		if eb.Err() == nil {
			t.Error("the endpoint of a closed connector is up")
		}
	}
}

// TestEndpointClosedDuringDisconnect: the disconnect is not graceful then.
func TestEndpointClosedDuringDisconnect(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, cb, ea, _ := connectEndpoints(a, b, addr)
	ended := soon(func() error { return ca.Disconnect(a.ctx) })
	b.good(cb.NotifyDisconnect(b.ctx))
	a.good(ea.Close())
	wantStatus(t, <-ended, nd.ConnectionAborted)
	wantStatus(t, ca.Disconnect(a.ctx), nd.ConnectionInvalid)
}

// TestConnectorClosedDuringDisconnect: it is this side that has ended the disconnect.
func TestConnectorClosedDuringDisconnect(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, cb, _, _ := connectEndpoints(a, b, addr)
	ended := soon(func() error { return ca.Disconnect(a.ctx) })
	b.good(cb.NotifyDisconnect(b.ctx))
	a.good(ca.Close())
	wantStatus(t, <-ended, nd.Canceled)
}

// TestRejectAfterPeerIsGone: Reject fails if the peer is gone.
func TestRejectAfterPeerIsGone(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, ea := a.newConnector(), a.newEndpoint()
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
	cb := b.request()
	a.good(a.provider.Close())
	wantStatus(t, <-connected, nd.Canceled)
	wantStatus(t, cb.Reject([]byte("too late")), nd.ConnectionAborted)
}

// TestCreateEndpointDuringProviderClose: an endpoint is created before Provider.Close and closed by it, or
// it is not created.
func TestCreateEndpointDuringProviderClose(t *testing.T) {
	for range 10 {
		p := newPair(t, setup{Unwired: true})
		s := p.a
		var calls sync.WaitGroup
		made := make(chan nd.Endpoint, 1000)
		begun := make(chan struct{}, 1000)
		for range 3 {
			calls.Go(func() {
				for range cap(made) / 3 {
					ep, err := s.adapter.CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: s.queues[0], InitiatorCQ: s.queues[1], ReceiveDepth: 1, InitiatorDepth: 1})
					if err != nil {
						if !errors.Is(err, nd.InvalidHandle) && !errors.Is(err, nd.DeviceRemoved) {
							t.Error(err)
						}
						break
					}
					made <- ep
					begun <- struct{}{}
				}
			})
		}
		<-begun
		if err := s.provider.Close(); err != nil {
			t.Error(err)
		}
		calls.Wait()
		close(made)
		if left := *s.provider.endpoints.Load(); len(left) != 0 {
			t.Errorf("%d endpoints of a closed provider are left", len(left))
		}
		for _, q := range s.queues {
			if left := *q.(*completionQueue).endpoints.Load(); len(left) != 0 {
				t.Errorf("%d endpoints of a closed provider use a queue", len(left))
			}
		}
		for ep := range made {
			wantStatus(t, ep.Send(1, nd.SGL{}, 0), nd.ConnectionInvalid)
		}
	}
}

// TestAcceptRefusesDamagedMemory: an active side whose memory is damaged gets an answer.
func TestAcceptRefusesDamagedMemory(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	dialed := soon(func() error { return a.newConnector().Connect(a.ctx, a.newEndpoint(), addr, nd.ConnectParams{}) })
	cb := b.request()
	cb.(*connector).conn.record.Shared.QP[cm.Active] = 0
	wantStatus(t, cb.Accept(b.ctx, b.newEndpoint(), nd.ConnectParams{}), nd.ConnectionAborted)
	wantStatus(t, <-dialed, nd.ConnectionRefused)
}
