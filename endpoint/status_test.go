package endpoint

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// A status counts as produced when a call or a result reports it. elsewhere holds the statuses of
// other providers and other versions of the model, with the reason.
var elsewhere = map[string]string{
	"Timeout":        "old providers end Connect with it; nd/connect.go promises IOTimeout",
	"BufferTooSmall": "NDK's word for BufferOverflow in queries that Go slices make unnecessary",
	"DataError":      "InfiniBand hardware reports it for a Send that its Receive could not hold; here the Send ends with RemoteError",
}

// producers make the model's statuses happen, by the name of the constant.
var producers = map[string]func(t *testing.T) error{
	// Data path.
	"Success": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
		return p.a.results(initiatorQueue, 1)[0].Status.Err()
	},
	"AccessViolation": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: nd.WindowDescriptor{Address: p.b.memory.Address}})
		return p.a.results(initiatorQueue, 1)[0].Status
	},
	"DataChecksumError": func(t *testing.T) error {
		corrupt := on("write", faults.Rule{Action: "corrupt", Nth: 1})
		p := newFaultyPair(t, setup{Both: checkedPayloads}, []faults.Rule{corrupt}, nil)
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
		return p.a.results(initiatorQueue, 1)[0].Status
	},
	"Canceled": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.a.must(order{Do: doReceive})
		p.a.must(order{Do: doFlush})
		return p.a.results(receiveQueue, 1)[0].Status
	},
	"RemoteError": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.b.must(order{Do: doReceive})
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
		return p.a.results(initiatorQueue, 1)[0].Status
	},
	"BufferOverflow": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.b.must(order{Do: doReceive})
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
		return p.b.results(receiveQueue, 1)[0].Status
	},
	"InvalidDeviceRequest": func(t *testing.T) error {
		p := newPair(t, setup{})
		w := p.a.must(order{Do: doWindow}).N
		p.a.must(order{Do: doInvalidate, Window: w})
		return p.a.results(initiatorQueue, 1)[0].Status
	},
	"IOTimeout": func(t *testing.T) error {
		p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: time.Millisecond}}})
		p.a.must(order{Do: doSend})
		return p.a.results(initiatorQueue, 1)[0].Status
	},
	"InternalError": func(t *testing.T) error {
		p := newPair(t, setup{Both: sideOptions{QueueDepth: 1, ReceiveDepth: 64}})
		for range 64 {
			p.a.must(order{Do: doReceive})
		}
		other := p.addEndpoints(p.b.listen(0))
		p.a.must(order{Do: doFlush}) // overruns the queue that the other endpoint uses, too
		ep := p.a.endpointAt(other)
		proctest.Eventually(t, "the other endpoint fails", func() bool { p.a.queues[0].Poll(nil); return ep.Err() != nil })
		return ep.Err()
	},
	"DataOverrun": func(t *testing.T) error {
		return newUnconnected(t).endpoints[0].Send(1, nd.List(make([]nd.SGE, maxSGE+1)...), 0)
	},
	"NoMoreEntries": func(t *testing.T) error { return fillReceives(newUnconnected(t).endpoints[0]) },

	// Objects and arguments.
	"InvalidHandle": func(t *testing.T) error {
		i := newUnconnected(t)
		i.good(i.queues[0].Close())
		return i.queues[0].Resize(4)
	},
	"InvalidParameter": func(t *testing.T) error { return newUnconnected(t).queues[0].Resize(0) },
	"InvalidParameterMix": func(t *testing.T) error {
		return newUnconnected(t).queues[0].(nd.InterruptModerator).ModerateInterrupts(-1, -1)
	},
	"InvalidDeviceState": func(t *testing.T) error { return newUnconnected(t).newListener().Listen(0) },
	"InvalidBufferSize": func(t *testing.T) error {
		i := newUnconnected(t)
		_, err := i.adapter.Register(i.ctx, []byte{}, 0)
		return err
	},
	"ImplementationLimit": func(t *testing.T) error {
		i := newUnconnected(t)
		return must(i.adapter.CreateMemoryRegion(i.ctx)).InitializeFastRegister(i.ctx, 1<<30, false)
	},
	"NotSupported": func(t *testing.T) error {
		i := newUnconnected(t)
		_, err := ndcompat.Control(i.ctx, i.adapter, 1, nil, nil)
		return err
	},
	"DeviceBusy": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.a.must(order{Do: doBind, Window: p.a.must(order{Do: doWindow}).N, Len: 8, Flags: nd.AllowRead})
		return p.a.regionAt(0).mr.Deregister(t.Context())
	},
	"Pending": func(t *testing.T) error {
		var o ndcompat.Overlapped
		defer o.Cancel()
		must(0, o.Start(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		return o.Result(false)
	},
	"Unsuccessful": func(t *testing.T) error {
		var o ndcompat.Overlapped
		var all ndcompat.OverlappedSet
		called := make(chan struct{})
		must(0, all.Start(t.Context(), &o, func(ctx context.Context) error { close(called); <-ctx.Done(); return nil }))
		<-called
		return all.Cancel() // of a call that succeeds when it is asked to stop
	},
	"DeviceNotReady": func(*testing.T) error { return new(ndcompat.Library).Cleanup() },

	// Resources.
	"NoMemory": func(t *testing.T) error {
		i := newUnconnected(t)
		_, err := i.adapter.Allocate(i.ctx, 2*testArena, 0)
		return err
	},
	"InsufficientResources": func(t *testing.T) error {
		i := newUnconnected(t)
		for {
			if ad, err := i.provider.OpenAdapter(i.ctx, i.provider.adapterID()); err != nil {
				return err
			} else {
				i.good(ad.Close(i.ctx))
			}
		}
	},
	"TooManyAddresses": func(t *testing.T) error {
		i := newUnconnected(t)
		for range nd.EphemeralPortLast - nd.EphemeralPortFirst + 1 {
			i.good(i.newConnector().Bind(netip.AddrPortFrom(i.address(), 0)))
		}
		return i.newConnector().Bind(netip.AddrPortFrom(i.address(), 0))
	},
	"DeviceRemoved": func(t *testing.T) error {
		i := newUnconnected(t)
		i.good(i.provider.Close())
		_, err := i.adapter.CreateConnector(i.ctx)
		return err
	},

	// Connections.
	"SharingViolation": func(t *testing.T) error {
		i := newUnconnected(t)
		i.good(i.newConnector().Bind(netip.AddrPortFrom(i.address(), 77)))
		return i.newConnector().Bind(netip.AddrPortFrom(i.address(), 77))
	},
	"BadNetworkName": func(t *testing.T) error { return newUnconnected(t).dial("0.0.0.0:5") },
	"InvalidAddress": func(t *testing.T) error {
		return newUnconnected(t).newConnector().Bind(netip.MustParseAddrPort("192.0.2.1:5"))
	},
	"AddressAlreadyAssociated": func(t *testing.T) error {
		i := newUnconnected(t)
		l := i.newListener()
		i.good(l.Bind(netip.AddrPortFrom(i.address(), 0)))
		return l.Bind(netip.AddrPortFrom(i.address(), 0))
	},
	"AddressAlreadyExists": connectTwiceFromOneAddress,
	"ConnectionRefused": func(t *testing.T) error {
		i := newUnconnected(t)
		return i.dial(netip.AddrPortFrom(i.address(), 5).String())
	},
	"ConnectionInvalid": func(t *testing.T) error { return newUnconnected(t).endpoints[0].Send(1, nd.SGL{}, 0) },
	"ConnectionActive": func(t *testing.T) error {
		p := newPair(t, setup{})
		s := p.a
		return s.connectorAt(0).Connect(s.ctx, s.endpointAt(0), netip.MustParseAddrPort("127.77.0.2:1"), nd.ConnectParams{})
	},
	"NetworkUnreachable": func(t *testing.T) error { return newUnconnected(t).dial("192.0.2.1:5") },
	"HostUnreachable":    func(t *testing.T) error { return newUnconnected(t).dial("127.77.0.200:5") },
	"ConnectionAborted": func(t *testing.T) error {
		p := newPair(t, setup{})
		p.b.must(order{Do: doCloseEndpoint})
		return p.a.connectorAt(0).Disconnect(t.Context())
	},
	"ConnectionDisconnected": func(t *testing.T) error {
		p := newPair(t, setup{})
		left := p.b.start(order{Do: doDisconnect})
		p.a.must(order{Do: doNotify})
		err := p.a.endpointAt(0).Err()
		p.a.must(order{Do: doDisconnect})
		<-left
		return err
	},
}

// TestEveryStatusHasProducer fails for a status constant of the model that nothing produces.
func TestEveryStatusHasProducer(t *testing.T) {
	named := statusConstants(t)
	for name, value := range named {
		produce, ok := producers[name]
		if why := elsewhere[name]; ok == (why != "") {
			t.Errorf("%s: has a producer: %v; is elsewhere: %q", name, ok, why)
		}
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nd.StatusOf(produce(t)); got != value {
				t.Errorf("got %v (%#x), want %#x", got, uint32(got), uint32(value))
			}
		})
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(producers)), slices.Collect(maps.Keys(elsewhere))) {
		if _, ok := named[name]; !ok {
			t.Errorf("%s is no status of package nd", name)
		}
	}
	t.Logf("%d status constants: %d produced, %d elsewhere", len(named), len(producers), len(elsewhere))
}

// statusConstants reads the constants of type Status from the source.
func statusConstants(t *testing.T) map[string]nd.Status {
	f, err := parser.ParseFile(token.NewFileSet(), "../nd/status.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]nd.Status)
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if typ, ok := v.Type.(*ast.Ident); !ok || typ.Name != "Status" {
				continue
			}
			n, err := strconv.ParseUint(v.Values[0].(*ast.BasicLit).Value, 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			all[v.Names[0].Name] = nd.Status(n)
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d status constants found", len(all))
	}
	return all
}

func fillReceives(ep nd.Endpoint) error {
	for {
		if err := ep.Receive(1, nd.SGL{}); err != nil {
			return err
		}
	}
}

// connectTwiceFromOneAddress connects the same two addresses a second time.
func connectTwiceFromOneAddress(t *testing.T) error {
	a, b, addr := unconnectedPair(t)
	shared := must(a.adapter.(nd.NDKAdapter).CreateSharedAddress(a.ctx, netip.AddrPortFrom(Address(0, a.member.ID()), 0)))
	t.Cleanup(func() { shared.Close() })
	connectFrom(a, b, shared, addr)
	return a.newConnector().(nd.SharedAddressConnector).ConnectFrom(a.ctx, a.newEndpoint(), shared, addr, nd.ConnectParams{})
}
