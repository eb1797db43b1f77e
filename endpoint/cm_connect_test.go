package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/wire"
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
	r := d.obey(order{Do: doListen, N: backlog})
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
	r := d.obey(order{Do: doEndpoint})
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

func privateDataOf(t *testing.T, c nd.Connector) []byte {
	t.Helper()
	buf := make([]byte, 2*wire.MaxPrivateData)
	n, err := c.GetPrivateData(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestPrivateData(t *testing.T) {
	a, b, addr := strangersPair(t)
	for _, n := range []int{0, 1, 40, wire.MaxPrivateData} {
		called, answer := make([]byte, n), make([]byte, wire.MaxPrivateData-n)
		fill(called, uint64(n)+1)
		fill(answer, uint64(n)+2)
		ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
		_, err := ca.GetPrivateData(nil)
		wantStatus(t, err, nd.ConnectionInvalid)
		connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{PrivateData: called}) })
		cb := b.request()
		if got := privateDataOf(t, cb); !bytes.Equal(got, called) {
			t.Errorf("%d bytes of the caller arrive as %d", n, len(got))
		}
		accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{PrivateData: answer}) })
		a.good(<-connected)
		for range 2 {
			if got := privateDataOf(t, ca); !bytes.Equal(got, answer) {
				t.Errorf("%d bytes of the answer arrive as %d", len(answer), len(got))
			}
			if got := privateDataOf(t, cb); !bytes.Equal(got, called) {
				t.Errorf("%d bytes of the caller arrive as %d", n, len(got))
			}
			if e := ca.CompleteConnect(a.ctx); e != nil {
				wantStatus(t, e, nd.ConnectionInvalid) // the second call
			}
		}
		a.good(<-accepted)

		for _, short := range []int{0, len(answer) / 2, len(answer) - 1} {
			if short < 0 || short == len(answer) {
				continue
			}
			buf := make([]byte, short)
			got, err := ca.GetPrivateData(buf)
			wantStatus(t, err, nd.BufferOverflow)
			if got != len(answer) || !bytes.Equal(buf, answer[:short]) {
				t.Errorf("%d bytes into %d: needed are said to be %d", len(answer), short, got)
			}
		}
	}
}

// TestPrivateDataTooLong: the call fails and has no effect.
func TestPrivateDataTooLong(t *testing.T) {
	a, b, addr := strangersPair(t)
	tooMuch := nd.ConnectParams{PrivateData: make([]byte, wire.MaxPrivateData+1)}
	ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
	wantStatus(t, ca.Connect(a.ctx, ea, addr, tooMuch), nd.InvalidBufferSize)
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
	cb := b.request()
	wantStatus(t, cb.Accept(b.ctx, eb, tooMuch), nd.InvalidBufferSize)
	wantStatus(t, cb.Reject(tooMuch.PrivateData), nd.InvalidBufferSize)
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
}

func TestReadLimits(t *testing.T) {
	type limits struct{ in, out int }
	a, b, addr := strangersPair(t)
	for _, c := range []struct {
		active, passive          limits
		atRequest, atEnd, atPeer limits // the passive side at the request and at the end, and the active side
	}{
		{limits{100, 50}, limits{8, 4}, limits{50, 100}, limits{8, 4}, limits{4, 8}},
		{limits{4, 4}, limits{100, 100}, limits{4, 4}, limits{4, 4}, limits{4, 4}},
		{limits{1, 2}, limits{3, 4}, limits{2, 1}, limits{2, 1}, limits{1, 2}},
		{limits{1000, 1000}, limits{1000, 1000}, limits{maxReads, maxReads}, limits{maxReads, maxReads}, limits{maxReads, maxReads}},
		{limits{6, 0}, limits{5, 5}, limits{0, 6}, limits{0, 5}, limits{5, 0}},
		{limits{-3, 2}, limits{2, -3}, limits{2, 0}, limits{2, 0}, limits{0, 2}},
	} {
		got := func(side string, x nd.Connector, want limits) {
			t.Helper()
			in, out, err := x.ReadLimits()
			if err != nil || in != want.in || out != want.out {
				t.Errorf("%+v with %+v: %s has %d and %d (%v), want %+v", c.active, c.passive, side, in, out, err, want)
			}
		}
		ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
		_, _, err := ca.ReadLimits()
		wantStatus(t, err, nd.ConnectionInvalid)
		connected := soon(func() error {
			return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{InboundReadLimit: c.active.in, OutboundReadLimit: c.active.out})
		})
		cb := b.request()
		got("the passive side at first", cb, c.atRequest)
		accepted := soon(func() error {
			return cb.Accept(b.ctx, eb, nd.ConnectParams{InboundReadLimit: c.passive.in, OutboundReadLimit: c.passive.out})
		})
		a.good(<-connected)
		got("the active side", ca, c.atPeer)
		a.good(ca.CompleteConnect(a.ctx))
		a.good(<-accepted)
		got("the passive side at last", cb, c.atEnd)
		got("the active side at last", ca, c.atPeer)
	}
}

// TestReadWithLimitZero: a Read fails when it is executed if the limit is 0.
func TestReadWithLimitZero(t *testing.T) {
	for _, s := range someSetups(setup{Unwired: true}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			addr := p.b.must(order{Do: doListen}).Addr
			accepted := p.b.start(order{Do: doAccept, In: 5, Out: 5})
			p.a.must(order{Do: doConnect, Addr: addr, In: 5, Out: 0})
			p.a.must(order{Do: doComplete})
			<-accepted
			p.b.must(order{Do: doRead, Context: 1, Parts: mine(0, 8), Far: p.a.memory})
			p.b.expect(initiatorQueue, success(nd.RequestRead, 1, 8))
			p.a.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: p.b.memory})
			p.a.must(order{Do: doRead, Context: 3, Parts: mine(0, 8), Far: p.b.memory})
			p.a.must(order{Do: doWrite, Context: 4, Parts: mine(0, 8), Far: p.b.memory})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 2, 8), failure(nd.RequestRead, 3, nd.InvalidDeviceRequest),
				failure(nd.RequestWrite, 4, nd.Canceled))
			p.b.must(order{Do: doNotify})
		})
	}
}

// TestReadsBeyondLimitWait: Reads beyond the limit wait.
func TestReadsBeyondLimitWait(t *testing.T) {
	onEvery(t, setup{ReadLimit: 1}, func(t *testing.T, p *pair) {
		p.b.fill(0, 0, 10_000, 1)
		var want []nd.Result
		for i := range uint64(40) {
			p.a.must(order{Do: doRead, Context: i, Parts: mine(int(i)*250, 250), Far: at(p.b.memory, int(i)*250)})
			want = append(want, success(nd.RequestRead, i, 250))
		}
		p.a.expect(initiatorQueue, want...)
		if p.a.sum(0, 0, 10_000) != p.b.sum(0, 0, 10_000) {
			t.Error("the data differ")
		}
	})
}

// TestConnectRetryAfterRefusal: the same connector and endpoint can connect after a refusal.
func TestConnectRetryAfterRefusal(t *testing.T) {
	a, b, addr := strangersPair(t)
	noListener := netip.AddrPortFrom(addr.Addr(), 9)
	bound, err := b.adapter.CreateListener(b.ctx)
	b.good(err)
	defer bound.Close()
	b.good(bound.Bind(netip.AddrPortFrom(addr.Addr(), 10)))
	ca, ea := a.connector(), a.endpoint()
	a.good(ca.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 77)))
	for range 3 {
		for _, to := range []netip.AddrPort{noListener, netip.AddrPortFrom(addr.Addr(), 10)} {
			wantStatus(t, ca.Connect(a.ctx, ea, to, nd.ConnectParams{}), nd.ConnectionRefused)
			if got := privateDataOf(t, ca); len(got) != 0 {
				t.Errorf("private data of no peer: %q", got)
			}
		}
		empty := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, 7, 7}), addr.Port())
		wantStatus(t, ca.Connect(a.ctx, ea, empty, nd.ConnectParams{}), nd.HostUnreachable)
		refused := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
		b.good(b.request().Reject([]byte("not now")))
		wantStatus(t, <-refused, nd.ConnectionRefused)
		if got := privateDataOf(t, ca); string(got) != "not now" {
			t.Errorf("data of a rejection: %q", got)
		}
		if err := ea.Err(); err != nil {
			t.Errorf("the endpoint has suffered: %v", err)
		}
	}
	wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionInvalid)
	// The local address may change in between.
	a.good(ca.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)))
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
	cb, eb := b.request(), b.endpoint()
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
	if free := a.provider.ports.used[77]; free {
		t.Error("the port that was given up is still in use")
	}
}

// TestConnectWrongAddresses: Connect and Bind refuse wrong addresses at once.
func TestConnectWrongAddresses(t *testing.T) {
	a, b, addr := strangersPair(t)
	ca, ea := a.connector(), a.endpoint()
	for to, want := range map[netip.AddrPort]nd.Status{
		netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port()): nd.BadNetworkName,
		netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port()): nd.BadNetworkName,
		{}:                                      nd.BadNetworkName,
		netip.MustParseAddrPort("10.1.2.3:5"):   nd.NetworkUnreachable,
		netip.MustParseAddrPort("127.0.0.1:5"):  nd.NetworkUnreachable,
		netip.MustParseAddrPort("[::1]:5"):      nd.NetworkUnreachable,
		netip.MustParseAddrPort("127.77.0.0:5"): nd.HostUnreachable,
	} {
		if err := ca.Connect(a.ctx, ea, to, nd.ConnectParams{}); nd.StatusOf(err) != want {
			t.Errorf("connect to %v: %v, want %v", to, err, want)
		}
	}
	for _, c := range []interface{ Bind(netip.AddrPort) error }{ca, must(a.adapter.CreateListener(a.ctx))} {
		wantStatus(t, c.Bind(addr), nd.InvalidAddress) // the peer's
		wantStatus(t, c.Bind(netip.MustParseAddrPort("192.168.0.1:0")), nd.InvalidAddress)
	}
	other := must(a.provider.OpenAdapter(a.ctx, a.provider.adapterID()))
	stranger := must(other.CreateConnector(a.ctx))
	defer stranger.Close()
	wantStatus(t, stranger.Connect(a.ctx, ea, addr, nd.ConnectParams{}), nd.InvalidParameter1)
	wantStatus(t, ca.Connect(a.ctx, nil, addr, nd.ConnectParams{}), nd.InvalidParameter1)
	wantStatus(t, ca.Connect(a.ctx, b.endpoint(), addr, nd.ConnectParams{}), nd.InvalidParameter1)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// TestConnectWithdrawn: the active side withdraws at each moment and in each way.
func TestConnectWithdrawn(t *testing.T) {
	for name, giveUp := range map[string]func(c nd.Connector, cancel context.CancelFunc){
		"context":   func(_ nd.Connector, cancel context.CancelFunc) { cancel() },
		"connector": func(c nd.Connector, _ context.CancelFunc) { c.Close() },
	} {
		t.Run("before the request is read/"+name, func(t *testing.T) {
			a, b, addr := strangersPair(t)
			l := b.listener.(*listener)
			ctx, cancel := context.WithCancel(a.ctx)
			defer cancel()
			ca, ea := a.connector(), a.endpoint()
			connected := soon(func() error { return ca.Connect(ctx, ea, addr, nd.ConnectParams{}) })
			proctest.Eventually(t, "the request is there", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.queue) == 1 })
			giveUp(ca, cancel)
			wantStatus(t, <-connected, nd.Canceled)
			// The passive side never gets the request.
			other := a.connector()
			connected = soon(func() error { return other.Connect(a.ctx, ea, addr, nd.ConnectParams{PrivateData: []byte("second")}) })
			if got := privateDataOf(t, b.request()); string(got) != "second" {
				t.Errorf("the request is %q", got)
			}
			_ = other.Close()
			wantStatus(t, <-connected, nd.Canceled)
		})
		t.Run("before Accept/"+name, func(t *testing.T) {
			a, b, addr := strangersPair(t)
			ctx, cancel := context.WithCancel(a.ctx)
			defer cancel()
			ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
			connected := soon(func() error { return ca.Connect(ctx, ea, addr, nd.ConnectParams{PrivateData: []byte("hello")}) })
			cb := b.request()
			giveUp(ca, cancel)
			wantStatus(t, <-connected, nd.Canceled)
			_, err := cb.GetPrivateData(make([]byte, 10))
			wantStatus(t, err, nd.ConnectionAborted)
			wantStatus(t, cb.Accept(b.ctx, eb, nd.ConnectParams{}), nd.ConnectionAborted)
			wantStatus(t, cb.Reject(nil), nd.ConnectionInvalid)
		})
	}
	for name, giveUp := range map[string]func(c nd.Connector){
		"rejects": func(c nd.Connector) {
			if err := c.Reject([]byte("sorry")); err != nil {
				t.Error(err)
			}
		},
		"closes": func(c nd.Connector) { c.Close() },
	} {
		t.Run("after Accept/"+name, func(t *testing.T) {
			a, b, addr := strangersPair(t)
			ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			b.good(eb.Receive(7, nil))
			accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
			a.good(<-connected)
			giveUp(ca)
			wantStatus(t, <-accepted, nd.ConnectionRefused)
			if name == "rejects" {
				if got := privateDataOf(t, cb); string(got) != "sorry" {
					t.Errorf("data of the rejection: %q", got)
				}
			}
			wantStatus(t, ca.CompleteConnect(a.ctx), map[string]nd.Status{"rejects": nd.ConnectionInvalid, "closes": nd.InvalidHandle}[name])
			if r := b.obey(order{Do: doWait, Queue: receiveQueue, N: 1}); r.Status != nd.Success || r.Results[0].Status != nd.Canceled {
				t.Errorf("the receive of the refused endpoint: %v", r)
			}
			wantStatus(t, cb.NotifyDisconnect(b.ctx), nd.ConnectionInvalid)
		})
	}
}

// TestAcceptWithdrawn: the passive side ends the connection after it has accepted.
func TestAcceptWithdrawn(t *testing.T) {
	for name, giveUp := range map[string]func(c nd.Connector, ep nd.Endpoint, cancel context.CancelFunc){
		"context":   func(_ nd.Connector, _ nd.Endpoint, cancel context.CancelFunc) { cancel() },
		"connector": func(c nd.Connector, _ nd.Endpoint, _ context.CancelFunc) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, addr := strangersPair(t)
			ctx, cancel := context.WithCancel(b.ctx)
			defer cancel()
			ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			accepted := soon(func() error { return cb.Accept(ctx, eb, nd.ConnectParams{}) })
			a.good(<-connected)
			giveUp(cb, eb, cancel)
			wantStatus(t, <-accepted, nd.Canceled)
			wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionAborted)
			wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionInvalid)
			wantStatus(t, ea.Send(1, nil, 0), nd.Success) // it has failed by now: the result says so
			wantStatus(t, ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}), nd.ConnectionActive)
		})
	}
}

// TestEndpointClosedWhileConnecting: an endpoint that is closed or flushed during Connect or
// Accept stays failed.
func TestEndpointClosedWhileConnecting(t *testing.T) {
	for name, end := range map[string]func(nd.Endpoint) error{"flush": nd.Endpoint.Flush, "close": nd.Endpoint.Close} {
		t.Run(name+" before the answer", func(t *testing.T) {
			a, b, addr := strangersPair(t)
			ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			a.good(end(ea))
			accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
			if err := <-connected; err == nil {
				wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionAborted)
			}
			if err := <-accepted; err == nil {
				t.Error("Accept succeeded without a peer")
			}
			if err := ea.Send(0, nil, 0); name == "close" {
				wantStatus(t, err, nd.ConnectionInvalid)
			}
		})
		t.Run(name+" before the completion", func(t *testing.T) {
			a, b, addr := strangersPair(t)
			ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
			a.good(<-connected)
			a.good(end(ea))
			wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionAborted)
			<-accepted // refused, or ended at once
			b.good(b.obeyed(order{Do: doFlush, Endpoint: len(b.endpoints) - 1}))
		})
	}
}

func (s *side) obeyed(o order) error { return s.obey(o).Status.Err() }

// TestConnectorHasOneConnection: second calls fail during and after connecting.
func TestConnectorHasOneConnection(t *testing.T) {
	a, b, addr := strangersPair(t)
	ca, ea, eb := a.connector(), a.endpoint(), b.endpoint()
	other, spare := a.connector(), a.endpoint()
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
	cb := b.request()
	check := func(moment string) {
		t.Helper()
		for what, err := range map[string]error{
			"connect": ca.Connect(a.ctx, spare, addr, nd.ConnectParams{}), "connect of the endpoint": other.Connect(a.ctx, ea, addr, nd.ConnectParams{}),
		} {
			if nd.StatusOf(err) != nd.ConnectionActive {
				t.Errorf("%s: %s again: %v", moment, what, err)
			}
		}
		if err := ca.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); nd.StatusOf(err) != nd.AddressAlreadyAssociated {
			t.Errorf("%s: bind again: %v", moment, err)
		}
		if err := b.listener.GetConnectionRequest(b.ctx, cb); nd.StatusOf(err) != nd.InvalidParameter1 {
			t.Errorf("%s: another request into the connector: %v", moment, err)
		}
	}
	check("while asking")
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	check("between Connect and CompleteConnect")
	wantStatus(t, cb.Accept(b.ctx, b.endpoint(), nd.ConnectParams{}), nd.ConnectionActive)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
	check("connected")
	wantStatus(t, cb.Accept(b.ctx, b.endpoint(), nd.ConnectParams{}), nd.ConnectionActive)
	wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionInvalid)
	wantStatus(t, ca.Reject(nil), nd.ConnectionInvalid)
	wantStatus(t, cb.Reject(nil), nd.ConnectionInvalid)

	// An endpoint in use leaves the request where it is.
	connected = soon(func() error { return other.Connect(a.ctx, spare, addr, nd.ConnectParams{}) })
	cb = b.request()
	wantStatus(t, cb.Accept(b.ctx, eb, nd.ConnectParams{}), nd.ConnectionActive)
	wantStatus(t, cb.Accept(b.ctx, ea, nd.ConnectParams{}), nd.InvalidParameter1)
	third := b.endpoint()
	accepted = soon(func() error { return cb.Accept(b.ctx, third, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(other.CompleteConnect(a.ctx))
	a.good(<-accepted)
	fresh := a.connector()
	wantStatus(t, fresh.Accept(a.ctx, a.endpoint(), nd.ConnectParams{}), nd.ConnectionInvalid)
	wantStatus(t, fresh.Reject(nil), nd.ConnectionInvalid)
}

// TestConnectionCallsCanceled: the error of a canceled call contains the context's cause.
func TestConnectionCallsCanceled(t *testing.T) {
	a, b, addr := strangersPair(t)
	cause := errors.New("a cause")
	_, cb, _, _ := connectEndpoints(a, b, addr)
	ca, ea := a.connector(), a.endpoint()
	for name, call := range map[string]func(ctx context.Context) error{
		"connect": func(ctx context.Context) error { return ca.Connect(ctx, ea, addr, nd.ConnectParams{}) },
		"get connection request": func(ctx context.Context) error {
			return a.listenerOf().GetConnectionRequest(ctx, must(a.adapter.CreateConnector(a.ctx)))
		},
		"notify": func(ctx context.Context) error { return cb.NotifyDisconnect(ctx) },
		"wait": func(ctx context.Context) error {
			_, err := a.queues[0].Wait(ctx, make([]nd.Result, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range []bool{true, false} {
				ctx, cancel := context.WithCancelCause(a.ctx)
				if before {
					cancel(cause)
				}
				done := soon(func() error { return call(ctx) })
				time.Sleep(time.Millisecond)
				cancel(cause)
				err := <-done
				wantStatus(t, err, nd.Canceled)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Errorf("%q tells neither of the context nor of its cause", err)
				}
			}
		})
	}
}

// listenerOf returns the side's listener, and creates it if there is none.
func (d dialer) listenerOf() nd.Listener {
	if d.side.listener == nil {
		d.listen(0)
	}
	return d.side.listener
}

// TestConnectCrossed: two sides connect to each other at the same time, and one of the requests
// is rejected.
func TestConnectCrossed(t *testing.T) {
	a, b, toB := strangersPair(t)
	toA := a.listen(0)
	for range 20 {
		ca, cb, ea, eb := a.connector(), b.connector(), a.endpoint(), b.endpoint()
		fromA := soon(func() error { return ca.Connect(a.ctx, ea, toB, nd.ConnectParams{}) })
		fromB := soon(func() error { return cb.Connect(b.ctx, eb, toA, nd.ConnectParams{}) })
		atA, atB := a.request(), b.request()
		a.good(atA.Reject(nil))
		wantStatus(t, <-fromB, nd.ConnectionRefused)
		accepted := soon(func() error { return atB.Accept(b.ctx, eb, nd.ConnectParams{}) })
		a.good(<-fromA)
		a.good(ca.CompleteConnect(a.ctx))
		a.good(<-accepted)
	}
}

// TestConnectToSelf connects two endpoints of one process and one adapter.
func TestConnectToSelf(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/private=%v", executor, private), func(t *testing.T) {
				arena := newArena(t)
				p := newParty(t, arena, "self", sideOptions{Options: Options{Executor: executor}, Private: private}, false)
				memory := p.region(0)
				me := dialer{t, p.local}
				ca, cb, _, _ := connectEndpoints(me, me, me.listen(0)) // endpoints 1 and 2
				p.fill(0, 0, 100_000, 1)
				of := func(r nd.Result, ep int) nd.Result { r.EndpointContext = endpointContext(ep); return r }
				for _, n := range []int{8, 1000, 100_000} {
					p.must(order{Do: doReceive, Endpoint: 2, Context: 1, Parts: mine(130_000, n)})
					p.must(order{Do: doSend, Endpoint: 1, Context: 2, Parts: mine(0, n)})
					p.expect(initiatorQueue, of(success(nd.RequestSend, 2, n), 1))
					p.expect(receiveQueue, of(success(nd.RequestReceive, 1, n), 2))
					p.must(order{Do: doWrite, Endpoint: 2, Context: 3, Parts: mine(0, n), Far: at(memory, 150_000)})
					p.expect(initiatorQueue, of(success(nd.RequestWrite, 3, n), 2))
					if p.sum(0, 150_000, n) != p.sum(0, 0, n) {
						t.Errorf("%d bytes: the data differ", n)
					}
				}
				w := p.window()
				d := p.must(order{Do: doBind, Endpoint: 1, Context: 4, Window: w, Len: 8, Flags: nd.AllowRead}).Far
				p.must(order{Do: doInvalidate, Endpoint: 1, Context: 5, Window: w})
				p.expect(initiatorQueue, of(success(nd.RequestBind, 4, 0), 1), of(success(nd.RequestInvalidate, 5, 0), 1))
				p.must(order{Do: doRead, Endpoint: 2, Context: 6, Parts: mine(0, 8), Far: d})
				p.expect(initiatorQueue, of(failure(nd.RequestRead, 6, nd.AccessViolation), 2))
				me.good(ca.NotifyDisconnect(me.ctx))
				wantStatus(t, cb.Disconnect(me.ctx), nd.ConnectionAborted)
				// An endpoint cannot be connected to itself.
				c, ep := me.connector(), me.endpoint()
				done := soon(func() error { return c.Connect(me.ctx, ep, must(me.listenerOf().LocalAddress()), nd.ConnectParams{}) })
				wantStatus(t, me.request().Accept(me.ctx, ep, nd.ConnectParams{}), nd.ConnectionActive)
				c.Close()
				wantStatus(t, <-done, nd.Canceled)
			})
		}
	}
}

// TestConnectionsLeaveNothingBehind: connections that have ended hold no memory and no resources.
func TestConnectionsLeaveNothingBehind(t *testing.T) {
	const cycles, atOnce = 50, 4
	for _, s := range []setup{{Unwired: true}, {Unwired: true, Processes: true}} {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			addr := p.b.must(order{Do: doListen}).Addr
			before := [2]int{p.a.must(order{Do: doInUse}).N, p.b.must(order{Do: doInUse}).N}
			var all sync.WaitGroup
			for lane := range atOnce {
				all.Go(func() {
					for i := range cycles {
						graceful := (i+lane)%3 != 0
						served := p.b.start(order{Do: doServe})
						r := p.a.do(order{Do: doVisit, Addr: addr, Data: []byte(fmt.Sprint(graceful))})
						if r.Status != nd.Success {
							t.Errorf("a: %s", r.Text)
						}
						if r := <-served; r.Status != nd.Success {
							t.Errorf("b: %s", r.Text)
						}
						if t.Failed() {
							return
						}
					}
				})
			}
			all.Wait()
			for i, x := range []*party{p.a, p.b} {
				proctest.Eventually(t, x.name+"'s memory is free again", func() bool { return x.must(order{Do: doInUse}).N == before[i] })
			}
			prov := p.a.local.provider
			prov.mu.Lock()
			defer prov.mu.Unlock()
			if len(prov.conns) != 0 || len(*prov.endpoints.Load()) != 1 {
				t.Errorf("%d connections and %d endpoints are left", len(prov.conns), len(*prov.endpoints.Load()))
			}
			if n := len(prov.ports.used); n != 0 {
				t.Errorf("%d ports are left", n)
			}
		})
	}
}

// visit connects, exchanges a message each way, and ends the connection: gracefully if the
// private data are "true", else by Close.
func (s *side) visit(ctx context.Context, o order) (err error) {
	return s.meet(ctx, func(c nd.Connector, ep nd.Endpoint) (graceful bool, err error) {
		err = errors.Join(c.Connect(ctx, ep, o.Addr, nd.ConnectParams{PrivateData: o.Data}), c.CompleteConnect(ctx))
		return string(o.Data) == "true", err
	})
}

func (s *side) serve(ctx context.Context) error {
	return s.meet(ctx, func(c nd.Connector, ep nd.Endpoint) (graceful bool, err error) {
		if err := s.listener.GetConnectionRequest(ctx, c); err != nil {
			return false, err
		}
		how := make([]byte, 8)
		n, err := c.GetPrivateData(how)
		return string(how[:n]) == "true", errors.Join(err, c.Accept(ctx, ep, nd.ConnectParams{}))
	})
}

// meet ends the connection gracefully if connect says so, else by Close.
func (s *side) meet(ctx context.Context, connect func(nd.Connector, nd.Endpoint) (graceful bool, err error)) error {
	cq, err := s.adapter.CreateCompletionQueue(ctx, 8)
	if err != nil {
		return err
	}
	defer cq.Close()
	ep, err := s.adapter.CreateEndpoint(ctx, nd.EndpointConfig{Receive: cq, Initiator: cq})
	if err != nil {
		return err
	}
	defer ep.Close()
	c, err := s.adapter.CreateConnector(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := ep.Receive(1, nil); err != nil {
		return err
	}
	graceful, err := connect(c, ep)
	if err == nil {
		err = ep.Send(2, nil, 0)
	}
	if err != nil {
		return err
	}
	var seen []uint64
	for len(seen) < 2 {
		var r [1]nd.Result
		if _, err := cq.Wait(ctx, r[:]); err != nil {
			return err
		}
		if r[0].Status != nd.Success {
			if !graceful {
				return nil // the other side has ended it already
			}
			return fmt.Errorf("result %v: %w", r[0], ep.Err())
		}
		seen = append(seen, r[0].RequestContext)
	}
	if slices.Sort(seen); !slices.Equal(seen, []uint64{1, 2}) {
		return fmt.Errorf("results %v", seen)
	}
	if !graceful {
		return nil
	}
	return c.Disconnect(ctx)
}

// TestConnectorClosed: all calls on a closed connector fail.
func TestConnectorClosed(t *testing.T) {
	a, b, addr := strangersPair(t)
	connected, _, _, _ := connectEndpoints(a, b, addr)
	for _, c := range []nd.Connector{a.connector(), connected} {
		for range 2 {
			a.good(c.Close())
		}
		ep := a.endpoint()
		_, _, limits := c.ReadLimits()
		_, data := c.GetPrivateData(nil)
		_, local := c.LocalAddress()
		_, peer := c.PeerAddress()
		for what, err := range map[string]error{
			"bind":         c.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)),
			"connect":      c.Connect(a.ctx, ep, addr, nd.ConnectParams{}),
			"complete":     c.CompleteConnect(a.ctx),
			"accept":       c.Accept(a.ctx, ep, nd.ConnectParams{}),
			"reject":       c.Reject(nil),
			"notify":       c.NotifyDisconnect(a.ctx),
			"disconnect":   c.Disconnect(a.ctx),
			"read limits":  limits,
			"private data": data,
			"local":        local,
			"peer":         peer,
		} {
			if nd.StatusOf(err) != nd.InvalidHandle {
				t.Errorf("%s on a closed connector: %v", what, err)
			}
		}
	}
}

// TestCompleteConnectNamesOwnEnd: if the own endpoint has ended the connection, the error does not blame the other side.
func TestCompleteConnectNamesOwnEnd(t *testing.T) {
	for name, end := range map[string]func(ep nd.Endpoint) error{"flushed": nd.Endpoint.Flush, "closed": nd.Endpoint.Close} {
		t.Run(name, func(t *testing.T) {
			a, b, addr := strangersPair(t)
			ca, ea := a.connector(), a.endpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			accepted := soon(func() error { return cb.Accept(b.ctx, b.endpoint(), nd.ConnectParams{}) })
			a.good(<-connected)
			a.good(end(ea))
			wantStatus(t, <-accepted, nd.ConnectionRefused)
			err := ca.CompleteConnect(a.ctx)
			wantStatus(t, err, nd.ConnectionAborted)
			if !strings.Contains(err.Error(), "the endpoint was "+name) || strings.Contains(err.Error(), "passive") {
				t.Error(err)
			}
		})
	}
}
