package relay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/ofi"
)

// relayState is what a relay uses.
type relayState struct {
	Error                                                string
	Tunnels, Links, Goroutines, Descriptors, FreeBuffers int
	Linked                                               int    // links on which a frame has arrived
	InUse                                                uint64 // of the arena
}

// joinRelay links a relay to that of a host, and waits until it may send frames.
func joinRelay(r *Relay, control string, host uint16) error {
	conn, err := net.Dial("tcp", control)
	if err != nil {
		return err
	}
	session, err := handshake.Dial(conn, r.HandshakeConfig(), host)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	r.Link(conn, session)
	for end := time.Now().Add(proctest.Timeout); ; time.Sleep(time.Millisecond) {
		var ended, ready bool
		done := make(chan struct{})
		r.do(func() {
			l := r.links[session.Inbound]
			ended, ready = l == nil, l != nil && l.ready
			close(done)
		})
		<-done
		if ready {
			return nil
		}
		if ended || time.Now().After(end) {
			return errors.New("the link does not begin")
		}
	}
}

// state counts what a relay uses.
func (r *Relay) state() (s relayState) {
	done := make(chan struct{})
	r.do(func() {
		defer close(done)
		for _, t := range r.tunnels {
			if t != nil {
				s.Tunnels++
			}
		}
		s.Links, s.FreeBuffers = len(r.links), r.ofi.FreeBuffers()
		for _, l := range r.links {
			if l.linked {
				s.Linked++
			}
		}
	})
	<-done
	s.Goroutines = runtime.NumGoroutine()
	s.InUse = r.member.InUse()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.Error = err.Error()
	}
	s.Descriptors = len(entries)
	return s
}

// A receive that fails ends no link, because it may have been of a stranger. If a frame was lost, the link that lacks it ends, and no
// other one.
func TestLostFrame(t *testing.T) {
	a, b := newHosts(t, settings{keepalive: 5 * time.Second}) // the time that a busy machine has, and that the loss takes
	c := newHost(t, 2, settings{})
	must(t, joinRelay(c.relay, b.control, 1))
	w, other := connect(t, a, b, nd.EndpointConfig{}), connect(t, c, b, nd.EndpointConfig{})
	works := func(w *wire) {
		t.Helper()
		must(t, w.y.Receive(1, w.b.sge(0, 64)))
		must(t, w.x.Send(2, w.a.sge(0, 64), 0))
		for _, n := range []*rank{w.a, w.b} {
			if r := n.result(t); r.Status != nd.Success {
				t.Fatalf("%+v, %v, %v", r, w.x.Err(), w.y.Err())
			}
		}
	}
	for range 3 {
		b.relay.do(func() { b.relay.operationFailed(&ofi.Error{Call: "fi_recv", Code: int(unix.ECANCELED), Buffer: -1}) })
	}
	works(w)
	works(other)
	must(t, a.onLink(func(l *link) error { l.sent++; return nil })) // a frame that does not arrive
	must(t, w.x.Send(3, w.a.sge(0, 64), 0))
	if r := w.a.result(t); r.Status != nd.Canceled {
		t.Errorf("a Send after the lost frame: %+v", r)
	}
	proctest.Eventually(t, "the end of one link", func() bool { return b.relay.state().Links == 1 })
	works(other)
}

// If the first connection of the provider breaks, the Hello is sent again, and the other relay ignores a second one.
func TestHelloAgain(t *testing.T) {
	a, b := newHosts(t, settings{keepalive: time.Minute}) // a Ping after the Hello would hide it
	proctest.Eventually(t, "the Hello", func() bool {
		var sent bool
		must(t, a.onLink(func(l *link) error {
			if sent = l.sent > 0; !sent {
				return nil
			}
			l.frameFailed(errCredits)
			if l.broken != nil || l.hasRoom() {
				return errors.New("the link has ended, or other frames overtake the Hello")
			}
			return nil
		}))
		return sent
	})
	proctest.Eventually(t, "the Hello is sent again", func() bool {
		return a.onLink(func(l *link) error {
			if l.hello.cause != nil || !l.hasRoom() {
				return errors.New("not yet")
			}
			return nil
		}) == nil
	})
	w := connect(t, a, b, nd.EndpointConfig{})
	must(t, w.y.Receive(1, w.b.sge(0, 64)))
	must(t, w.x.Send(2, w.a.sge(0, 64), 0))
	for _, n := range []*rank{w.a, w.b} {
		if r := n.result(t); r.Status != nd.Success {
			t.Fatalf("%+v, %v, %v", r, w.x.Err(), w.y.Err())
		}
	}
	must(t, a.onLink(func(l *link) error {
		if l.frameFailed(errCredits); l.broken == nil {
			return errors.New("a later frame is sent again")
		}
		return nil
	}))
}

// A frame may fail because the other relay has left. If the control connection says so, that is the cause.
func TestCauseOfFailedFrame(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		t.Run(fmt.Sprintf("leaves %t", leaves), func(t *testing.T) {
			want := errCredits
			if leaves {
				want = errLeft
			}
			for keepalive := range proctest.Limits(t, "the cause", time.Second) { // a busy machine may be silent for longer
				err := failFrame(t, keepalive, leaves)
				if errors.Is(err, want) {
					break
				}
				t.Logf("keepalive %v: %v, want %v", keepalive, err, want)
			}
		})
	}
}

// failFrame returns why the link ends of which a frame has failed.
func failFrame(t *testing.T, keepalive time.Duration, leaves bool) error {
	a, b := newHosts(t, settings{keepalive: keepalive})
	ended := make(chan error, 2)
	a.relay.do(func() {
		a.relay.config.Linked = func(_ uint16, err error) {
			if err != nil {
				ended <- err
			}
		}
		if len(a.relay.links) == 0 {
			ended <- errors.New("the link has ended before")
		}
		for _, l := range a.relay.links {
			if l.failed != nil {
				ended <- l.failed
				continue
			}
			if l.sendFailed(errCredits); l.hasRoom() || l.failed != nil {
				t.Error("frames are sent, or the link has ended")
			}
		}
	})
	if leaves {
		b.relay.cancel()
	}
	return proctest.Receive(t, "the end of the link", ended)
}

// A Withdraw may wait for credits when Accept arrives. It is sent all the same, and the link goes on.
func TestWithdrawAfterAccept(t *testing.T) {
	a, b := newHosts(t, settings{})
	connect(t, a, b, nd.EndpointConfig{})
	var x, y *tunnel
	must(t, a.onLink(func(l *link) error { x = l.newTunnel(refused); return nil })) // step leaves it alone
	must(t, b.onLink(func(l *link) error { y = l.newTunnel(offered); y.remote = x.number; return nil }))
	must(t, a.onLink(func(l *link) error {
		x.state = asked
		x.withdraw()
		return x.opened(&frame.Frame{Kind: frame.Accept, Payload: (&frame.Connect{Tunnel: y.number}).Append(nil)})
	}))
	proctest.Eventually(t, "the end of the tunnel", func() bool { return a.relay.state().Tunnels <= 1 && b.relay.state().Tunnels <= 1 })
	if n := a.relay.state().Links; n != 1 {
		t.Errorf("%d links", n)
	}
}

// A link that has ended leaves no goroutine behind, and its tunnels have given all memory back.
func TestEndedLinksLeaveNothing(t *testing.T) {
	a, b := newHosts(t, settings{})
	var goroutines int
	var inUse [2]uint64
	for i := range 12 {
		if i > 0 {
			if err := joinRelay(a.relay, b.control, 1); err != nil {
				t.Fatal(err)
			}
		}
		w := connect(t, a, b, nd.EndpointConfig{})
		do := make(chan struct{})
		a.relay.do(func() {
			defer close(do)
			for _, l := range a.relay.links {
				l.conn.Close()
			}
		})
		<-do
		w.x.Close()
		w.y.Close()
		w.cx.Close()
		w.cy.Close()
		noTunnels(t, a, b)
		proctest.Eventually(t, "the end of the link", func() bool { return a.relay.state().Links+b.relay.state().Links == 0 })
		memory := func() [2]uint64 { return [2]uint64{a.relay.member.InUse(), b.relay.member.InUse()} }
		if i == 1 { // the first one has made what is made once
			goroutines, inUse = runtime.NumGoroutine(), memory()
		}
		if i > 1 {
			proctest.Eventually(t, "no more goroutines than after link 1", func() bool { return runtime.NumGoroutine() <= goroutines })
			proctest.Eventually(t, "no more memory than after link 1", func() bool {
				now := memory()
				return now[0] <= inUse[0] && now[1] <= inUse[1] // the endpoints of link 1 may have been freed later
			})
		}
	}
}

// A relay that was stopped for longer than its keepalive time may have read nothing of a link. It does not take that one for dead.
func TestStoppedRelayKeepsItsLinks(t *testing.T) {
	a, b := newHosts(t, settings{})
	connect(t, a, b, nd.EndpointConfig{})
	links := 0
	must(t, a.onLink(func(l *link) error {
		l.silent = true
		resumed := time.Now().Add(time.Minute)
		a.relay.checkLinks(resumed)
		links = len(a.relay.links)
		a.relay.checkLinks(resumed.Add(a.relay.config.Keepalive / 8))
		links += len(a.relay.links)
		l.heard = time.Now()
		return nil
	}))
	if links != 2 {
		t.Error("the link has ended")
	}
}
