package endpoint

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestAdapterCloseLeavesNothing closes an adapter alone, while goroutines post, poll and wait. It has objects of each kind, and a
// connection with a bound window. Afterwards the memory of its objects and the port are free.
func TestAdapterCloseLeavesNothing(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	before := a.member.InUse()
	ad := must(a.provider.OpenAdapter(a.ctx, a.provider.adapterID()))
	q := must(ad.CreateCompletionQueue(a.ctx, 256))
	srq := must(ad.CreateSharedReceiveQueue(a.ctx, nd.SharedReceiveQueueConfig{}))
	mr := must(ad.Allocate(a.ctx, 1<<20, nd.AllowLocalWrite))
	must(ad.Register(a.ctx, make([]byte, 4096), nd.AllowLocalWrite))
	w := must(ad.CreateMemoryWindow(a.ctx))
	must(ad.BuildLogicalAddressMapping(a.ctx, mr.Bytes()))
	must(ad.(nd.NDKAdapter).CreateSharedAddress(a.ctx, netip.AddrPortFrom(a.address(), 0)))
	l := must(ad.CreateListener(a.ctx)).(*listener)
	a.good(l.Bind(netip.AddrPortFrom(a.address(), 0)))
	a.good(l.Listen(0))
	own := must(l.LocalAddress())
	ep := must(ad.CreateEndpoint(a.ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, SharedReceive: srq}))
	must(ad.CreateEndpoint(a.ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})) // not connected
	a.good(srq.Receive(1, nd.One(nd.SGEOf(mr, 0, 64))))

	accepting := b.newConnector()
	accepted := soon(func() error {
		if err := b.listener.GetConnectionRequest(b.ctx, accepting); err != nil {
			return err
		}
		return accepting.Accept(b.ctx, b.endpoints[0], nd.ConnectParams{})
	})
	c := must(ad.CreateConnector(a.ctx))
	a.good(c.Connect(a.ctx, ep, addr, nd.ConnectParams{}))
	a.good(c.CompleteConnect(a.ctx))
	a.good(<-accepted)
	a.good(ep.Bind(1, mr, w, mr.Bytes()[:64], nd.AllowRead))

	far, sge := nd.DescriptorOf(b.regionAt(0).mr), nd.One(nd.SGEOf(mr, 64, 64))
	unused := must(ad.CreateConnector(a.ctx))
	calls := map[string]<-chan error{
		"GetConnectionRequest": soon(func() error { return l.GetConnectionRequest(a.ctx, unused) }),
		"Write": soon(func() error {
			for {
				if err := ep.Write(2, sge, far.Address, far.Token, 0); err != nil && !errors.Is(err, nd.NoMoreEntries) {
					return err
				}
				runtime.Gosched()
			}
		}),
		"Wait": soon(func() error {
			for results := make([]nd.Result, 8); ; {
				if _, err := q.Wait(a.ctx, results); err != nil {
					return err
				}
			}
		}),
	}
	proctest.Eventually(t, "GetConnectionRequest waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.calls) == 1
	})
	a.good(ad.Close(a.ctx))
	for call, want := range map[string]nd.Status{"GetConnectionRequest": nd.Canceled, "Write": nd.ConnectionInvalid, "Wait": nd.Canceled} {
		if err := <-calls[call]; nd.StatusOf(err) != want {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
	}
	for kind, open := range ad.(*adapter).owned.open {
		if len(open) != 0 {
			t.Errorf("%d objects of kind %d are open", len(open), kind)
		}
	}
	if mr.Bytes() != nil {
		t.Error("the region is registered")
	}
	proctest.Eventually(t, "the memory is free", func() bool { return a.member.InUse() == before })
	again := a.newListener()
	a.good(again.Bind(own))
	_, err := ad.CreateCompletionQueue(a.ctx, 1)
	wantStatus(t, err, nd.InvalidHandle)
	wantStatus(t, l.GetConnectionRequest(a.ctx, unused), nd.InvalidHandle)
	a.good(ad.Close(a.ctx))
}

// Close of an adapter waits for a copy in progress, until its context ends.
func TestAdapterCloseWaitsForCopies(t *testing.T) {
	s := newUnconnected(t)
	ad := must(s.provider.OpenAdapter(s.ctx, s.provider.adapterID()))
	mr := must(ad.Allocate(s.ctx, 100, nd.AllowLocalWrite))
	done := copying(&side{adapter: ad}, mr.LocalToken())
	wantStatus(t, ad.Close(ending(t)), nd.Canceled)
	closed := soon(func() error { return ad.Close(s.ctx) })
	stays(t, done, closed)
	done()
	wantStatus(t, <-closed, nd.Success)
}

// Close of an adapter waits for copies in a region whose Close has waited for a window only.
func TestAdapterCloseWaitsForRegionOfWindow(t *testing.T) {
	for name, closeRegion := range map[string]bool{"the adapter alone": false, "the region first": true} {
		t.Run(name, func(t *testing.T) {
			s := newPair(t, setup{}).a
			defer func() { s.regions = nil }() // the adapter closes them
			mr, w := s.regionAt(0).mr, s.windowAt(s.newWindow())
			s.bind(0, 0, 8, nd.AllowRead)
			inWindow, inRegion := copying(s, w.RemoteToken()), copying(s, mr.LocalToken())
			if closeRegion {
				inWindow()
				s.good(mr.Close(s.ctx))
			} else {
				wantStatus(t, s.adapter.Close(ending(t)), nd.Canceled)
				wantStatus(t, mr.Close(ending(t)), nd.Canceled) // nothing invalidates the window now
				inWindow()
			}
			closed := soon(func() error { return s.adapter.Close(s.ctx) })
			stays(t, inRegion, closed)
			inRegion()
			wantStatus(t, <-closed, nd.Success)
		})
	}
}

// Close of an adapter waits for a fast registration, and for the mapping that it uses.
func TestAdapterCloseWaitsForMapping(t *testing.T) {
	s := newPair(t, setup{}).a
	defer func() { s.regions = nil }() // the adapter closes them
	done := copying(s, s.register(s.fastRegion(4096), 0, 64).Token)
	if err := s.adapter.Close(ending(t)); nd.StatusOf(err) != nd.Canceled || errors.Is(err, nd.DeviceBusy) {
		t.Errorf("%v, want Canceled alone", err)
	}
	closed := soon(func() error { return s.adapter.Close(s.ctx) })
	stays(t, done, closed)
	done()
	wantStatus(t, <-closed, nd.Success)
	if n := len(*s.provider.mappings.list.Load()); n != 0 {
		t.Errorf("%d mappings are open", n)
	}
}

// Close of an adapter closes a connector of which the program has closed the endpoint only.
func TestAdapterCloseFreesPortOfConnecting(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ad := must(a.provider.OpenAdapter(a.ctx, a.provider.adapterID()))
	q := must(ad.CreateCompletionQueue(a.ctx, 256))
	ep := must(ad.CreateEndpoint(a.ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q}))
	c := must(ad.CreateConnector(a.ctx))
	connected := soon(func() error { return c.Connect(a.ctx, ep, addr, nd.ConnectParams{}) })
	accepting := b.request()
	accepted := soon(func() error { return accepting.Accept(b.ctx, b.endpoints[0], nd.ConnectParams{}) })
	a.good(<-connected)
	own := must(c.LocalAddress())
	a.good(ep.Close())
	a.good(ad.Close(a.ctx))
	wantStatus(t, c.Bind(own), nd.InvalidHandle)
	a.good(a.newConnector().Bind(own))
	if err := <-accepted; err == nil {
		t.Error("Accept succeeds")
	}
}

// ending returns a context that ends soon.
func ending(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// An object that is created while the adapter is closed does not stay.
func TestCreateDuringAdapterClose(t *testing.T) {
	s := newUnconnected(t)
	before := s.member.InUse()
	for range 50 {
		ad := must(s.provider.OpenAdapter(s.ctx, s.provider.adapterID()))
		creates := soon(func() error {
			for {
				if _, err := ad.Allocate(s.ctx, 4096, 0); err != nil {
					return err
				}
			}
		})
		s.good(ad.Close(s.ctx))
		wantStatus(t, <-creates, nd.InvalidHandle)
	}
	proctest.Eventually(t, "the memory is free", func() bool { return s.member.InUse() == before })
}
