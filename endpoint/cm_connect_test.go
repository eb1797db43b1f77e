package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

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
	a, b, addr := unconnectedPair(t)
	for _, n := range []int{0, 1, 40, wire.MaxPrivateData} {
		called, answer := make([]byte, n), make([]byte, wire.MaxPrivateData-n)
		fill(called, uint64(n)+1)
		fill(answer, uint64(n)+2)
		ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
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

func TestReadLimits(t *testing.T) {
	type limits struct{ in, out int }
	a, b, addr := unconnectedPair(t)
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
		ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
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

// TestConnectRetryAfterRefusal: the same connector and endpoint can connect after a refusal.
func TestConnectRetryAfterRefusal(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	noListener := netip.AddrPortFrom(addr.Addr(), 9)
	bound, err := b.adapter.CreateListener(b.ctx)
	b.good(err)
	defer bound.Close()
	b.good(bound.Bind(netip.AddrPortFrom(addr.Addr(), 10)))
	ca, ea := a.newConnector(), a.newEndpoint()
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
		request := b.request()
		wantStatus(t, request.Reject(make([]byte, wire.MaxPrivateData+1)), nd.InvalidBufferSize)
		b.good(request.Reject([]byte("not now")))
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
	cb, eb := b.request(), b.newEndpoint()
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
	if _, s := a.provider.ports.Reserve(77); s != nd.Success {
		t.Error("the port that was given up is still in use")
	}
}

// TestConnectWrongAddresses: Connect and Bind refuse wrong addresses at once.
func TestConnectWrongAddresses(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, ea := a.newConnector(), a.newEndpoint()
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
	foreign := must(other.CreateConnector(a.ctx))
	defer foreign.Close()
	wantStatus(t, foreign.Connect(a.ctx, ea, addr, nd.ConnectParams{}), nd.InvalidParameter)
	wantStatus(t, ca.Connect(a.ctx, nil, addr, nd.ConnectParams{}), nd.InvalidParameter)
	wantStatus(t, ca.Connect(a.ctx, b.newEndpoint(), addr, nd.ConnectParams{}), nd.InvalidParameter)
}

func (s *side) executeOnly(o order) error { return s.execute(o).Status.Err() }

// TestConnectorHasOneConnection: second calls fail during and after connecting.
func TestConnectorHasOneConnection(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
	other, spare := a.newConnector(), a.newEndpoint()
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
		if err := b.listener.GetConnectionRequest(b.ctx, cb); nd.StatusOf(err) != nd.InvalidParameter {
			t.Errorf("%s: another request into the connector: %v", moment, err)
		}
	}
	check("while asking")
	accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	check("between Connect and CompleteConnect")
	wantStatus(t, cb.Accept(b.ctx, b.newEndpoint(), nd.ConnectParams{}), nd.ConnectionActive)
	a.good(ca.CompleteConnect(a.ctx))
	a.good(<-accepted)
	check("connected")
	wantStatus(t, cb.Accept(b.ctx, b.newEndpoint(), nd.ConnectParams{}), nd.ConnectionActive)
	wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionInvalid)
	wantStatus(t, ca.Reject(nil), nd.ConnectionInvalid)
	wantStatus(t, cb.Reject(nil), nd.ConnectionInvalid)

	// An endpoint in use leaves the request where it is.
	connected = soon(func() error { return other.Connect(a.ctx, spare, addr, nd.ConnectParams{}) })
	cb = b.request()
	wantStatus(t, cb.Accept(b.ctx, eb, nd.ConnectParams{}), nd.ConnectionActive)
	wantStatus(t, cb.Accept(b.ctx, ea, nd.ConnectParams{}), nd.InvalidParameter)
	third := b.newEndpoint()
	accepted = soon(func() error { return cb.Accept(b.ctx, third, nd.ConnectParams{}) })
	a.good(<-connected)
	a.good(other.CompleteConnect(a.ctx))
	a.good(<-accepted)
	fresh := a.newConnector()
	wantStatus(t, fresh.Accept(a.ctx, a.newEndpoint(), nd.ConnectParams{}), nd.ConnectionInvalid)
	wantStatus(t, fresh.Reject(nil), nd.ConnectionInvalid)
}

// TestConnectToSelf connects two endpoints of one process and one adapter.
func TestConnectToSelf(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/private=%v", executor, private), func(t *testing.T) {
				arena := newArena(t)
				p := newSide(t, arena, "self", sideOptions{Options: Options{Executor: executor}, Private: private}, false)
				memory := p.describe(0)
				ca, cb, _, _ := connectEndpoints(p, p, p.listen(0)) // endpoints 1 and 2
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
				w := p.newWindow()
				d := p.must(order{Do: doBind, Endpoint: 1, Context: 4, Window: w, Len: 8, Flags: nd.AllowRead}).Far
				p.must(order{Do: doInvalidate, Endpoint: 1, Context: 5, Window: w})
				p.expect(initiatorQueue, of(success(nd.RequestBind, 4, 0), 1), of(success(nd.RequestInvalidate, 5, 0), 1))
				p.must(order{Do: doRead, Endpoint: 2, Context: 6, Parts: mine(0, 8), Far: d})
				p.expect(initiatorQueue, of(failure(nd.RequestRead, 6, nd.AccessViolation), 2))
				p.good(ca.NotifyDisconnect(p.ctx))
				wantStatus(t, cb.Disconnect(p.ctx), nd.ConnectionAborted)
				// An endpoint cannot be connected to itself.
				c, ep := p.newConnector(), p.newEndpoint()
				done := soon(func() error { return c.Connect(p.ctx, ep, must(p.listenerOf().LocalAddress()), nd.ConnectParams{}) })
				wantStatus(t, p.request().Accept(p.ctx, ep, nd.ConnectParams{}), nd.ConnectionActive)
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
			for i, x := range []*side{p.a, p.b} {
				proctest.Eventually(t, x.name+"'s memory is free again", func() bool { return x.must(order{Do: doInUse}).N == before[i] })
			}
			prov := p.a.provider
			prov.mu.Lock()
			defer prov.mu.Unlock()
			if len(prov.conns) != 0 || len(*prov.endpoints.Load()) != 1 {
				t.Errorf("%d connections and %d endpoints are left", len(prov.conns), len(*prov.endpoints.Load()))
			}
			if n := prov.ports.InUse(); n != 0 {
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
	ep, err := s.adapter.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq})
	if err != nil {
		return err
	}
	defer ep.Close()
	c, err := s.adapter.CreateConnector(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := ep.Receive(1, nd.SGL{}); err != nil {
		return err
	}
	graceful, err := connect(c, ep)
	if err == nil {
		err = ep.Send(2, nd.SGL{}, 0)
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
