package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/shm"
)

const port = 7 // of the listener of the rank at host 1

// host is one host: an arena with a relay and a rank.
type host struct {
	t     testing.TB
	ctx   context.Context
	arena *shm.Arena
	relay *Relay
	rank  *rank
	close func() error

	control string // address for other relays
	answers chan relayclient.Answer
}

// rank is a local process.
type rank struct {
	ctx     context.Context
	address netip.Addr
	adapter nd.Adapter
	queue   nd.CompletionQueue
	memory  nd.MemoryRegion
	private bool
	member  *shm.Member
	leave   func() error
}

const memorySize = 2 << 20

func openRank(ctx context.Context, arena *shm.Arena, o endpoint.Options, private bool) (n *rank, err error) {
	n = &rank{ctx: ctx, private: private}
	if n.member, err = arena.Join(shm.NoRank); err != nil {
		return nil, err
	}
	provider, err := endpoint.New(n.member, o)
	if err != nil {
		return nil, err
	}
	n.leave = sync.OnceValue(func() error { return errors.Join(provider.Close(), n.member.Leave()) })
	n.address = endpoint.Address(arena.Host(), n.member.ID())
	id, err := provider.ResolveAddress(n.address)
	if err != nil {
		return nil, err
	}
	if n.adapter, err = provider.OpenAdapter(ctx, id); err != nil {
		return nil, err
	}
	if n.queue, err = n.adapter.CreateCompletionQueue(ctx, 1024); err != nil {
		return nil, err
	}
	const rights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	if private {
		n.memory, err = n.adapter.Register(ctx, make([]byte, memorySize), rights)
	} else {
		n.memory, err = n.adapter.Allocate(ctx, memorySize, rights)
	}
	return n, err
}

// sge names a part of the rank's memory.
func (n *rank) sge(at, size int) nd.SGL { return nd.One(nd.SGEOf(n.memory, at, size)) }

// result waits for a result.
func (n *rank) result(t testing.TB) nd.Result {
	t.Helper()
	var results [1]nd.Result
	if _, err := n.queue.Wait(n.ctx, results[:]); err != nil {
		t.Fatal(err)
	}
	return results[0]
}

// settings of a pair of hosts.
type settings struct {
	executor endpoint.Executor
	private  bool
	timeout  time.Duration // of a Send without a Receive, at the relays
	provider string
	late     time.Duration // between the handshake and the link at host 1
	check    bool          // payload checks of the ranks
	polls    bool          // the provider has no descriptor to wait for

	keepalive time.Duration
	answer    func(relayclient.Answer)
}

const packLimit = 1 << 20

// openHost makes host number with a relay and a rank.
func openHost(ctx context.Context, number int, node string, s settings, logf func(string, ...any)) (h *host, err error) {
	h = &host{ctx: ctx, answers: make(chan relayclient.Answer, 16)}
	s.answer = func(a relayclient.Answer) { h.answers <- a }
	if h.arena, err = shm.Create(shm.Config{Size: 256 << 20, Host: number}); err != nil {
		return nil, err
	}
	if h.rank, err = openRank(ctx, h.arena, endpoint.Options{Executor: s.executor, CheckPayloads: s.check}, s.private); err != nil {
		return nil, err
	}
	if h.relay, err = openRelay(h.arena, node, s, logf); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- h.relay.Run() }()
	h.close = func() error {
		h.relay.cancel()
		<-done
		return errors.Join(h.relay.Close(), h.rank.leave(), h.arena.Close())
	}
	return h, nil
}

// openRelay makes the relay of an arena.
func openRelay(arena *shm.Arena, node string, s settings, logf func(string, ...any)) (*Relay, error) {
	if s.provider == "" {
		s.provider = "tcp"
	}
	return New(context.Background(), Config{Arena: arena, Provider: s.provider, Node: node, ReceiveTimeout: s.timeout, Keepalive: s.keepalive, noDescriptor: s.polls,
		Pack: packLimit, Answer: s.answer, Handshake: handshake.Config{Secret: [32]byte{1}, Job: [16]byte{2}}, Logf: logf})
}

func newHost(t testing.TB, number int, s settings) *host {
	t.Helper()
	h, err := openHost(proctest.Context(t), number, "127.0.0.1", s, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	h.t = t
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// join links the relay to that of host 1, whose control connections arrive at an address.
func (h *host) join(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	session, err := handshake.Dial(conn, h.relay.HandshakeConfig(), 1)
	if err != nil {
		return err
	}
	h.relay.Link(conn, session)
	return nil
}

// newHosts makes two hosts whose relays are linked.
func newHosts(t testing.TB, s settings) (a, b *host) {
	t.Helper()
	a, b = newHost(t, 0, s), newHost(t, 1, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := handshake.Listen(l, b.relay.HandshakeConfig(), func(conn net.Conn, session *handshake.Session) {
		time.Sleep(s.late)
		b.relay.Link(conn, session)
	}, t.Logf)
	t.Cleanup(func() { listener.Close() })
	b.control = l.Addr().String()
	if err := a.join(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// No frame is lost that a relay wants to send before the other one knows the link.
func TestLateLink(t *testing.T) {
	a, b := newHosts(t, settings{late: 300 * time.Millisecond})
	connect(t, a, b, nd.EndpointConfig{})
}

// Both sides have the addresses of the ranks, also if two processes of one host connect from the same port.
func TestAddresses(t *testing.T) {
	a, b := newHosts(t, settings{})
	other, err := openRank(a.rank.ctx, a.arena, endpoint.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.leave()
	for _, from := range []*rank{a.rank, other} {
		w := connect(t, &host{rank: from}, b, nd.EndpointConfig{})
		for connector, want := range map[nd.Connector][2]netip.AddrPort{
			w.cx: {netip.AddrPortFrom(from.address, 49152), netip.AddrPortFrom(b.rank.address, port)},
			w.cy: {netip.AddrPortFrom(b.rank.address, port), netip.AddrPortFrom(from.address, 49152)},
		} {
			local, err1 := connector.LocalAddress()
			peer, err2 := connector.PeerAddress()
			if err1 != nil || err2 != nil || local != want[0] || peer != want[1] {
				t.Errorf("addresses %v, %v, want %v: %v, %v", local, peer, want, err1, err2)
			}
		}
	}
}

// Query reports whether other hosts can be reached, and how many connections the relay carries.
func TestQuery(t *testing.T) {
	arena, err := shm.Create(shm.Config{Size: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	alone, err := openRank(proctest.Context(t), arena, endpoint.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.leave()
	a, _ := newHosts(t, settings{})
	for n, want := range map[*rank]uint32{alone: 0, a.rank: maxTunnels} {
		info, err := n.adapter.Query()
		if err != nil || info.MaxInterHostConnections != want {
			t.Errorf("MaxInterHostConnections is %d, want %d: %v", info.MaxInterHostConnections, want, err)
		}
	}
}

// An Open whose addresses are not those of the two hosts ends the link: no correct relay sends it.
func TestOpenOfOtherHosts(t *testing.T) {
	good := frame.Connect{Tunnel: 1, From: netip.MustParseAddrPort("127.77.0.1:1"), To: netip.MustParseAddrPort("127.78.0.1:1")}
	for name, change := range map[string]func(*frame.Connect){
		"to the sender's host": func(c *frame.Connect) { c.To = c.From },
		"from this host":       func(c *frame.Connect) { c.From = c.To },
		"from a third host":    func(c *frame.Connect) { c.From = netip.MustParseAddrPort("127.79.0.1:1") },
		"to no host":           func(c *frame.Connect) { c.To = netip.MustParseAddrPort("10.0.0.1:1") },
		"from no host":         func(c *frame.Connect) { c.From = netip.AddrPort{} },
	} {
		_, b := newHosts(t, settings{})
		bad := good
		change(&bad)
		proctest.Eventually(t, "the link is there", func() bool { return b.onLink(func(l *link) error { return nil }) == nil })
		if err := b.onLink(func(l *link) error { return l.open(&frame.Frame{Payload: bad.Append(nil)}) }); !errors.Is(err, errAddress) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// onLink calls f with the link of the relay, in its goroutine.
func (h *host) onLink(f func(*link) error) error {
	done := make(chan error)
	h.relay.do(func() {
		for _, l := range h.relay.links {
			done <- f(l)
			return
		}
		done <- errors.New("no link")
	})
	return <-done
}

// A relay that cannot start says why, and leaves the arena as it was.
func TestNewFails(t *testing.T) {
	arena, err := shm.Create(shm.Config{Size: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	fails := func(provider, want string) {
		t.Helper()
		r, err := New(proctest.Context(t), Config{Arena: arena, Provider: provider, Node: "127.0.0.1"})
		if r != nil || err == nil || !strings.Contains(err.Error(), "start relay: "+want) {
			t.Errorf("provider %s: %v, %v", provider, r, err)
		}
	}
	fails("nonesuch", "open libfabric endpoint")
	arena.Close()
	fails("tcp", "") // its endpoint is open when the relay cannot join
}

// wire is a connection between the ranks of two hosts.
type wire struct {
	t      testing.TB
	a, b   *rank
	x, y   nd.Endpoint
	cx, cy nd.Connector
	far    nd.WindowDescriptor // of b's memory
	near   nd.WindowDescriptor // of a's memory
	linkA  *host
}

// connect connects the ranks through the relays.
func connect(t testing.TB, a, b *host, cfg nd.EndpointConfig) *wire {
	t.Helper()
	w := &wire{t: t, a: a.rank, b: b.rank, linkA: a, far: nd.DescriptorOf(b.rank.memory), near: nd.DescriptorOf(a.rank.memory)}
	l, err := w.b.adapter.CreateListener(w.b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Bind(netip.AddrPortFrom(w.b.address, port)), l.Listen(0)); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- w.dial(b.rank.address, cfg) }()
	if w.cy, err = w.b.adapter.CreateConnector(w.b.ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.GetConnectionRequest(w.b.ctx, w.cy); err != nil {
		t.Fatal(err)
	}
	private := make([]byte, 100)
	if n, err := w.cy.GetPrivateData(private); err != nil || string(private[:n]) != "from a" {
		t.Fatalf("private data %q, %v", private[:n], err)
	}
	cfgB := cfg
	cfgB.ReceiveCQ, cfgB.InitiatorCQ = w.b.queue, w.b.queue
	if w.y, err = w.b.adapter.CreateEndpoint(w.b.ctx, cfgB); err != nil {
		t.Fatal(err)
	}
	if err := w.cy.Accept(w.b.ctx, w.y, nd.ConnectParams{InboundReadLimit: 3, OutboundReadLimit: 9, PrivateData: []byte("from b")}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wire) dial(to netip.Addr, cfg nd.EndpointConfig) (err error) {
	n := w.a
	cfg.ReceiveCQ, cfg.InitiatorCQ, cfg.SharedReceive = n.queue, n.queue, nil
	if w.x, err = n.adapter.CreateEndpoint(n.ctx, cfg); err != nil {
		return err
	}
	if w.cx, err = n.adapter.CreateConnector(n.ctx); err != nil {
		return err
	}
	if err = w.cx.Connect(n.ctx, w.x, netip.AddrPortFrom(to, port), nd.ConnectParams{InboundReadLimit: 7, OutboundReadLimit: 5, PrivateData: []byte("from a")}); err != nil {
		return err
	}
	private := make([]byte, 100)
	if k, err := w.cx.GetPrivateData(private); err != nil || string(private[:k]) != "from b" {
		return fmt.Errorf("private data %q, %v", private[:k], err)
	}
	return w.cx.CompleteConnect(n.ctx)
}

// forEach runs a test with each place of memory and each executor of the ranks.
func forEach(t *testing.T, test func(t *testing.T, w *wire)) {
	for _, s := range []settings{{}, {private: true}, {executor: endpoint.Target}, {provider: "tcp;ofi_rxm", private: true, executor: endpoint.Target}, {polls: true},
		{check: true}, {check: true, private: true, executor: endpoint.Target}} {
		t.Run(fmt.Sprintf("executor %d, private %t, polls %t, check %t", s.executor, s.private, s.polls, s.check), func(t *testing.T) {
			a, b := newHosts(t, s)
			test(t, connect(t, a, b, nd.EndpointConfig{InitiatorDepth: 64, ReceiveDepth: 64}))
		})
	}
}

func TestReadLimits(t *testing.T) {
	a, b := newHosts(t, settings{})
	w := connect(t, a, b, nd.EndpointConfig{})
	in, out, err := w.cx.ReadLimits()
	if err != nil || in != 7 || out != 3 {
		t.Errorf("active side: %d, %d, %v, want 7, 3", in, out, err)
	}
	if in, out, err = w.cy.ReadLimits(); err != nil || in != 3 || out != 7 {
		t.Errorf("passive side: %d, %d, %v, want 3, 7", in, out, err)
	}
}
