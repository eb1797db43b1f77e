package endpoint

import (
	"context"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/nd"
)

func TestQueryNDK(t *testing.T) {
	s := newPair(t, setup{Unwired: true}).a
	info, err := s.adapter.(nd.NDKAdapter).QueryNDK()
	if err != nil || info != (nd.NDKInfo{FastRegisterPageCount: fastRegisterPages, Technology: nd.TechnologyUndefined}) {
		t.Errorf("%+v (%v)", info, err)
	}
}

func TestRoutes(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	s := p.a
	own, peer := Address(0, s.member.ID()), Address(0, p.b.id)
	for to, want := range map[netip.Addr]nd.Status{
		own:                                nd.Success,
		peer:                               nd.Success,
		netip.AddrFrom16(peer.As16()):      nd.Success,
		netip.MustParseAddr("127.77.0.0"):  nd.NetworkUnreachable,
		netip.MustParseAddr("127.77.7.7"):  nd.NetworkUnreachable,
		netip.MustParseAddr("127.0.0.1"):   nd.InvalidAddress,
		netip.MustParseAddr("10.1.2.3"):    nd.InvalidAddress,
		netip.MustParseAddr("2001:db8::1"): nd.InvalidAddress,
		netip.IPv4Unspecified():            nd.InvalidAddress,
		{}:                                 nd.InvalidAddress,
	} {
		local, err := nd.ResolveRoute(s.provider, to)
		if nd.StatusOf(err) != want || err == nil && local != own {
			t.Errorf("the route to %v starts at %v (%v), want %v", to, local, err, want)
		}
		if err == nil {
			if err := nd.CheckAddress(s.provider, local); err != nil {
				t.Error(err)
			}
		}
	}
}

// sharedAddress returns a shared address of s.
func (s *side) sharedAddress(addr string) nd.SharedAddress {
	s.t.Helper()
	a, err := s.adapter.(nd.NDKAdapter).CreateSharedAddress(s.ctx, netip.MustParseAddrPort(addr))
	s.good(err)
	return a
}

// connectFrom connects a new endpoint of a from a shared address.
func connectFrom(a, b *side, from nd.SharedAddress, to netip.AddrPort) (ca, cb nd.Connector) {
	a.t.Helper()
	ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
	connected := soon(func() error {
		return ca.(nd.SharedAddressConnector).ConnectFrom(a.ctx, ea, from, to, nd.ConnectParams{PrivateData: []byte(to.String())})
	})
	cb = b.request()
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
	return ca, cb
}

// listenToo returns the address of another listener, which puts its requests before those of the
// first.
func (s *side) listenToo() netip.AddrPort {
	s.t.Helper()
	first := s.listener
	addr := s.listen(0)
	s.t.Cleanup(func() { first.Close() })
	return addr
}

// TestSharedAddress: many connectors can use one address, but only one for each destination.
func TestSharedAddress(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	shared := a.sharedAddress("0.0.0.0:700")
	local := must(shared.LocalAddress())
	if want := netip.AddrPortFrom(Address(0, a.member.ID()), 700); local != want {
		t.Errorf("the shared address is %v, want %v", local, want)
	}
	_, err := a.adapter.(nd.NDKAdapter).CreateSharedAddress(a.ctx, local)
	wantStatus(t, err, nd.SharingViolation)
	wantStatus(t, a.newConnector().Bind(local), nd.SharingViolation)

	first, firstPeer := connectFrom(a, b, shared, addr)
	second, _ := connectFrom(a, b, shared, b.listenToo())
	for _, c := range []nd.Connector{first, second} {
		if got := must(c.LocalAddress()); got != local {
			t.Errorf("a connector's address is %v, want %v", got, local)
		}
	}
	if got := must(firstPeer.PeerAddress()); got != local {
		t.Errorf("the peer sees %v, want %v", got, local)
	}
	third, ep := a.newConnector().(nd.SharedAddressConnector), a.newEndpoint()
	wantStatus(t, third.ConnectFrom(a.ctx, ep, shared, addr, nd.ConnectParams{}), nd.AddressAlreadyExists)

	a.good(first.Close())
	firstPeer.Close()
	ctx, cancel := context.WithCancel(a.ctx)
	cancel()
	wantStatus(t, third.ConnectFrom(ctx, ep, shared, addr, nd.ConnectParams{}), nd.Canceled)

	// The port stays in use while a connector needs it.
	a.good(shared.Close())
	a.good(shared.Close())
	wantStatus(t, third.ConnectFrom(a.ctx, ep, shared, addr, nd.ConnectParams{}), nd.InvalidHandle)
	_, err = shared.LocalAddress()
	wantStatus(t, err, nd.InvalidHandle)
	wantStatus(t, a.newConnector().Bind(local), nd.SharingViolation)
	a.good(second.Close())
	a.good(a.newConnector().Bind(local))
}

// TestSharedAddressAfterFailure: a failed connector can try again, from the same or another
// address.
func TestSharedAddressAfterFailure(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	shared := a.sharedAddress("0.0.0.0:0")
	defer shared.Close()
	if local := must(shared.LocalAddress()); local.Port() < nd.EphemeralPortFirst {
		t.Errorf("a free port is %d", local.Port())
	}
	ca, ea := a.newConnector(), a.newEndpoint()
	from := func(ctx context.Context, to netip.AddrPort) error {
		return ca.(nd.SharedAddressConnector).ConnectFrom(ctx, ea, shared, to, nd.ConnectParams{})
	}
	noListener := netip.AddrPortFrom(addr.Addr(), 9)
	for range 2 {
		wantStatus(t, from(a.ctx, noListener), nd.ConnectionRefused)
		ctx, cancel := context.WithCancel(a.ctx)
		canceled := soon(func() error { return from(ctx, addr) })
		cb := b.request()
		cancel()
		wantStatus(t, <-canceled, nd.Canceled)
		wantStatus(t, cb.Reject(nil), nd.ConnectionAborted)
		_, err := ca.LocalAddress()
		wantStatus(t, err, nd.ConnectionInvalid)
	}
	wantStatus(t, ca.Connect(a.ctx, ea, noListener, nd.ConnectParams{}), nd.ConnectionRefused)
	connected := soon(func() error { return from(a.ctx, addr) })
	cb, eb := b.request(), b.newEndpoint()
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
}

// TestSharedAddressOfOtherAdapter cannot be used.
func TestSharedAddressOfOtherAdapter(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	theirs := b.sharedAddress("0.0.0.0:0")
	defer theirs.Close()
	c, ep := a.newConnector().(nd.SharedAddressConnector), a.newEndpoint()
	wantStatus(t, c.ConnectFrom(a.ctx, ep, theirs, addr, nd.ConnectParams{}), nd.InvalidAddress)
	wantStatus(t, c.ConnectFrom(a.ctx, ep, nil, addr, nd.ConnectParams{}), nd.InvalidAddress)
	_, err := a.adapter.(nd.NDKAdapter).CreateSharedAddress(a.ctx, addr)
	wantStatus(t, err, nd.InvalidAddress)
}
