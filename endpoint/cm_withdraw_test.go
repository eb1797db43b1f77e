package endpoint

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/nd"
)

// TestConnectWithdrawn: the active side withdraws after the passive side has accepted.
func TestConnectWithdrawn(t *testing.T) {
	for name, giveUp := range map[string]func(c nd.Connector){
		"rejects": func(c nd.Connector) {
			if err := c.Reject([]byte("sorry")); err != nil {
				t.Error(err)
			}
		},
		"closes": func(c nd.Connector) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, addr := unconnectedPair(t)
			ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			b.good(eb.Receive(7, nd.SGL{}))
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
			if r := b.execute(order{Do: doWait, Queue: receiveQueue, N: 1}); r.Status != nd.Success || r.Results[0].Status != nd.Canceled {
				t.Errorf("the receive of the refused endpoint: %v", r)
			}
			wantStatus(t, cb.NotifyDisconnect(b.ctx), nd.ConnectionInvalid)
		})
	}
}

// TestConnectorClosedWithRequest: the passive side refuses the connection when it closes the connector of a request.
func TestConnectorClosedWithRequest(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, ea := a.newConnector(), a.newEndpoint()
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
	b.good(b.request().Close())
	wantStatus(t, <-connected, nd.ConnectionRefused)
}

// TestAcceptWithdrawn: the passive side ends the connection after it has accepted.
func TestAcceptWithdrawn(t *testing.T) {
	for name, giveUp := range map[string]func(c nd.Connector, ep nd.Endpoint, cancel context.CancelFunc){
		"context":   func(_ nd.Connector, _ nd.Endpoint, cancel context.CancelFunc) { cancel() },
		"connector": func(c nd.Connector, _ nd.Endpoint, _ context.CancelFunc) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, addr := unconnectedPair(t)
			ctx, cancel := context.WithCancel(b.ctx)
			defer cancel()
			ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			accepted := soon(func() error { return cb.Accept(ctx, eb, nd.ConnectParams{}) })
			a.good(<-connected)
			giveUp(cb, eb, cancel)
			wantStatus(t, <-accepted, nd.Canceled)
			wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionAborted)
			wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionInvalid)
			wantStatus(t, ea.Send(1, nd.SGL{}, 0), nd.Success) // it has failed by now: the result says so
			wantStatus(t, ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}), nd.ConnectionActive)
		})
	}
}

func flush(ep nd.Endpoint) error { return ep.Flush(context.Background()) }

// TestEndpointClosedWhileConnecting: an endpoint that is closed or flushed during Connect or
// Accept stays failed.
func TestEndpointClosedWhileConnecting(t *testing.T) {
	for name, end := range map[string]func(nd.Endpoint) error{"flush": flush, "close": nd.Endpoint.Close} {
		t.Run(name+" before the answer", func(t *testing.T) {
			a, b, addr := unconnectedPair(t)
			ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
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
			if err := ea.Send(0, nd.SGL{}, 0); name == "close" {
				wantStatus(t, err, nd.ConnectionInvalid)
			}
		})
		t.Run(name+" before the completion", func(t *testing.T) {
			a, b, addr := unconnectedPair(t)
			ca, ea, eb := a.newConnector(), a.newEndpoint(), b.newEndpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			accepted := soon(func() error { return cb.Accept(b.ctx, eb, nd.ConnectParams{}) })
			a.good(<-connected)
			a.good(end(ea))
			wantStatus(t, ca.CompleteConnect(a.ctx), nd.ConnectionAborted)
			<-accepted // refused, or ended at once
			b.good(b.executeOnly(order{Do: doFlush, Endpoint: len(b.endpoints) - 1}))
		})
	}
}

// TestConnectorClosed: all calls on a closed connector fail.
func TestConnectorClosed(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	connected, _, _, _ := connectEndpoints(a, b, addr)
	for _, c := range []nd.Connector{a.newConnector(), connected} {
		for range 2 {
			a.good(c.Close())
		}
		ep := a.newEndpoint()
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
	for name, end := range map[string]func(ep nd.Endpoint) error{"flushed": flush, "closed": nd.Endpoint.Close} {
		t.Run(name, func(t *testing.T) {
			a, b, addr := unconnectedPair(t)
			ca, ea := a.newConnector(), a.newEndpoint()
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			cb := b.request()
			accepted := soon(func() error { return cb.Accept(b.ctx, b.newEndpoint(), nd.ConnectParams{}) })
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

// TestConnectionCallsCanceled: the error of a canceled call contains the context's cause.
func TestConnectionCallsCanceled(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	cause := errors.New("a cause")
	_, cb, _, _ := connectEndpoints(a, b, addr)
	ca, ea := a.newConnector(), a.newEndpoint()
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

// TestConnectWithdrawnBeforeAcceptEnds: Connect fails after the peer has accepted, and its endpoint sends a message to
// another peer before the first peer notices. The first peer does not take it from the ring that it has attached to.
func TestConnectWithdrawnBeforeAcceptEnds(t *testing.T) {
	for name, end := range map[string]func(active, passive *connection){
		"by the active side":  func(active, _ *connection) { active.record.Move(cm.Withdraws) },
		"by the passive side": func(_, passive *connection) { passive.record.Move(cm.Abandons) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, addr := unconnectedPair(t)
			ca, ea, eb := a.newConnector().(*connector), a.newEndpoint().(*queuePair), b.newEndpoint().(*queuePair)
			active := must(ca.startConnect(a.ctx, ea, nil, addr, nd.ConnectParams{}))
			b.good(eb.Receive(7, nd.SGL{}))
			end(active, must(b.request().(*connector).startAccept(eb, nd.ConnectParams{})))
			ca.mu.Lock()
			ca.undoConnect(active)
			ca.mu.Unlock()
			other := b.newEndpoint()
			b.good(other.Receive(8, nd.SGL{}))
			connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
			accepted := soon(func() error { return b.request().Accept(b.ctx, other, nd.ConnectParams{}) })
			a.good(<-connected)
			a.good(ca.CompleteConnect(a.ctx))
			b.good(<-accepted)
			a.good(ea.Send(1, nd.SGL{}, nd.SilentSuccess))
			b.good(eb.Close())
			for range 2 {
				r := b.execute(order{Do: doWait, Queue: receiveQueue, N: 1})
				if r.Status != nd.Success {
					t.Fatal(r)
				}
				want := map[uint64]nd.Status{7: nd.Canceled, 8: nd.Success}
				if got := r.Results[0]; got.Status != want[got.RequestContext] {
					t.Errorf("%v, want %v", got, want[got.RequestContext])
				}
			}
		})
	}
}
