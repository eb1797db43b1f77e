package endpoint

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestFastRegionInvalidatedByPeer: the message arrives, no transfer uses the memory, and the
// region can be registered again at once.
func TestFastRegionInvalidatedByPeer(t *testing.T) {
	const room = 100_000
	onFast(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(room)
		var d nd.WindowDescriptor
		for i, n := range []int{0, 8, 48, 1000, room} {
			context := uint64(i)
			d = p.b.register(r, 0, room)
			p.a.fill(0, 0, 2*room, context)
			p.b.must(order{Do: doReceive, Context: context, Parts: mine(0, n)})
			p.a.must(order{Do: doWrite, Parts: mine(0, room), Far: d, Flags: nd.SilentSuccess})
			p.a.must(order{Do: doSendRevoking, Context: context, Parts: mine(room, n), Far: d})
			p.b.expect(receiveQueue, revoked(context, n, d.Token))
			p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
			if p.b.sum(r, 0, room) != p.a.sum(0, 0, room) || p.b.sum(0, 0, n) != p.a.sum(0, room, n) {
				t.Errorf("round %d: the data differ", i)
			}
		}
		p.b.must(order{Do: doCloseMapping, Region: r})
		p.offend(doWrite, mine(0, 8), d)
	})
}

// TestFastRegionInvalidationRefused: the message is not placed.
func TestFastRegionInvalidationRefused(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]func(p *pair, r int) nd.WindowDescriptor{
		"local token": func(p *pair, r int) nd.WindowDescriptor {
			p.b.register(r, 0, 100)
			return nd.WindowDescriptor{Token: nd.Token(p.b.must(order{Do: doRegionInfo, Region: r}).Sum)}
		},
		"invalidated": func(p *pair, r int) nd.WindowDescriptor {
			d := p.b.register(r, 0, 100)
			p.b.unregister(r)
			return d
		},
		"of an earlier registration": func(p *pair, r int) nd.WindowDescriptor {
			d := p.b.register(r, 0, 100)
			p.b.unregister(r)
			p.b.register(r, 0, 100)
			return d
		},
		"with a window": func(p *pair, r int) nd.WindowDescriptor {
			d := p.b.register(r, 0, 100)
			p.b.must(order{Do: doBind, Region: r, Window: p.b.newWindow(), Len: 10, Flags: nd.AllowRead})
			p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFast(t, setup{}, func(t *testing.T, p *pair) { p.failToRevoke(token(p, p.b.fastRegion(100)), 8, 0) })
		})
	}
}

// TestFastRequestFailureEndsConnection end the connection, and with it the registration: the mapping can be
// closed.
func TestFastRequestFailureEndsConnection(t *testing.T) {
	t.Parallel() // it waits for time-outs
	registered := func(p *pair, r int) { p.b.register(r, 0, 100) }
	for name, c := range map[string]struct {
		prepare func(p *pair, r int)
		order   order
		kind    nd.RequestType
	}{
		"registered already": {registered, order{Do: doFastRegister, Len: 10, Far: nd.WindowDescriptor{Address: 1}}, nd.RequestFastRegister},
		"never registered":   {func(*pair, int) {}, order{Do: doInvalidateRegion}, nd.RequestInvalidate},
		"never, and silent":  {func(*pair, int) {}, order{Do: doInvalidateRegion, Flags: nd.SilentSuccess}, nd.RequestInvalidate},
		"invalidated": {func(p *pair, r int) {
			registered(p, r)
			p.b.unregister(r)
		}, order{Do: doInvalidateRegion}, nd.RequestInvalidate},
		"a window is bound": {func(p *pair, r int) {
			registered(p, r)
			p.b.must(order{Do: doBind, Region: r, Window: p.b.newWindow(), Len: 10, Flags: nd.AllowRead})
			p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
		}, order{Do: doInvalidateRegion}, nd.RequestInvalidate},
	} {
		t.Run(name, func(t *testing.T) {
			onFast(t, setup{}, func(t *testing.T, p *pair) {
				r := p.b.fastRegion(100)
				c.prepare(p, r)
				c.order.Region = r
				p.badInitiator(c.order, c.kind)
				proctest.Eventually(t, "the mapping is closed", func() bool {
					return p.b.do(order{Do: doCloseMapping, Region: r}).Status == nd.Success
				})
			})
		})
	}
}

// TestFastRegionOfOtherEndpoint: a region serves all connections of the adapter, but only its
// own endpoint can invalidate it.
func TestFastRegionOfOtherEndpoint(t *testing.T) {
	onFast(t, setup{Unwired: true}, func(t *testing.T, p *pair) {
		addr := p.b.must(order{Do: doListen}).Addr
		p.connect(addr)
		other, third := p.addEndpoints(addr), p.addEndpoints(addr)
		of := func(r nd.Result, ep int) nd.Result { r.EndpointContext = endpointContext(ep); return r }
		r := p.b.fastRegion(1000)
		d := p.b.register(r, 0, 1000)
		p.b.must(order{Do: doInvalidateRegion, Endpoint: other, Context: 1, Region: r})
		p.b.expect(initiatorQueue, of(failure(nd.RequestInvalidate, 1, nd.InvalidDeviceRequest), other))
		p.a.must(order{Do: doWrite, Endpoint: third, Parts: mine(0, 1000), Far: d})
		p.a.expect(initiatorQueue, of(success(nd.RequestWrite, 0, 1000), third))
		p.b.unregister(r)

		// A window of another endpoint outlives the registration, and keeps the region.
		d = p.b.register(r, 0, 1000)
		w := p.b.newWindow()
		bound := p.b.must(order{Do: doBind, Endpoint: third, Region: r, Window: w, Off: 100, Len: 50, Flags: nd.AllowWrite}).Far
		p.b.expect(initiatorQueue, of(success(nd.RequestBind, 0, 0), third))
		if bound.Address != fastBase+100 {
			t.Errorf("the window starts at %#x, its region at %#x", bound.Address, uint64(fastBase))
		}
		p.b.must(order{Do: doCloseEndpoint})
		p.b.refuse(nd.DeviceBusy, order{Do: doCloseMapping, Region: r})
		p.a.must(order{Do: doWrite, Endpoint: third, Parts: mine(0, 50), Far: bound})
		p.a.expect(initiatorQueue, of(success(nd.RequestWrite, 0, 50), third))
		p.b.must(order{Do: doInvalidate, Endpoint: third, Window: w})
		p.b.expect(initiatorQueue, of(success(nd.RequestInvalidate, 0, 0), third))
		p.b.must(order{Do: doFastRegister, Endpoint: third, Region: r, Len: 10, Far: nd.WindowDescriptor{Address: 1}})
		p.b.expect(initiatorQueue, of(success(nd.RequestFastRegister, 0, 0), third))
		p.b.must(order{Do: doInvalidateRegion, Endpoint: third, Region: r})
		p.b.expect(initiatorQueue, of(success(nd.RequestInvalidate, 0, 0), third))
		p.b.must(order{Do: doCloseMapping, Region: r})
		p.a.must(order{Do: doWrite, Endpoint: third, Parts: mine(0, 50), Far: d})
		p.a.expect(initiatorQueue, of(failure(nd.RequestWrite, 0, nd.AccessViolation), third))
	})
}

// TestFastRegionInvalidatedDuringTransfers of several peers, each with its own connection. However the
// registration ends, no transfer uses the memory from the moment its owner knows.
func TestFastRegionInvalidatedDuringTransfers(t *testing.T) {
	t.Parallel()
	const size, page = 512 << 10, 4096
	ways := map[string]func(p *pair, r int, d nd.WindowDescriptor){
		"Invalidate": func(p *pair, r int, _ nd.WindowDescriptor) { p.b.unregister(r) },
		"SendAndInvalidate": func(p *pair, _ int, d nd.WindowDescriptor) {
			p.b.must(order{Do: doReceive})
			p.a.must(order{Do: doSendRevoking, Far: d})
			p.b.expect(receiveQueue, revoked(0, 0, d.Token))
		},
		"end of the endpoint": func(p *pair, r int, _ nd.WindowDescriptor) {
			p.b.must(order{Do: doCloseEndpoint})
			proctest.Eventually(p.b.t, "the mapping is closed", func() bool {
				return p.b.do(order{Do: doCloseMapping, Region: r}).Status == nd.Success
			})
		},
		"Close": func(p *pair, r int, _ nd.WindowDescriptor) { p.b.must(order{Do: doCloseRegion, Region: r}) },
		"ReadLocalInvalidate": func(p *pair, r int, _ nd.WindowDescriptor) {
			p.b.must(order{Do: doRead, Parts: []part{{Region: r, Len: 8}}, Far: p.a.memory, Flags: nd.ReadLocalInvalidate})
			p.b.expect(initiatorQueue, success(nd.RequestRead, 0, 8))
		},
	}
	for name, end := range ways {
		for _, do := range []verb{doWrite, doRead} {
			for _, executor := range []Executor{Auto, Target} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, do, executor), func(t *testing.T) {
					t.Parallel()
					s := setup{Executors: [2]Executor{executor, executor}, Unwired: true}
					s.Both.Options = Options{Executor: executor}
					p := newPair(t, s)
					addr := p.b.must(order{Do: doListen}).Addr
					p.connect(addr)
					r := p.b.fastRegion(size)
					p.b.must(order{Do: doFillByte, Region: r, Len: size, N: 0x11})
					o := order{Do: doFastRegister, Context: 1, Region: r, Len: size, Far: nd.WindowDescriptor{Address: fastBase}, Rights: fastAll}
					first := 0
					if executor == Target && name != "ReadLocalInvalidate" { // once with pages that are not adjacent
						o.Off, o.Len, o.N = page-fastEdge, size-page, 1
						first = size - page - fastEdge
					}
					d := p.b.must(o).Far
					p.b.expect(initiatorQueue, success(nd.RequestFastRegister, 1, 0))
					peers := p.morePeers(addr, 2, size)
					var busy []<-chan reply
					for i, peer := range peers {
						peer.must(order{Do: doFillByte, Len: size, N: 0x22})
						busy = append(busy, peer.start(order{Do: doRepeat, Endpoint: i + 1, Parts: mine(0, o.Len), Far: d, N: 3, Data: []byte(do)}))
					}
					moving, probe := p.b, order{Do: doLongestRun, Region: r, Off: first, Len: 64, N: 0x22}
					if do == doRead {
						moving, probe = peers[0], order{Do: doLongestRun, Len: 64, N: 0x11}
					}
					proctest.Eventually(t, "bytes move", func() bool {
						return moving.must(probe).N > 0
					})
					end(p, r, d)
					p.b.must(order{Do: doFillByte, Region: r, Len: size, N: 0x33})
					for i, c := range busy {
						if got := <-c; got.Status != nd.AccessViolation {
							t.Errorf("peer %d ends with %v (%s)", i, got.Status, got.Text)
						}
					}
					if p.b.must(order{Do: doLongestRun, Region: r, Len: size, N: 0x33}).N != size {
						t.Error("memory was written after the end")
					}
					for i, peer := range peers {
						if peer.must(order{Do: doLongestRun, Len: size, N: 0x33}).N != 0 {
							t.Errorf("peer %d has read memory after the end", i)
						}
					}
				})
			}
		}
	}
}

// morePeers connects others with b, peer i by b's endpoint i+1. Every other peer is a process of
// its own.
func (p *pair) morePeers(addr netip.AddrPort, n, size int) (peers []*side) {
	p.a.t.Helper()
	for i := range n {
		o := p.Both
		o.Size = size
		peer := newSide(p.a.t, p.arena, fmt.Sprintf("peer %d", i), o, i%2 == 1)
		peer.memory = peer.describe(0)
		for range i + 1 {
			peer.must(order{Do: doEndpoint})
		}
		p.b.must(order{Do: doEndpoint})
		(&pair{setup: p.setup, arena: p.arena, a: peer, b: p.b}).connect(addr, i+1)
		peers = append(peers, peer)
	}
	return peers
}

// TestMappingKeepsMemoryOfClosedRegion while a mapping of it is open.
func TestMappingKeepsMemoryOfClosedRegion(t *testing.T) {
	p := newPair(t, setup{})
	s := p.a
	inUse := s.member.InUse()
	memory := must(s.adapter.Allocate(s.ctx, 100_000, nd.AllowLocalWrite))
	held := s.member.InUse()
	mapping := must(s.adapter.BuildLogicalAddressMapping(s.ctx, memory.Bytes()[10:20]))
	wantStatus(t, memory.Close(s.ctx), nd.Success)
	s.provider.deferred.Run()
	if got := s.member.InUse(); got != held {
		t.Fatalf("%d bytes in use after the region's end, want %d", got, held)
	}
	wantStatus(t, mapping.Close(s.ctx), nd.Success)
	proctest.Eventually(t, "the memory is free", func() bool { return s.member.InUse() == inUse })
}

// TestRegionClosedBeforeQueuedFastRegister: the registration then fails.
func TestRegionClosedBeforeQueuedFastRegister(t *testing.T) {
	onFast(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(100)
		p.b.must(order{Do: doSend, Context: 1}) // waits for a receive
		p.b.must(order{Do: doFastRegister, Context: 2, Region: r, Len: 100, Far: nd.WindowDescriptor{Address: 1}})
		p.b.refuse(nd.DeviceBusy, order{Do: doCloseMapping, Region: r})
		p.b.must(order{Do: doCloseRegion, Region: r})
		p.a.must(order{Do: doReceive})
		p.b.expect(initiatorQueue, success(nd.RequestSend, 1, 0), failure(nd.RequestFastRegister, 2, nd.InvalidDeviceRequest))
		p.b.must(order{Do: doCloseMapping, Region: r})
	})
}

// TestFastRegisterCanceledReleasesMapping: a canceled registration releases its mapping.
func TestFastRegisterCanceledReleasesMapping(t *testing.T) {
	p := newPair(t, setup{})
	r := p.b.fastRegion(100)
	p.b.must(order{Do: doSend, Context: 1})
	o := order{Do: doFastRegister, Context: 2, Region: r, Len: 100, Far: nd.WindowDescriptor{Address: 1}}
	p.b.must(o)
	p.b.must(order{Do: doFlush})
	p.b.must(o)
	p.b.expect(initiatorQueue, failure(nd.RequestSend, 1, nd.Canceled), failure(nd.RequestFastRegister, 2, nd.Canceled), failure(nd.RequestFastRegister, 2, nd.Canceled))
	p.b.must(order{Do: doCloseMapping, Region: r})
}
