package relayhook_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

var limits = nd.ConnectParams{InboundReadLimit: 4, OutboundReadLimit: 4}

func newArena(t *testing.T, host int) *shm.Arena {
	t.Helper()
	arena := must(shm.Create(shm.Config{Size: 176 << 20, Host: host}))
	t.Cleanup(func() { arena.Close() })
	return arena
}

// connector makes a connector, which is closed when the test ends.
func (n *node) connector() nd.Connector {
	c := must(n.adapter.CreateConnector(n.ctx))
	n.t.Cleanup(func() { c.Close() })
	return c
}

// listen makes a listener at a port, which is closed when the test ends.
func (n *node) listen(port uint16) nd.Listener {
	l := must(n.adapter.CreateListener(n.ctx))
	n.t.Cleanup(func() { l.Close() })
	if err := errors.Join(l.Bind(netip.AddrPortFrom(n.address, port)), l.Listen(0)); err != nil {
		n.t.Fatal(err)
	}
	return l
}

// accept accepts the next request of a listener.
func (n *node) accept(l nd.Listener) nd.Connector {
	n.t.Helper()
	c := n.connector()
	if err := errors.Join(l.GetConnectionRequest(n.ctx, c), c.Accept(n.ctx, n.ep, limits)); err != nil {
		n.t.Fatal(err)
	}
	return c
}

// dial connects to an address in the background, from a bound address unless from is the zero value.
func (n *node) dial(from, to netip.AddrPort) (c nd.Connector, done <-chan error) {
	c = n.connector()
	result := make(chan error, 1)
	go func() {
		err := error(nil)
		if from.IsValid() {
			err = c.Bind(from)
		}
		if err == nil {
			err = c.Connect(n.ctx, n.ep, to, limits)
		}
		if err == nil {
			err = c.CompleteConnect(n.ctx)
		}
		result <- err
	}()
	return c, result
}

func (n *node) wantAddresses(c nd.Connector, local, peer netip.AddrPort) {
	n.t.Helper()
	if l, p := must(c.LocalAddress()), must(c.PeerAddress()); l != local || p != peer {
		n.t.Errorf("addresses %v, %v, want %v, %v", l, p, local, peer)
	}
}

// The relay receives all requests for addresses of other hosts. The rank sees the address that it
// has asked for.
func TestRequestForOtherHost(t *testing.T) {
	arena := newArena(t, 1)
	rank, other := newNode(t, arena, endpoint.Options{}), newNode(t, arena, endpoint.Options{})
	if rank.address.As4()[1] != 78 {
		t.Fatalf("a member of host 1 has the address %v", rank.address)
	}
	l := other.listen(9)
	for _, to := range []string{"127.77.0.1:9", "127.255.255.255:0"} {
		relay := newNode(t, arena, endpoint.Options{Forward: true}) // after the first one has left, the next is the relay
		others := must(relay.adapter.(relayhook.Adapter).ListenForOtherHosts(relay.ctx))
		wanted := netip.MustParseAddrPort(to)
		c, done := rank.dial(netip.AddrPort{}, wanted)
		forRelay := relay.accept(others)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		local := must(c.LocalAddress())
		if local.Addr() != rank.address {
			t.Errorf("the rank's address is %v, want %v", local, rank.address)
		}
		rank.wantAddresses(c, local, wanted)
		relay.wantAddresses(forRelay, wanted, local)
		rank.renew()
		relay.leave()
	}
	// The process itself receives a request for an address of this host.
	c, done := rank.dial(netip.AddrPort{}, netip.AddrPortFrom(other.address, 9))
	accepted := other.accept(l)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	local := must(c.LocalAddress())
	other.wantAddresses(accepted, netip.AddrPortFrom(other.address, 9), local)
}

// A relay connects for processes of other hosts, also for several with the same port.
func TestConnectForOtherHost(t *testing.T) {
	arena := newArena(t, 1)
	relay := newNode(t, arena, endpoint.Options{Forward: true})
	must(relay.adapter.(relayhook.Adapter).ListenForOtherHosts(relay.ctx))
	rank := newNode(t, arena, endpoint.Options{})
	l := rank.listen(9)
	to := netip.AddrPortFrom(rank.address, 9)
	for _, from := range []string{"127.77.0.1:5000", "127.79.0.1:5000", "127.77.0.1:0"} {
		source := netip.MustParseAddrPort(from)
		c, done := relay.dial(source, to)
		accepted := rank.accept(l)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		rank.wantAddresses(accepted, to, source)
		relay.wantAddresses(c, source, to)
		rank.renew()
		relay.renew()
	}
	// A failed Connect releases the address, as that of any connector.
	c, done := relay.dial(netip.MustParseAddrPort("127.77.0.1:5000"), netip.AddrPortFrom(rank.address, 10))
	if err := <-done; nd.StatusOf(err) != nd.ConnectionRefused {
		t.Errorf("no listener: %v", err)
	}
	if at, err := c.LocalAddress(); nd.StatusOf(err) != nd.ConnectionInvalid {
		t.Errorf("bound to %v, %v", at, err)
	}
	// It does not take an address of another process of its host.
	if err := relay.connector().Bind(netip.AddrPortFrom(rank.address, 7)); nd.StatusOf(err) != nd.InvalidAddress {
		t.Errorf("bound to the address of a rank: %v", err)
	}
}

// Another member that claims an address of another host is seen with its own.
func TestOnlyRelayNamesSource(t *testing.T) {
	arena := newArena(t, 0)
	relay, liar := newNode(t, arena, endpoint.Options{Forward: true}), newNode(t, arena, endpoint.Options{Forward: true})
	must(relay.adapter.(relayhook.Adapter).ListenForOtherHosts(relay.ctx))
	rank := newNode(t, arena, endpoint.Options{})
	l := rank.listen(9)
	_, done := liar.dial(netip.MustParseAddrPort("127.78.0.1:5000"), netip.AddrPortFrom(rank.address, 9))
	c := rank.accept(l)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	rank.wantAddresses(c, netip.AddrPortFrom(rank.address, 9), netip.AddrPortFrom(liar.address, 5000))
	if err := rank.connector().Bind(netip.MustParseAddrPort("127.78.0.1:5000")); nd.StatusOf(err) != nd.InvalidAddress {
		t.Errorf("a rank is bound to an address of another host: %v", err)
	}
}

// An arena has one relay, which has one listener.
func TestRelayIsOnlyOne(t *testing.T) {
	arena := newArena(t, 0)
	listen := func(n *node) (nd.Listener, error) {
		return n.adapter.(relayhook.Adapter).ListenForOtherHosts(n.ctx)
	}
	relay, other := newNode(t, arena, endpoint.Options{Forward: true}), newNode(t, arena, endpoint.Options{Forward: true})
	l := must(listen(relay))
	if _, err := listen(other); nd.StatusOf(err) != nd.SharingViolation || !errors.Is(err, shm.ErrTaken) {
		t.Errorf("a second relay: %v", err)
	}
	if _, err := listen(relay); nd.StatusOf(err) != nd.SharingViolation {
		t.Errorf("a second listener: %v", err)
	}
	if _, err := listen(newNode(t, arena, endpoint.Options{})); nd.StatusOf(err) != nd.NotSupported {
		t.Errorf("a rank: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	must(listen(relay))
	relay.leave()
	proctest.Eventually(t, "another relay takes its place", func() bool {
		_, err := listen(other)
		return err == nil
	})
}

// A relay takes requests without a wait. It is not given those that their processes have withdrawn.
func TestTakeRequest(t *testing.T) {
	arena := newArena(t, 1)
	rank, relay := newNode(t, arena, endpoint.Options{}), newNode(t, arena, endpoint.Options{Forward: true})
	others := must(relay.adapter.(relayhook.Adapter).ListenForOtherHosts(relay.ctx))
	waiting := relay.connector()
	if taken, err := others.TakeRequest(waiting); taken || err != nil {
		t.Fatalf("without a request: %v, %v", taken, err)
	}
	withdrawn, done := rank.dial(netip.AddrPort{}, netip.MustParseAddrPort("127.77.0.1:8"))
	proctest.Eventually(t, "the first request is made", func() bool { _, err := withdrawn.LocalAddress(); return err == nil })
	if err := withdrawn.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	wanted := netip.MustParseAddrPort("127.77.0.1:9")
	c, done := rank.dial(netip.AddrPort{}, wanted)
	proctest.Eventually(t, "the request is taken", func() bool {
		taken, err := others.TakeRequest(waiting)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	})
	if err := waiting.Accept(relay.ctx, relay.ep, limits); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	rank.wantAddresses(c, must(c.LocalAddress()), wanted)
}
