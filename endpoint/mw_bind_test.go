package endpoint

import (
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

func TestBindRejectsBadArguments(t *testing.T) {
	const size = 256 << 10
	for _, s := range someSetups(setup{}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			w := p.b.newWindow()
			readOnly := p.b.must(order{Do: doRegion, Len: 100, Private: s.Private[1], Rights: nd.AllowRemoteRead}).N
			gone := p.b.must(order{Do: doRegion, Len: 100, Private: s.Private[1], Rights: nd.AllowLocalWrite}).N
			p.b.must(order{Do: doDeregister, Region: gone})
			const rw = nd.AllowRead | nd.AllowWrite
			for name, o := range map[string]order{
				"before the region":           {Off: -1, Len: 10, Flags: rw},
				"beyond the region":           {Off: size, Len: 1, Flags: rw},
				"to beyond the region":        {Off: size - 9, Len: 10, Flags: rw},
				"empty":                       {Off: 5, Len: 0, Flags: rw},
				"no right to write":           {Region: readOnly, Len: 10, Flags: nd.AllowWrite},
				"no right to write, and read": {Region: readOnly, Len: 10, Flags: rw},
				"deregistered":                {Region: gone, Len: 10, Flags: nd.AllowRead},
			} {
				o.Do, o.Window = doBind, w
				if r := p.b.do(o); r.Status != nd.AccessViolation {
					t.Errorf("%s: %v (%s)", name, r.Status, r.Text)
				}
			}
			for _, flags := range []nd.OpFlags{nd.Inline, nd.SendAndSolicitEvent, nd.ReadLocalInvalidate, 1 << 30} {
				p.b.refuse(nd.InvalidParameter, order{Do: doBind, Window: w, Len: 10, Flags: flags})
				p.b.refuse(nd.InvalidParameter, order{Do: doInvalidate, Window: w, Flags: flags})
			}
			p.b.nothing(initiatorQueue)
			// The refused calls have had no effect.
			d := p.b.must(order{Do: doBind, Context: 1, Region: readOnly, Window: w, Len: 100, Flags: nd.AllowRead}).Far
			p.b.expect(initiatorQueue, success(nd.RequestBind, 1, 0))
			p.a.must(order{Do: doRead, Parts: mine(0, 100), Far: d})
			p.a.expect(initiatorQueue, success(nd.RequestRead, 0, 100))
			p.b.refuse(nd.DeviceBusy, order{Do: doDeregister, Region: readOnly})
			p.b.invalidate(w)
			p.b.must(order{Do: doDeregister, Region: readOnly})
		})
	}
}

// TestObjectsOfOtherAdapterRejected: objects of another adapter are refused by their position.
func TestObjectsOfOtherAdapterRejected(t *testing.T) {
	p := newPair(t, setup{})
	s := p.a
	other, err := s.provider.OpenAdapter(s.ctx, s.provider.adapterID())
	if err != nil {
		t.Fatal(err)
	}
	mr, err := other.Allocate(s.ctx, 100, nd.AllowLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close(s.ctx)
	w, err := other.CreateMemoryWindow(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(s.ctx)
	own := p.a.newWindow()
	ep := s.endpointAt(0)
	wantStatus(t, ep.Bind(0, mr, s.windowAt(own), mr.Bytes(), nd.AllowRead), nd.InvalidParameter)
	wantStatus(t, ep.Bind(0, nil, s.windowAt(own), mr.Bytes(), nd.AllowRead), nd.InvalidParameter)
	wantStatus(t, ep.Bind(0, s.regionAt(0).mr, w, s.regionAt(0).bytes(), nd.AllowRead), nd.InvalidParameter)
	wantStatus(t, ep.Bind(0, s.regionAt(0).mr, nil, s.regionAt(0).bytes(), nd.AllowRead), nd.InvalidParameter)
	wantStatus(t, ep.Invalidate(0, w, 0), nd.InvalidParameter)
	wantStatus(t, ep.Invalidate(0, nil, 0), nd.InvalidParameter)
	p.a.nothing(initiatorQueue)

	// Its tokens are invalid here, for peers and in entries.
	p.b.must(order{Do: doReceive, Parts: mine(0, 100)})
	if err := ep.Send(7, nd.One(nd.SGE{Buffer: mr.Bytes(), Token: mr.LocalToken()}), 0); err != nil {
		t.Fatal(err)
	}
	p.a.expect(initiatorQueue, failure(nd.RequestSend, 7, nd.AccessViolation))
	p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.Canceled))
}

// wantStatus checks what errors.Is finds in an error.
func wantStatus(t *testing.T, err error, want nd.Status) {
	t.Helper()
	if got := nd.StatusOf(err); got != want {
		t.Errorf("error %q has status %v, want %v", err, got, want)
	}
}

// TestRegionWithBoundWindowStaysRegistered stays registered until the window's invalidation has ended, in each way.
func TestRegionWithBoundWindowStaysRegistered(t *testing.T) {
	ways := map[string]func(p *pair, w int){
		"invalidated": func(p *pair, w int) { p.b.invalidate(w) },
		"window closed": func(p *pair, w int) {
			p.b.must(order{Do: doCloseWindow, Window: w})
		},
		"invalidated by the peer": func(p *pair, w int) {
			p.b.must(order{Do: doReceive})
			p.a.must(order{Do: doSendRevoking, Far: p.b.must(order{Do: doDescriptor, Window: w}).Far})
			p.b.results(receiveQueue, 1)
		},
		"flushed": func(p *pair, _ int) { p.b.must(order{Do: doFlush}) },
		"failed": func(p *pair, _ int) {
			p.b.must(order{Do: doWrite, Parts: []part{{Len: 10, Token: 5}}, Far: p.a.memory})
			p.b.results(initiatorQueue, 1)
		},
		"failed at the peer": func(p *pair, _ int) {
			p.a.must(order{Do: doFlush})
			p.b.must(order{Do: doNotify})
		},
		"disconnected": func(p *pair, _ int) {
			done := p.a.start(order{Do: doDisconnect})
			p.b.must(order{Do: doDisconnect})
			<-done
		},
		"endpoint closed":  func(p *pair, _ int) { p.b.must(order{Do: doCloseEndpoint}) },
		"connector closed": func(p *pair, _ int) { p.b.must(order{Do: doCloseLink}) },
	}
	for name, release := range ways {
		t.Run(name, func(t *testing.T) {
			for _, s := range someSetups(setup{}) {
				t.Run(s.String(), func(t *testing.T) {
					p := newPair(t, s)
					w := p.b.newWindow()
					p.b.bind(w, 0, 100, 0)
					p.b.refuse(nd.DeviceBusy, order{Do: doDeregister})
					release(p, w)
					p.b.must(order{Do: doDeregister})
					p.b.refuse(nd.InvalidDeviceState, order{Do: doDeregister})
				})
			}
		})
	}
}

// TestBindQueued: a queued bind counts from its post on until it is
// canceled.
func TestBindQueued(t *testing.T) {
	p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}})
	w := p.b.newWindow()
	p.b.must(order{Do: doSend}) // the peer posts no receive
	p.b.must(order{Do: doBind, Window: w, Len: 10, Flags: nd.AllowRead})
	p.b.refuse(nd.DeviceBusy, order{Do: doDeregister})
	p.b.must(order{Do: doFlush})
	p.b.expect(initiatorQueue, failure(nd.RequestSend, 0, nd.Canceled), failure(nd.RequestBind, 0, nd.Canceled))
	p.b.must(order{Do: doDeregister})
}

// TestWindowClosedBeforeBindRuns must not become valid afterwards.
func TestWindowClosedBeforeBindRuns(t *testing.T) {
	for _, s := range someSetups(setup{Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			w := p.b.newWindow()
			p.b.must(order{Do: doSend, Context: 1}) // the peer posts no receive
			d := p.b.must(order{Do: doBind, Context: 2, Window: w, Len: 10, Flags: nd.AllowWrite}).Far
			p.b.must(order{Do: doCloseWindow, Window: w})
			p.a.must(order{Do: doReceive})
			p.b.expect(initiatorQueue, success(nd.RequestSend, 1, 0), failure(nd.RequestBind, 2, nd.InvalidDeviceRequest))
			p.a.must(order{Do: doWrite, Context: 3, Parts: mine(0, 8), Far: d})
			if r := p.a.results(initiatorQueue, 1)[0]; r.Status == nd.Success {
				t.Error("a closed window grants access")
			}
			p.b.must(order{Do: doDeregister})
		})
	}
}

// TestBindOfClosedObjects are refused as arguments.
func TestBindOfClosedObjects(t *testing.T) {
	p := newPair(t, setup{})
	open, closed := p.b.newWindow(), p.b.newWindow()
	p.b.must(order{Do: doCloseWindow, Window: closed})
	p.b.must(order{Do: doCloseWindow, Window: closed})
	p.b.refuse(nd.InvalidHandle, order{Do: doBind, Window: closed, Len: 10, Flags: nd.AllowRead})
	p.b.refuse(nd.InvalidHandle, order{Do: doInvalidate, Window: closed})
	region := p.b.must(order{Do: doRegion, Len: 100, Rights: nd.AllowLocalWrite}).N
	p.b.must(order{Do: doCloseRegion, Region: region})
	p.b.refuse(nd.InvalidHandle, order{Do: doBind, Window: open, Region: region, Len: 10, Flags: nd.AllowRead})
	p.b.nothing(initiatorQueue)
	p.b.bind(open, 0, 10, nd.AllowRead)
}

// TestRegionClosedWithBoundWindow stays registered until the window is invalidated.
func TestRegionClosedWithBoundWindow(t *testing.T) {
	for _, s := range someSetups(setup{}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			w := p.b.newWindow()
			before := p.b.must(order{Do: doInUse}).N
			how := order{Do: doAllocate, Len: 100_000, Rights: nd.AllowLocalWrite}
			if s.Private[1] {
				how.Do, how.Private = doRegion, true
			}
			region := p.b.must(how).N
			d := p.b.must(order{Do: doBind, Window: w, Region: region, Len: 100_000, Flags: nd.AllowWrite}).Far
			p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
			p.b.must(order{Do: doCloseRegion, Region: region})
			p.a.must(order{Do: doWrite, Parts: mine(0, 100_000), Far: d})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 100_000))
			p.b.invalidate(w)
			p.offend(doWrite, mine(0, 8), d)
			proctest.Eventually(t, "the memory is given back", func() bool { return p.b.must(order{Do: doInUse}).N <= before })
		})
	}
}
