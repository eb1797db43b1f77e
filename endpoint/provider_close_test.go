package endpoint

import (
	"context"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// copying pretends that a copy under a token is in progress until done is called.
func copying(s *side, token nd.Token) (done func()) {
	var word atomic.Uint64
	word.Store(uint64(token))
	domain := s.adapter.(*adapter).domain
	domain.AddHazard(&word, nil)
	return func() {
		word.Store(0)
		domain.RemoveHazard(&word, nil)
	}
}

// TestMappingKeepsMemoryAfterDrain: the memory of a closed region is freed when its mapping is
// closed, and not while a copy under the mapping's token is in progress.
func TestMappingKeepsMemoryAfterDrain(t *testing.T) {
	s := newUnconnected(t)
	memory := must(s.adapter.Allocate(s.ctx, 100_000, nd.AllowLocalWrite))
	mapping := must(s.adapter.BuildLogicalAddressMapping(s.ctx, memory.Bytes())).(*logicalMapping)
	off := offsetOf(memory)
	wantStatus(t, memory.Close(s.ctx), nd.Success)
	done := copying(s, mapping.region.LocalToken())
	closed, again := soon(func() error { return mapping.Close(s.ctx) }), soon(func() error { return mapping.Close(s.ctx) })
	stays(t, done, closed)
	stays(t, done, again) // a second Close waits, too
	if !s.member.Owns(off, 100_000) {
		t.Error("the memory is gone in the middle of a copy")
	}
	done()
	wantStatus(t, <-closed, nd.Success)
	wantStatus(t, <-again, nd.Success)
	proctest.Eventually(t, "the memory is free", func() bool { return !s.member.Owns(off, 100_000) })
}

// TestClosedRegionInUseKeepsEngineIdle: the engine does not poll while a window or a mapping needs a
// closed region. The region's memory is freed when the last of them is gone.
func TestClosedRegionInUseKeepsEngineIdle(t *testing.T) {
	p := newPair(t, setup{})
	s := p.a
	ep := s.endpointAt(0)
	idle := func() bool {
		s.provider.deferred.Run() // the engine may have taken the list
		return s.provider.deferred.IsEmpty()
	}
	hold := map[string]func(nd.MemoryRegion) (release func() error){
		"window": func(mr nd.MemoryRegion) func() error {
			w := must(s.adapter.CreateMemoryWindow(s.ctx))
			must(0, ep.Bind(1, mr, w, mr.Bytes(), nd.AllowRead))
			p.a.results(initiatorQueue, 1)
			return func() error { return w.Close(s.ctx) }
		},
		"bind": func(mr nd.MemoryRegion) func() error {
			w := must(s.adapter.CreateMemoryWindow(s.ctx))
			must(0, ep.Bind(1, mr, w, mr.Bytes(), nd.AllowRead))
			p.a.results(initiatorQueue, 1)
			return func() error {
				defer p.a.results(initiatorQueue, 1)
				return ep.Invalidate(2, w, 0)
			}
		},
		"mapping": func(mr nd.MemoryRegion) func() error {
			m := must(s.adapter.BuildLogicalAddressMapping(s.ctx, mr.Bytes()))
			return func() error { return m.Close(s.ctx) }
		},
	}
	for _, holders := range [][]string{{"window"}, {"bind"}, {"mapping"}, {"window", "bind"}, {"window", "mapping"}, {"mapping", "mapping"}} {
		t.Run(strings.Join(holders, " and "), func(t *testing.T) {
			mr := must(s.adapter.Allocate(s.ctx, 100_000, nd.AllowLocalWrite))
			off := offsetOf(mr)
			var releases []func() error
			for _, h := range holders {
				releases = append(releases, hold[h](mr))
			}
			wantStatus(t, mr.Close(s.ctx), nd.Success)
			for _, release := range releases {
				proctest.Eventually(t, "nothing is left to poll for", idle)
				if !s.member.Owns(off, 100_000) {
					t.Fatal("the memory is freed while it is in use")
				}
				wantStatus(t, release(), nd.Success)
			}
			proctest.Eventually(t, "the memory is free", func() bool { return !s.member.Owns(off, 100_000) })
			proctest.Eventually(t, "nothing is left to do", idle)
		})
	}
}

// stays checks that a call does not return. If it returns, the copy that it should wait for is
// over.
func stays(t *testing.T, done func(), c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		done()
		t.Fatalf("the call returned %v too early", err)
	case <-time.After(30 * time.Millisecond):
	}
}

// TestSecondCloseWaits: a second Close of a region or window waits as long as the first.
func TestSecondCloseWaits(t *testing.T) {
	p := newPair(t, setup{})
	s := p.a
	region := must(s.adapter.Allocate(s.ctx, 100, nd.AllowLocalWrite))
	w := s.windowAt(p.a.newWindow())
	p.a.must(order{Do: doBind, Len: 8, Flags: nd.AllowRead})
	p.a.results(initiatorQueue, 1)
	for _, tc := range []struct {
		token nd.Token
		close func() error
	}{{region.LocalToken(), func() error { return region.Close(s.ctx) }}, {w.RemoteToken(), func() error { return w.Close(s.ctx) }}} {
		done := copying(s, tc.token)
		first, second := soon(tc.close), soon(tc.close)
		stays(t, done, first)
		stays(t, done, second)
		done()
		wantStatus(t, <-first, nd.Success)
		wantStatus(t, <-second, nd.Success)
	}
}

// TestFlushWaitsForDrain: the results are queued when Flush returns.
func TestFlushWaitsForDrain(t *testing.T) {
	p := newPair(t, setup{})
	w := p.a.newWindow()
	token := p.a.must(order{Do: doBind, Context: 1, Window: w, Len: 8, Flags: nd.AllowRead}).Far.Token
	done := copying(p.a, token)
	p.a.must(order{Do: doInvalidate, Context: 2, Window: w})
	p.a.must(order{Do: doWrite, Context: 3, Parts: mine(0, 8), Far: p.b.memory})
	flushed := soon(func() error { return p.a.endpointAt(0).Flush(p.a.ctx) })
	stays(t, done, flushed)
	done()
	wantStatus(t, <-flushed, nd.Success)
	r := p.a.must(order{Do: doPoll, Queue: initiatorQueue, N: 4}).Results
	if len(r) != 3 || r[1].Status != nd.Success || r[2].Status != nd.Canceled {
		t.Errorf("when Flush has returned there is %v", r)
	}
}

// TestCallsAfterProviderClose: when provider, member and arena are closed, calls on their objects fail
// or do nothing, and do not access the arena.
func TestCallsAfterProviderClose(t *testing.T) {
	ctx := t.Context()
	arena := must(shm.Create(shm.Config{Size: testArena}))
	join := func() (*shm.Member, *Provider, nd.Adapter, nd.CompletionQueue, nd.Endpoint) {
		m := must(arena.Join(shm.NoRank))
		p := must(New(m, Options{}))
		ad := must(p.OpenAdapter(ctx, p.adapterID()))
		cq := must(ad.CreateCompletionQueue(ctx, 10))
		return m, p, ad, cq, must(ad.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq}))
	}
	m, p, ad, cq, ep := join()
	memory := must(ad.Allocate(ctx, 100, 0))
	m2, p2, ad2, _, ep2 := join()
	l := must(ad.CreateListener(ctx))
	must(0, l.Bind(netip.AddrPortFrom(Address(0, m.ID()), 0)))
	must(0, l.Listen(0))
	passive, active := must(ad.CreateConnector(ctx)), must(ad2.CreateConnector(ctx))
	addr := must(l.LocalAddress())
	impatient, giveUp := context.WithCancel(ctx)
	connected := soon(func() error { return active.Connect(impatient, ep2, addr, nd.ConnectParams{}) })
	must(0, l.GetConnectionRequest(ctx, passive))
	must(0, cq.(nd.InterruptModerator).ModerateInterrupts(time.Second, 5))
	must(0, p.Close())
	must(0, m.Leave())
	giveUp()
	<-connected
	must(0, p2.Close())
	must(0, m2.Leave())
	must(0, arena.Close())

	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for name, call := range map[string]func(){
		"EventFD":        func() { _, _ = cq.EventFD() },
		"GetPrivateData": func() { _, _ = passive.GetPrivateData(nil) },
		"Reject":         func() { _ = passive.Reject(nil) },
		"Close":          func() { _ = passive.Close() },
		"Receive":        func() { _ = ep.Receive(1, nd.SGL{}) },
		"Notify":         func() { _ = cq.Notify(ctx, nd.NotifyAny) },
		"Poll":           func() { cq.Poll(make([]nd.Result, 1)) },
		"Flush":          func() { _ = ep.Flush(ctx) },
		"Bytes": func() {
			if b := memory.Bytes(); b != nil {
				t.Errorf("Bytes returns %d bytes of an arena that is closed", len(b))
			}
		},
	} {
		func() {
			defer func() {
				if fault := recover(); fault != nil {
					t.Errorf("%s: %v\n%s", name, fault, debug.Stack())
				}
			}()
			call()
		}()
	}
}

// TestCallsRacingProviderClose: provider, member and arena are closed while goroutines poll, post and
// manage objects. No call accesses unmapped memory.
func TestCallsRacingProviderClose(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	trials := 15
	if testing.Short() {
		trials = 5
	}
	for range trials {
		arena := must(shm.Create(shm.Config{Size: testArena}))
		a, b := must(openSide(t.Context(), arena, sideOptions{})), must(openSide(t.Context(), arena, sideOptions{}))
		addr := b.execute(order{Do: doListen}).Addr
		a.t, a.name, b.t, b.name = t, "a", t, "b"
		p := &pair{a: a, b: b}
		p.connect(addr)
		window := a.windowAt(a.must(order{Do: doWindow}).N)
		ep, mr, peer := a.endpointAt(0), a.regionAt(0).mr, b.describe(0)
		here := nd.One(nd.SGE{Buffer: mr.Bytes()[:64], Token: mr.LocalToken()})
		var stop atomic.Bool
		var all sync.WaitGroup
		var started sync.WaitGroup
		race := func(name string, call func()) {
			started.Add(1)
			all.Go(func() {
				defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
				defer func() {
					if fault := recover(); fault != nil {
						t.Errorf("%s: %v\n%s", name, fault, debug.Stack())
					}
				}()
				call()
				started.Done()
				for !stop.Load() {
					call()
				}
			})
		}
		for i := range 6 {
			race("Poll", func() { a.queues[i%2].Poll(make([]nd.Result, 4)) })
		}
		race("Write", func() { _ = ep.Write(1, here, peer.Address, peer.Token, 0) })
		race("Send", func() { _ = ep.Send(1, here, 0) })
		race("Bind", func() {
			_ = ep.Bind(1, mr, window, here.First.Buffer, nd.AllowRead)
			_ = ep.Invalidate(1, window, 0)
			window.Descriptor()
		})
		race("Wait", func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			defer cancel()
			_, _ = a.queues[0].Wait(ctx, make([]nd.Result, 4))
		})
		race("Register", func() {
			if mr, err := a.adapter.Allocate(t.Context(), 100, nd.AllowLocalWrite); err == nil {
				_ = mr.Close(a.ctx)
			}
		})
		race("Err", func() { _ = ep.Err() })
		race("EventFD", func() {
			if cq, err := a.adapter.CreateCompletionQueue(t.Context(), 4); err == nil {
				_, _ = cq.EventFD()
				_ = cq.Close()
			}
		})
		started.Wait()
		wantStatus(t, a.provider.Close(), nd.Success)
		must(0, a.member.Leave())
		wantStatus(t, b.provider.Close(), nd.Success)
		must(0, b.member.Leave())
		must(0, arena.Close())
		time.Sleep(time.Millisecond)
		stop.Store(true)
		all.Wait()
		if t.Failed() {
			return
		}
	}
}
