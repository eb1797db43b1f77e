package endpoint

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestAddress(t *testing.T) {
	for host, want := range map[int]string{0: "127.77.1.2", 1: "127.78.1.2", 178: "127.255.1.2"} {
		a := Address(host, shm.MemberID(7<<16|0x101))
		if a.String() != want {
			t.Errorf("host %d: %v, want %v", host, a, want)
		}
		if got, ok := HostOf(a); !ok || got != host {
			t.Errorf("%v is of host %d, %t", a, got, ok)
		}
	}
	for _, a := range []string{"127.76.1.2", "126.77.1.2", "::ffff:127.77.1.2", "::1"} {
		if host, ok := HostOf(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is of host %d", a, host)
		}
	}
	if _, ok := HostOf(netip.Addr{}); ok {
		t.Error("no address is of a host")
	}
}

var roleRelay = proctest.Role("relay", func(self *proctest.Self) error {
	file := self.File(0)
	defer file.Close()
	arena, err := shm.Attach(self.Ctx, file)
	if err != nil {
		return err
	}
	m, err := arena.Join(shm.NoRank)
	if err == nil {
		err = m.BecomeRelay()
	}
	if err != nil {
		return err
	}
	self.Say("relay")
	_, err = self.Hear()
	return err
})

// A Connect to another host fails for a reason that it names: there is no relay, or the relay is dead, before or during
// the call.
func TestConnectWithoutRelay(t *testing.T) {
	a, _, _ := unconnectedPair(t)
	fails := func(err error, want string) {
		t.Helper()
		wantStatus(t, err, nd.HostUnreachable)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	connect := func(to string) error {
		return a.newConnector().Connect(a.ctx, a.newEndpoint(), netip.MustParseAddrPort(to), nd.ConnectParams{})
	}
	// Numbers of hosts and of slots that no process has are no different.
	for _, to := range []string{"127.78.0.1:1", "127.78.0.0:1", "127.255.255.255:65535", "127.79.8.1:0"} {
		fails(connect(to), "no relay to other hosts")
	}
	for _, to := range []string{"127.76.0.1:1", "127.0.0.1:1", "[::1]:1"} {
		wantStatus(t, connect(to), nd.NetworkUnreachable)
	}
	_, err := a.provider.ResolveRoute(netip.MustParseAddr("127.78.0.1"))
	wantStatus(t, err, nd.NetworkUnreachable)
	relay := proctest.StartWith(t, a.provider.arena.File(), roleRelay)
	relay.Expect("relay")
	if route := must(a.provider.ResolveRoute(netip.MustParseAddr("127.78.0.1"))); route != a.provider.address() {
		t.Errorf("the route begins at %v", route)
	}
	waits := soon(func() error { return connect("127.78.0.1:1") })
	peer := must(a.provider.arena.Relay())
	proctest.Eventually(t, "the request is sent", func() bool {
		a.provider.mu.Lock()
		defer a.provider.mu.Unlock()
		return len(a.provider.watched) > 0
	})
	relay.Kill()
	fails(<-waits, "the relay")
	proctest.Eventually(t, "the death is known", peer.Gone)
	fails(connect("127.78.0.1:1"), "the relay ")

	m := must(a.provider.arena.Join(shm.NoRank))
	a.good(m.BecomeRelay()) // another one takes its place
	if now := must(a.provider.arena.Relay()); now.ID() != m.ID() {
		t.Errorf("the relay is %v", now)
	}
	a.good(m.Leave())
}

// A listener takes requests for its own address only, and none that is for the number of an endpoint. Only the relay can name another source than itself, and no source of
// this host.
func TestAddressesOfRequest(t *testing.T) {
	a, b, at := unconnectedPair(t)
	arena := a.provider.arena
	m := must(arena.Join(shm.NoRank))
	defer m.Leave()
	self := must(arena.Peer(b.member.ID()))
	send := func(from, to netip.AddrPort, number uint32) *wire.ConnectionRecord {
		off := must(m.Alloc(wire.ConnectionRecordSize))
		r := must(shm.At[wire.ConnectionRecord](arena, off))
		r.Member[cm.Active], r.Member[cm.Passive] = uint64(m.ID()), uint64(b.member.ID())
		r.Address[cm.Active], r.Address[cm.Passive] = addressWord(from.Addr()), addressWord(to.Addr())
		r.Port[cm.Active], r.Port[cm.Passive] = uint32(from.Port()), uint32(to.Port())|number
		r.State.Store(uint32(cm.ConnRequested))
		a.good(self.SendMail(off, &r.Link))
		self.Wake()
		return r
	}
	elsewhere, own := netip.MustParseAddrPort("127.78.0.9:5"), netip.AddrPortFrom(Address(0, m.ID()), 5)
	sources := []netip.AddrPort{own, elsewhere, netip.AddrPortFrom(a.provider.address(), 5), netip.MustParseAddrPort("10.0.0.1:5"), netip.MustParseAddrPort("0.0.0.0:5")}
	check := func(isRelay bool) {
		t.Helper()
		for _, to := range []netip.Addr{elsewhere.Addr(), a.provider.address(), netip.MustParseAddr("10.0.0.1"), netip.IPv4Unspecified()} {
			r := send(own, netip.AddrPortFrom(to, at.Port()), 0)
			proctest.Eventually(t, "the request is refused", func() bool { return r.State.Load() == uint32(cm.ConnRefused) })
		}
		byNumber := send(own, at, wire.ByNumber)
		proctest.Eventually(t, "the request for a number is refused", func() bool { return byNumber.State.Load() == uint32(cm.ConnRefused) })
		for _, from := range sources {
			send(from, at, 0)
			c := b.request()
			want := own
			if isRelay && from == elsewhere {
				want = elsewhere
			}
			if got := must(c.PeerAddress()); got != want {
				t.Errorf("source %v, relay %t: the peer has %v, want %v", from, isRelay, got, want)
			}
			if got := must(c.LocalAddress()); got != at {
				t.Errorf("local address %v, want %v", got, at)
			}
		}
	}
	check(false)
	a.good(m.BecomeRelay())
	check(true)
}

// Messages name the rank of a process of another host, or its host while the ranks are unknown.
func TestNamesOfOtherHosts(t *testing.T) {
	a := Address(3, 1<<16|5)
	p := new(Provider)
	if got := p.nameOfRemote(a); got != "a process of host 3" {
		t.Errorf("%q", got)
	}
	p.NameRemotes(func(of netip.Addr) (int, bool) { return 7, of == a })
	for of, want := range map[netip.Addr]string{a: "rank 7 on another host", Address(4, 1<<16|5): "a process of host 4"} {
		if got := p.nameOfRemote(of); got != want {
			t.Errorf("%v: %q, want %q", of, got, want)
		}
	}
	c := &connection{provider: p, remote: a} // its peer is the relay
	if got := c.nameOfProcess(); got != "rank 7 on another host" {
		t.Errorf("%q", got)
	}
	if got := c.lost("the peer"); got != "the relay of this host, which reached rank 7 on another host, has died or left" {
		t.Errorf("%q", got)
	}
}
