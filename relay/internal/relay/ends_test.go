package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A request for a connection fails with the status of one host if the other host has no listener, or refuses.
func TestRefused(t *testing.T) {
	a, b := newHosts(t, settings{})
	ask := func(to netip.Addr, port uint16) ([]byte, error) {
		n := a.rank
		ep, err := n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{ReceiveCQ: n.queue, InitiatorCQ: n.queue})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		c, err := n.adapter.CreateConnector(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err = c.Connect(n.ctx, ep, netip.AddrPortFrom(to, port), nd.ConnectParams{})
		private := make([]byte, 100)
		k, _ := c.GetPrivateData(private)
		return private[:k], err
	}
	for _, x := range []struct {
		what string
		to   netip.Addr
		want nd.Status
	}{
		{"no listener", b.rank.address, nd.ConnectionRefused}, {"the relay", endpoint.Address(1, b.relay.member.ID()), nd.ConnectionRefused},
		{"no process", netip.MustParseAddr("127.78.8.0"), nd.HostUnreachable}, {"no slot", netip.MustParseAddr("127.78.0.0"), nd.HostUnreachable},
		{"no link", netip.MustParseAddr("127.79.0.1"), nd.HostUnreachable},
	} {
		if _, err := ask(x.to, 98); nd.StatusOf(err) != x.want {
			t.Errorf("%s: %v, want %v", x.what, err, x.want)
		}
	}
	full := &tunnel{}
	eachTunnel := func(f func(t **tunnel)) {
		done := make(chan struct{})
		b.relay.do(func() {
			defer close(done)
			for i := range b.relay.tunnels {
				f(&b.relay.tunnels[i])
			}
		})
		proctest.Receive(t, "the relay", done)
	}
	eachTunnel(func(t **tunnel) {
		if *t == nil {
			*t = full
		}
	})
	if _, err := ask(b.rank.address, 98); nd.StatusOf(err) != nd.ConnectionRefused {
		t.Errorf("a connection beyond the maximum: %v", err)
	}
	eachTunnel(func(t **tunnel) {
		if *t == full {
			*t = nil
		}
	})
	l, err := b.rank.adapter.CreateListener(b.rank.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(l.Bind(netip.AddrPortFrom(b.rank.address, port)), l.Listen(0)); err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := b.rank.adapter.CreateConnector(b.rank.ctx)
		if err == nil {
			if err = l.GetConnectionRequest(b.rank.ctx, c); err == nil {
				err = c.Reject([]byte("not now"))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}()
	if private, err := ask(b.rank.address, port); nd.StatusOf(err) != nd.ConnectionRefused || string(private) != "not now" {
		t.Errorf("%v, private data %q", err, private)
	}
}

// Both sides disconnect, one after the other or at the same time.
func TestDisconnect(t *testing.T) {
	a, b := newHosts(t, settings{})
	for _, together := range []bool{false, true} {
		w := connect(t, a, b, nd.EndpointConfig{})
		done := make(chan error, 1)
		go func() { done <- w.cx.Disconnect(w.a.ctx) }()
		if !together {
			if err := w.cy.NotifyDisconnect(w.b.ctx); err != nil {
				t.Fatal(err)
			}
			if err := w.y.Err(); nd.StatusOf(err) != nd.ConnectionDisconnected {
				t.Errorf("passive side: %v", err)
			}
		}
		if err := errors.Join(w.cy.Disconnect(w.b.ctx), proctest.Receive(t, "the end of Disconnect", done)); err != nil {
			t.Errorf("together %t: %v", together, err)
		}
	}
	noTunnels(t, a, b)
}

// noTunnels waits until both relays have forgotten all connections.
func noTunnels(t *testing.T, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		proctest.Eventually(t, "the end of all tunnels", func() bool {
			n := make(chan int)
			h.relay.do(func() {
				count := 0
				for _, x := range h.relay.tunnels {
					if x != nil {
						count++
					}
				}
				n <- count
			})
			return <-n == 0
		})
	}
}

// The end of a connection by force by either side reaches the other host, and cancels requests in progress.
func TestForcedEnd(t *testing.T) {
	for name, end := range map[string]func(w *wire) error{
		"active side closes":  func(w *wire) error { return w.x.Close() },
		"passive side closes": func(w *wire) error { return w.y.Close() },
		"active rank dies":    func(w *wire) error { return w.a.leave() },
		"passive rank dies":   func(w *wire) error { return w.b.leave() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t, settings{timeout: time.Hour})
			w := connect(t, a, b, nd.EndpointConfig{})
			from, ep := w.a, w.x
			if strings.HasPrefix(name, "active") {
				from, ep = w.b, w.y
			}
			if err := ep.Send(1, from.sge(0, 1000), 0); err != nil { // there is no Receive
				t.Fatal(err)
			}
			if err := end(w); err != nil {
				t.Fatal(err)
			}
			if r := from.result(t); r.Status != nd.Canceled {
				t.Errorf("%+v", r)
			}
			if err := ep.Err(); nd.StatusOf(err) != nd.ConnectionAborted {
				t.Errorf("%v", err)
			}
			noTunnels(t, a, b)
		})
	}
}

// ask calls Connect with a listener of the other host that does not answer, and returns the error of Connect when the request is
// on its way.
func (h *host) ask(t *testing.T, other *host) <-chan error {
	t.Helper()
	const silent = port + 1
	l, err := other.rank.adapter.CreateListener(other.rank.ctx)
	if err == nil {
		t.Cleanup(func() { l.Close() })
		err = errors.Join(l.Bind(netip.AddrPortFrom(other.rank.address, silent)), l.Listen(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	n := h.rank
	ep, err := n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{ReceiveCQ: n.queue, InitiatorCQ: n.queue})
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.adapter.CreateConnector(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); ep.Close() })
	ended := make(chan error, 1)
	go func() {
		ended <- c.Connect(n.ctx, ep, netip.AddrPortFrom(other.rank.address, silent), nd.ConnectParams{})
	}()
	proctest.Eventually(t, "the request is on its way", func() bool {
		return h.onLink(func(*link) error {
			for _, t := range h.relay.tunnels {
				if t != nil && t.state == asked && len(t.outbox) == 0 {
					return nil
				}
			}
			return errTunnel
		}) == nil
	})
	return ended
}

// Everything ends when the link does.
func TestLinkFails(t *testing.T) {
	for name, fail := range map[string]func(a, b *host){
		"control connection": func(a, b *host) {
			b.relay.do(func() {
				for _, l := range b.relay.links {
					l.conn.Close()
				}
			})
		},
		"relay leaves": func(a, b *host) { b.relay.cancel() },
		"relay stops": func(a, b *host) {
			stop := make(chan struct{})
			a.t.Cleanup(func() { close(stop) })
			b.relay.do(func() { <-stop })
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t, settings{timeout: time.Hour})
			w := connect(t, a, b, nd.EndpointConfig{})
			if err := w.x.Send(1, w.a.sge(0, 1000), 0); err != nil { // there is no Receive
				t.Fatal(err)
			}
			unanswered := a.ask(t, b)
			fail(a, b)
			if err := proctest.Receive(t, "the end of Connect", unanswered); nd.StatusOf(err) != nd.HostUnreachable {
				t.Errorf("a Connect that has no answer: %v", err)
			}
			if r := w.a.result(t); r.Status != nd.Canceled {
				t.Errorf("%+v", r)
			}
			if err := w.x.Err(); nd.StatusOf(err) != nd.ConnectionAborted || !strings.Contains(err.Error(), "link to host 1") || !strings.Contains(err.Error(), "start the job again") || strings.Contains(err.Error(), "connect a new endpoint") || !strings.Contains(err.Error(), "the peer (a process of host 1)") {
				t.Errorf("%v", err)
			}
			noTunnels(t, a)
		})
	}
}

// SendAndInvalidate invalidates the window at the other host before its Receive completes, from a shared receive queue.
func TestSendAndInvalidate(t *testing.T) {
	a, b := newHosts(t, settings{})
	shared, err := b.rank.adapter.CreateSharedReceiveQueue(b.rank.ctx, nd.SharedReceiveQueueConfig{Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	w := connect(t, a, b, nd.EndpointConfig{SharedReceive: shared})
	window, far := w.bind(t)
	if err := errors.Join(shared.Receive(7, w.b.sge(0, 100)), nd.WriteTo(w.x, 1, w.a.sge(0, 10), far, 0), w.x.SendAndInvalidate(2, w.a.sge(0, 10), far.Token, 0)); err != nil {
		t.Fatal(err)
	}
	if r := w.b.result(t); r.Status != nd.Success || r.InvalidatedToken != far.Token || r.RequestType != nd.RequestReceiveAndInvalidate {
		t.Errorf("%+v: %v", r, w.y.Err())
	}
	for i := range uint64(2) {
		if r := w.a.result(t); r.Status != nd.Success || r.RequestContext != i+1 {
			t.Errorf("%+v: %v", r, w.x.Err())
		}
	}
	if err := window.Close(a.ctx); err != nil {
		t.Error(err)
	}
	if err := nd.WriteTo(w.x, 3, w.a.sge(0, 10), far, 0); err != nil {
		t.Fatal(err)
	}
	if r := w.a.result(t); r.Status != nd.AccessViolation {
		t.Errorf("a Write after the invalidation: %+v", r)
	}
}

// bind binds a window on the passive side, over the second half of its memory.
func (w *wire) bind(t *testing.T) (nd.MemoryWindow, nd.WindowDescriptor) {
	t.Helper()
	window, err := w.b.adapter.CreateMemoryWindow(w.b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	part := w.b.memory.Bytes()[memorySize/2:]
	if err := w.y.Bind(1, w.b.memory, window, part, nd.AllowWrite|nd.AllowRead); err != nil {
		t.Fatal(err)
	}
	if r := w.b.result(t); r.Status != nd.Success {
		t.Fatalf("bind: %+v", r)
	}
	far, err := w.far.Slice(memorySize/2, memorySize/2)
	if err != nil {
		t.Fatal(err)
	}
	far.Token = window.RemoteToken()
	return window, far
}

// No byte changes after an Invalidate has completed, with Writes on their way in every stage. SOFTND_REVOKE sets how long
// it is tried, such as 60s.
func TestInvalidateAgainstWrites(t *testing.T) {
	rounds, end := 40, time.Time{}
	if testing.Short() {
		rounds = 5
	}
	if text := os.Getenv("SOFTND_REVOKE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		end = time.Now().Add(d)
	}
	a, b := newHosts(t, settings{})
	a.rank.ctx, b.rank.ctx = context.Background(), context.Background()
	failed, i := 0, 0
	for ; i < rounds || time.Now().Before(end); i++ {
		w := connect(t, a, b, nd.EndpointConfig{InitiatorDepth: 64})
		window, far := w.bind(t)
		stop := make(chan nd.Status, 1)
		go func() { // writes as fast as it can, until a Write fails
			for n := uint64(0); ; n++ {
				pattern(w.a.memory.Bytes()[:256<<10], int(n))
				for range 8 {
					if err := nd.WriteTo(w.x, n, w.a.sge(0, 256<<10), far, 0); err != nil {
						stop <- nd.StatusOf(err)
						return
					}
				}
				var results [8]nd.Result
				for have := 0; have < 8; {
					k, err := w.a.queue.Wait(w.a.ctx, results[:8-have])
					if err != nil {
						stop <- nd.StatusOf(err)
						return
					}
					for _, r := range results[:k] {
						if r.Status != nd.Success {
							for left := 8 - have - k; left > 0; left -= k {
								k, _ = w.a.queue.Wait(w.a.ctx, results[:left])
							}
							stop <- r.Status
							return
						}
					}
					have += k
				}
			}
		}()
		proctest.Eventually(t, "the first bytes", func() bool { return !bytes.Equal(w.b.memory.Bytes()[memorySize/2:memorySize/2+64], make([]byte, 64)) })
		time.Sleep(time.Duration(i%7) * 300 * time.Microsecond)
		if err := w.y.Invalidate(2, window, 0); err != nil {
			t.Fatal(err)
		}
		if r := w.b.result(t); r.Status != nd.Success {
			t.Fatalf("invalidate: %+v", r)
		}
		mine := w.b.memory.Bytes()[memorySize/2:]
		for j := range mine {
			mine[j] = 0xee
		}
		if s := proctest.Receive(t, "the failure of a Write", stop); s == nd.AccessViolation {
			failed++
		} else {
			t.Errorf("a Write has failed with %v", s)
		}
		if !bytes.Equal(mine, bytes.Repeat([]byte{0xee}, len(mine))) {
			t.Fatal("a byte has changed after the invalidation")
		}
		clear(mine)
		w.x.Close()
		w.y.Close()
	}
	t.Logf("%d of %d Writes were refused in flight", failed, i)
}

// Streams in both directions at the same time, of more requests than any queue or buffer holds.
func TestStreams(t *testing.T) {
	forEach(t, func(t *testing.T, w *wire) {
		total := 600
		if testing.Short() {
			total = 150
		}
		done := make(chan error, 2)
		stream := func(n *rank, ep nd.Endpoint, far nd.WindowDescriptor, base int) {
			done <- func() error {
				var results [32]nd.Result
				for posted, completed := 0, 0; completed < total; {
					for posted < total && posted-completed < 32 {
						size := sizes[1+posted/3%10] // written twice, then read
						to, err := far.Slice(base, size)
						if err == nil && posted%3 == 2 {
							err = nd.ReadFrom(ep, uint64(posted), n.sge(base+128<<10, size), to, 0)
						} else if err == nil {
							err = nd.WriteTo(ep, uint64(posted), n.sge(base, size), to, 0)
						}
						if err != nil {
							return err
						}
						posted++
					}
					k, err := n.queue.Wait(n.ctx, results[:])
					if err != nil {
						return err
					}
					for _, r := range results[:k] {
						if r.Status != nd.Success || r.RequestContext != uint64(completed) {
							return fmt.Errorf("result %+v, want a success of request %d: %w", r, completed, ep.Err())
						}
						completed++
					}
				}
				return nil
			}()
		}
		pattern(w.a.memory.Bytes()[:1<<20], 1)
		pattern(w.b.memory.Bytes()[1<<20:], 2)
		go stream(w.a, w.x, w.far, 0)
		go stream(w.b, w.y, w.near, 1<<20)
		for range 2 {
			if err := proctest.Receive(t, "the end of a stream", done); err != nil {
				t.Fatal(err)
			}
		}
		const n = 65537
		for _, x := range []struct {
			from, to *rank
			base     int
		}{{w.a, w.b, 0}, {w.b, w.a, 1 << 20}} {
			want := x.from.memory.Bytes()[x.base:][:n]
			if !bytes.Equal(x.to.memory.Bytes()[x.base:][:n], want) || !bytes.Equal(x.from.memory.Bytes()[x.base+128<<10:][:n], want) {
				t.Error("the data of a stream is damaged")
			}
		}
	})
}

// A long request that is refused at its first part fails while the rest is still at the host of its process.
func TestLongRequestIsRefusedEarly(t *testing.T) {
	forEach(t, func(t *testing.T, w *wire) {
		to, err := w.far.Slice(0, memorySize)
		if err != nil {
			t.Fatal(err)
		}
		parts := nd.List(w.a.sge(0, memorySize/2).First, w.a.sge(memorySize/2, memorySize/2).First)
		if err := w.x.Write(1, parts, to.Address+1, to.Token, 0); err != nil {
			t.Fatal(err)
		}
		if r := w.a.result(t); r.Status != nd.AccessViolation || nd.StatusOf(w.x.Err()) != nd.AccessViolation {
			t.Errorf("%+v: %v", r, w.x.Err())
		}
	})
}
