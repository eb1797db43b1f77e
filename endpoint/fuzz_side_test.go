package endpoint

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// fuzzSide is one of the two. Its endpoint and its connector are used for one input.
type fuzzSide struct {
	*side
	adapter, other      *adapter
	initiated, received *completionQueue
	listener            *listener
	addr                netip.AddrPort
	areas               [2]*memoryArea // in the arena, private
	windows             []*memoryWindow
	inUse               uint64

	ep        *queuePair
	shared    *sharedReceiveQueue // of ep, if any
	connector *connector
	ledger    ledger
}

func newFuzzSide(f testing.TB, arena *shm.Arena, seed uint64) *fuzzSide {
	f.Helper()
	must := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	ctx := context.Background()
	// Sends wait without limit for a Receive, so that the result does not depend on time.
	s, err := openSide(ctx, arena, sideOptions{Options: Options{ReceiveTimeout: time.Hour}, QueueDepth: 256, Bare: true})
	must(err)
	other, err := s.provider.OpenAdapter(ctx, s.provider.adapterID())
	must(err)
	a := &fuzzSide{side: s, adapter: s.adapter.(*adapter), other: other.(*adapter),
		initiated: s.queues[initiatorQueue].(*completionQueue), received: s.queues[receiveQueue].(*completionQueue)}
	for i := range a.areas {
		a.areas[i] = newMemoryArea(f, a, i == private, seed+uint64(i)*10)
	}
	for _, g := range boundWindows {
		w, err := a.adapter.CreateMemoryWindow(ctx)
		must(err)
		win := w.(*memoryWindow)
		a.windows = append(a.windows, win)
		if e := a.areas[g.area]; g.otherwhere {
			b, err := win.window.Prepare(e.regions[windowy], e.of(windowy)[g.from:g.to], window.Read|window.Write, otherEndpoint, true)
			must(err)
			b.Apply()
		}
	}
	l, err := a.adapter.CreateListener(ctx)
	must(err)
	a.listener = l.(*listener)
	must(a.listener.Bind(netip.AddrPortFrom(a.address(), 7)))
	must(a.listener.Listen(0))
	a.addr, err = a.listener.LocalAddress()
	must(err)
	// The chunks from which endpoints and records are allocated stay this member's.
	for _, n := range []uint64{wire.SharedQPSize + 16*ring.SlotSize + 8*128, wire.ConnectionRecordSize} {
		_, err = a.member.Alloc(n)
		must(err)
	}
	a.inUse = a.member.InUse()
	return a
}

// memoryArea is memory of a side: ranges, and bytes between them that no transfer may touch.
type memoryArea struct {
	mem, was []byte
	regions  [rangeCount]*window.Region
	local    [rangeCount]nd.Token
	remote   [rangeCount]nd.Token
	open     [][2]int // ranges that may have changed, besides vast
}

func newMemoryArea(f testing.TB, a *fuzzSide, private bool, seed uint64) *memoryArea {
	f.Helper()
	e := &memoryArea{mem: make([]byte, 3*margin+vastSize+rangeCount*rangeStep)}
	if !private {
		off, err := a.member.Alloc(uint64(len(e.mem)))
		if err == nil {
			e.mem, err = a.provider.arena.Bytes(off, uint64(len(e.mem)))
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	fill(e.mem, seed)
	e.was = bytes.Clone(e.mem)
	rights := [rangeCount]nd.RegionFlags{
		vast:     nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite,
		small:    nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite,
		forPeers: nd.AllowRemoteRead,
		local:    nd.AllowLocalWrite,
		windowy:  nd.AllowLocalWrite,
		foreign:  nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite,
		stale:    nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite,
	}
	for i := range rangeCount {
		domain := a.adapter.domain
		if i == foreign {
			domain = a.other.domain
		}
		region, err := domain.NewRegion()
		if err == nil {
			err = region.Register(e.of(i), rights[i], nil)
		}
		if err != nil {
			f.Fatal(err)
		}
		e.regions[i] = region
		e.local[i], e.remote[i] = region.Tokens()
		if i == stale {
			if err := region.Deregister(); err != nil {
				f.Fatal(err)
			}
		}
	}
	return e
}

// from returns the offset of a range.
func (e *memoryArea) from(rng int) int {
	if rng == vast {
		return margin
	}
	return 2*margin + vastSize + (rng-1)*rangeStep + rangeStep/4
}

// of returns a range.
func (e *memoryArea) of(rng int) []byte {
	n := rangeSize
	if rng == vast {
		n = vastSize
	}
	return e.mem[e.from(rng):][:n:n]
}

// allow notes that a part of a range may change.
func (e *memoryArea) allow(rng, from, to int) {
	if rng != vast {
		e.open = append(e.open, [2]int{e.from(rng) + from, e.from(rng) + to})
	}
}

// check checks the bytes that may not have changed, and restores the others.
func (e *memoryArea) check(t *testing.T, whose string) {
	t.Helper()
	for _, o := range e.open {
		copy(e.mem[o[0]:o[1]], e.was[o[0]:o[1]])
	}
	e.open = e.open[:0]
	end := e.from(vast) + vastSize
	for _, part := range [][2]int{{0, margin}, {end, len(e.mem)}} {
		now, was := e.mem[part[0]:part[1]], e.was[part[0]:part[1]]
		if bytes.Equal(now, was) {
			continue
		}
		i := 0
		for now[i] == was[i] {
			i++
		}
		at := part[0] + i
		copy(now, was)
		for rng := range rangeCount {
			if from := e.from(rng); at >= from-rangeStep/4 && at < from+rangeStep*3/4 && rng != vast {
				t.Fatalf("%s: byte %d of range %d has changed", whose, at-from, rng)
			}
		}
		t.Fatalf("%s: byte %d has changed, which is in no range", whose, at)
	}
}

// share gives the next endpoint of a side a shared receive queue.
func (a *fuzzSide) share(t *testing.T) {
	t.Helper()
	q, err := a.adapter.CreateSharedReceiveQueue(context.Background(), nd.SharedReceiveQueueConfig{Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	a.shared = q.(*sharedReceiveQueue)
}

// dial, accept, complete and established are the steps of a connection. None of them waits.
func (a *fuzzSide) dial(t *testing.T, to *fuzzSide) *connection {
	t.Helper()
	conn, err := a.connector.startConnect(context.Background(), a.ep, nil, to.addr, nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (a *fuzzSide) accept(t *testing.T) error {
	t.Helper()
	a.provider.progressAll()
	if err := a.listener.GetConnectionRequest(context.Background(), a.connector); err != nil {
		t.Fatal(err)
	}
	_, err := a.connector.startAccept(a.ep, nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16})
	return err
}

func (a *fuzzSide) complete(conn *connection) error {
	a.connector.mu.Lock()
	err := a.connector.handleAccepted(conn)
	a.connector.mu.Unlock()
	if err != nil {
		return err
	}
	return a.connector.CompleteConnect(context.Background())
}

func (a *fuzzSide) established() {
	a.ep.progress()
	a.connector.mu.Lock()
	a.connector.phase = cm.PhaseConnected
	a.connector.mu.Unlock()
}

// ledger counts what a side has posted, and the results.
type ledger struct {
	receives  []uint64 // capacities
	requests  []nd.OpFlags
	delivered int
	completed int
	success   int // successful requests
}

// receiveTypes are the types of the results of Receives.
var receiveTypes = []nd.RequestType{nd.RequestReceive, nd.RequestReceiveAndInvalidate, nd.RequestReceiveImmediate, nd.RequestReceiveWriteImmediate}

// collect takes all results and compares them with the posted requests.
func (a *fuzzSide) collect(t *testing.T) {
	t.Helper()
	var results [16]nd.Result
	l := &a.ledger
	for n := a.received.pop(results[:]); n > 0; n = a.received.pop(results[:]) {
		for _, res := range results[:n] {
			if res.RequestContext != uint64(l.delivered) || l.delivered >= len(l.receives) || !slices.Contains(receiveTypes, res.RequestType) {
				t.Fatalf("result %v for receive %d of %d", res, l.delivered, len(l.receives))
			}
			limit := l.receives[l.delivered]
			if res.RequestType == nd.RequestReceiveWriteImmediate {
				limit = maxTransfer // of the Write, which touches no buffer of the receive
			}
			if uint64(res.BytesTransferred) > limit || res.Status != nd.Success && res.BytesTransferred != 0 {
				t.Fatalf("result %v for a receive of %d bytes", res, limit)
			}
			if res.RequestType == nd.RequestReceiveAndInvalidate &&
				!slices.ContainsFunc(a.windows, func(w *memoryWindow) bool { return w.RemoteToken() == res.InvalidatedToken }) {
				t.Fatalf("result %v names none of the windows", res)
			}
			l.delivered++
		}
	}
	for n := a.initiated.pop(results[:]); n > 0; n = a.initiated.pop(results[:]) {
		for _, res := range results[:n] {
			for l.completed < len(l.requests) && uint64(l.completed) != res.RequestContext && l.requests[l.completed].Has(nd.SilentSuccess) {
				l.completed++
			}
			if res.RequestContext != uint64(l.completed) || l.completed >= len(l.requests) || res.Status == nd.Pending {
				t.Fatalf("result %v for request %d of %d", res, l.completed, len(l.requests))
			}
			if res.Status == nd.Success {
				l.success++
			}
			l.completed++
		}
	}
}

// close checks that there is a result for each request.
func (l *ledger) close(t *testing.T, name string) {
	t.Helper()
	for l.completed < len(l.requests) && l.requests[l.completed].Has(nd.SilentSuccess) {
		l.completed++
	}
	if l.delivered != len(l.receives) || l.completed != len(l.requests) {
		t.Fatalf("%s: results for %d of %d receives and %d of %d requests", name, l.delivered, len(l.receives), l.completed, len(l.requests))
	}
}

// sge names a part of a range.
func (a *fuzzSide) sge(area, rng, from, n int) nd.SGE {
	e := a.areas[area]
	return nd.SGE{Buffer: e.of(rng)[from:][:n], Token: e.local[rng]}
}

// receive posts a Receive of some kind.
func (a *fuzzSide) receive(kind byte) {
	from := len(a.ledger.receives) % 4 * 128
	var list nd.SGL
	switch kind % receiveKinds {
	case 0:
		list = nd.One(a.sge(inArena, local, from, 64))
	case 1:
		list = nd.One(a.sge(private, local, from, 100))
	case 2:
		list = nd.List(a.sge(inArena, local, from, 16), a.sge(private, local, from, 100))
	case 3:
		list = nd.One(a.sge(inArena, local, from, 10))
	case 4: // empty
	case 5:
		list = nd.One(a.sge(inArena, forPeers, from, 64))
	case 6:
		list = nd.One(a.sge(inArena, vast, 0, vastSize))
	case 7:
		list = nd.List(a.sge(private, vast, 0, vastSize/2), a.sge(inArena, vast, 0, vastSize/2))
	case 8:
		list = nd.One(a.sge(private, stale, from, 64))
	case 9:
		list = nd.List(a.sge(inArena, local, from, 20), a.sge(inArena, foreign, from, 64))
	}
	receive := a.ep.Receive
	if a.shared != nil {
		receive = a.shared.Receive
	}
	if receive(uint64(len(a.ledger.receives)), list) != nil {
		return // the queue is full
	}
	a.areas[inArena].allow(local, from, from+64)
	a.areas[private].allow(local, from, from+100)
	total := uint64(0)
	for _, s := range list.Entries() {
		total += uint64(len(s.Buffer))
	}
	a.ledger.receives = append(a.ledger.receives, total)
}

// posted notes the outcome of a post.
func (a *fuzzSide) posted(flags nd.OpFlags, err error) {
	if err == nil {
		a.ledger.requests = append(a.ledger.requests, flags)
	}
}

func (a *fuzzSide) context() uint64 { return uint64(len(a.ledger.requests)) }
