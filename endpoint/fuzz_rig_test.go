package endpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// A rig is a victim and a liar: two members of one arena with stopped engines. Everything
// happens when a fuzz target drives it, so that an input has the same effect each time.
type rig struct {
	arena        *shm.Arena
	victim, liar *actor
	tokens       []nd.Token // the tokens that small numbers in an input mean
	raw          []uint64   // the ring of the liar
	published    uint64
	mail         shm.Offset // a record that the liar made
}

// actor is one of the two. Its endpoint and its connector are used for one input.
type actor struct {
	member              *shm.Member
	provider            *Provider
	adapter, stranger   *adapter
	initiated, received *completionQueue
	listener            *listener
	addr                netip.AddrPort
	estates             [2]*estate // in the arena, private
	windows             []*memoryWindow
	inUse               uint64

	ep        *queuePair
	shared    *sharedReceiveQueue // of ep, if any
	connector *connector
	ledger    ledger
}

// The ranges of an estate, and their users.
const (
	vast     = iota // all processes, for everything; large
	small           // all processes, for everything
	forPeers        // peers, to read
	local           // the owner only
	windowy         // the owner, and peers through windows
	foreign         // as small, but through another adapter of the owner
	stale           // no process: the registration has ended
	rangeCount
)

const (
	vastSize  = 300 << 10 // more than a quantum
	rangeSize = 512
	rangeStep = 1024
	margin    = 4096
)

// estate is memory of an actor: ranges, and bytes between them that no transfer may touch.
type estate struct {
	mem, was []byte
	regions  [rangeCount]*window.Region
	local    [rangeCount]nd.Token
	remote   [rangeCount]nd.Token
	open     [][2]int // ranges that may have changed, besides vast
}

// Small numbers in an input mean tokens. Numbers with a mark in their upper byte mean addresses
// or offsets, because the real ones differ from run to run.
const (
	addressMark = 0xad // then: the range, and a signed distance of 32 bits
	offsetMark  = 0xac // then: the landmark, and the distance
)

const (
	inArena = iota
	private
)

const (
	theVictim = iota
	theLiar
)

// address, landmark and token make such numbers.
func address(who, estate, rng int, distance int32) uint64 {
	return addressMark<<56 | uint64(who*2*rangeCount+estate*rangeCount+rng)<<48 | uint64(uint32(distance))
}

func landmark(which int, distance int32) uint64 {
	return offsetMark<<56 | uint64(which)<<48 | uint64(uint32(distance))
}

func remote(who, estate, rng int) nd.Token {
	return nd.Token(1 + 2*(who*2*rangeCount+estate*rangeCount+rng))
}

func localOf(who, estate, rng int) nd.Token { return remote(who, estate, rng) + 1 }

func windowToken(who, i int) nd.Token { return nd.Token(1 + 8*rangeCount + who*len(boundWindows) + i) }

// boundWindows are the windows of each actor: parts of its windowy ranges.
var boundWindows = [...]struct {
	estate, from, to int
	flags            nd.OpFlags
	otherwhere       bool // bound on another endpoint
}{
	{inArena, 0, 128, nd.AllowRead | nd.AllowWrite, false},
	{inArena, 160, 288, nd.AllowRead, false},
	{inArena, 320, 416, nd.AllowWrite | nd.ThisEndpointOnly, false},
	{inArena, 448, 512, nd.AllowRead | nd.AllowWrite, true},
	{private, 0, 128, nd.AllowRead | nd.AllowWrite, false},
	{private, 160, 288, nd.AllowRead, false},
}

const otherEndpoint = 1 << 40

// Landmarks of the arena, for offsets that a liar passes to a peer.
const (
	liarsQP = iota
	liarsRecord
	victimsQP
	victimsMemory
	liarsMemory
	tables
	windowTable
	heapStart
	arenaEnd
)

func newRig(f testing.TB) *rig {
	f.Helper()
	r := new(rig)
	r.build(f)
	f.Cleanup(func() {
		if err := r.clear(); err != nil {
			f.Error(err)
		}
	})
	return r
}

func (r *rig) build(t testing.TB) {
	t.Helper()
	arena, err := shm.Create(shm.Config{Size: 96 << 20})
	if err != nil {
		t.Fatal(err)
	}
	*r = rig{arena: arena, victim: newActor(t, arena, 1), liar: newActor(t, arena, 2)}
}

func (r *rig) clear() error {
	var errs []error
	for _, a := range []*actor{r.victim, r.liar} {
		errs = append(errs, a.provider.Close(), a.member.Leave())
	}
	return errors.Join(append(errs, r.arena.Close())...)
}

// begin starts an input. The process ends if the input does not. After an input that fails the
// rig is built again.
func (r *rig) begin(t *testing.T) (end func()) {
	returned := proctest.Watchdog(t)
	return func() {
		returned()
		if t.Failed() {
			_ = r.clear() // it may be in any state
			r.build(t)
		}
	}
}

func newActor(f testing.TB, arena *shm.Arena, seed uint64) *actor {
	f.Helper()
	must := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	member, err := arena.Join(shm.NoRank)
	must(err)
	// Sends wait without limit for a Receive, so that the result does not depend on time.
	p, err := New(member, Options{ReceiveTimeout: time.Hour})
	must(err)
	p.engine.stop()
	p.housekeeper.stop()
	a := &actor{member: member, provider: p}
	ctx := context.Background()
	opened, err := p.OpenAdapter(ctx, p.adapterID())
	must(err)
	stranger, err := p.OpenAdapter(ctx, p.adapterID())
	must(err)
	a.adapter, a.stranger = opened.(*adapter), stranger.(*adapter)
	a.initiated, a.received = newCompletionQueue(a.adapter, 256), newCompletionQueue(a.adapter, 256)
	for i := range a.estates {
		a.estates[i] = newEstate(f, a, i == private, seed+uint64(i)*10)
	}
	for _, g := range boundWindows {
		w, err := a.adapter.CreateMemoryWindow(ctx)
		must(err)
		win := w.(*memoryWindow)
		a.windows = append(a.windows, win)
		if e := a.estates[g.estate]; g.otherwhere {
			b, err := win.window.Prepare(e.regions[windowy], e.of(windowy)[g.from:g.to], window.Read|window.Write, otherEndpoint, true)
			must(err)
			b.Apply()
		}
	}
	l, err := a.adapter.CreateListener(ctx)
	must(err)
	a.listener = l.(*listener)
	must(a.listener.Bind(netip.AddrPortFrom(Address(0, member.ID()), 7)))
	must(a.listener.Listen(0))
	a.addr, err = a.listener.LocalAddress()
	must(err)
	// The chunks from which endpoints and records are allocated stay this member's.
	for _, n := range []uint64{wire.SharedQPSize + 16*ring.SlotSize + 8*128, wire.ConnectionRecordSize} {
		_, err = member.Alloc(n)
		must(err)
	}
	a.inUse = member.InUse()
	return a
}

func newEstate(f testing.TB, a *actor, private bool, seed uint64) *estate {
	f.Helper()
	e := &estate{mem: make([]byte, 3*margin+vastSize+rangeCount*rangeStep)}
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
			domain = a.stranger.domain
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
func (e *estate) from(rng int) int {
	if rng == vast {
		return margin
	}
	return 2*margin + vastSize + (rng-1)*rangeStep + rangeStep/4
}

// of returns a range.
func (e *estate) of(rng int) []byte {
	n := rangeSize
	if rng == vast {
		n = vastSize
	}
	return e.mem[e.from(rng):][:n:n]
}

// allow notes that a part of a range may change.
func (e *estate) allow(rng, from, to int) {
	if rng != vast {
		e.open = append(e.open, [2]int{e.from(rng) + from, e.from(rng) + to})
	}
}

// check checks the bytes that may not have changed, and restores the others.
func (e *estate) check(t *testing.T, whose string) {
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

// connect gives both actors an endpoint, connects the two, and binds their windows. The liar
// connects, or else the victim does.
func (r *rig) connect(t *testing.T, liarConnects bool) {
	t.Helper()
	r.arrive(t)
	active, passive := r.victim, r.liar
	if liarConnects {
		active, passive = r.liar, r.victim
	}
	conn := active.dial(t, passive)
	if err := passive.accept(t); err != nil {
		t.Fatal(err)
	}
	if err := active.complete(conn); err != nil {
		t.Fatal(err)
	}
	passive.established()
	r.settle(t)
}

// arrive makes endpoints and connectors.
func (r *rig) arrive(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, a := range []*actor{r.victim, r.liar} {
		a.provider.options.Executor = Auto
		cfg := nd.EndpointConfig{Receive: a.received, Initiator: a.initiated, ReceiveDepth: 8, InitiatorDepth: 16}
		if a.shared != nil {
			cfg.SharedReceive = a.shared
		}
		ep, err := a.adapter.CreateEndpoint(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.adapter.CreateConnector(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a.ep, a.connector, a.ledger = ep.(*queuePair), c.(*connector), ledger{receives: a.ledger.receives[:0], requests: a.ledger.requests[:0]}
	}
	h := r.liar.ep.localQP
	r.published = 0
	var err error
	if r.raw, err = shm.Slice[uint64](r.arena, shm.Offset(h.Ring), h.RingSlots*ring.SlotSize/8); err != nil {
		t.Fatal(err)
	}
}

// share gives the next endpoint of an actor a shared receive queue.
func (a *actor) share(t *testing.T) {
	t.Helper()
	q, err := a.adapter.CreateSharedReceiveQueue(context.Background(), nd.SharedReceiveQueueConfig{Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	a.shared = q.(*sharedReceiveQueue)
}

// dial, accept, complete and established are the steps of a connection. None of them waits.
func (a *actor) dial(t *testing.T, to *actor) *connection {
	t.Helper()
	conn, err := a.connector.startConnect(context.Background(), a.ep, nil, to.addr, nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (a *actor) accept(t *testing.T) error {
	t.Helper()
	a.provider.progressAll()
	if err := a.listener.GetConnectionRequest(context.Background(), a.connector); err != nil {
		t.Fatal(err)
	}
	_, err := a.connector.startAccept(a.ep, nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16})
	return err
}

func (a *actor) complete(conn *connection) error {
	a.connector.mu.Lock()
	err := a.connector.handleAccepted(conn)
	a.connector.mu.Unlock()
	if err != nil {
		return err
	}
	return a.connector.CompleteConnect(context.Background())
}

func (a *actor) established() {
	a.ep.progress()
	a.connector.mu.Lock()
	a.connector.phase = phaseConnected
	a.connector.mu.Unlock()
}

// settle binds the windows, and collects all tokens.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	r.tokens = append(r.tokens[:0], 0)
	for _, a := range []*actor{r.victim, r.liar} {
		for _, e := range a.estates {
			for i := range rangeCount {
				r.tokens = append(r.tokens, e.remote[i], e.local[i])
			}
		}
	}
	for _, a := range []*actor{r.victim, r.liar} {
		for i, g := range boundWindows {
			if e := a.estates[g.estate]; !g.otherwhere && a.ep.state() == connected {
				b, err := a.windows[i].window.Prepare(e.regions[windowy], e.of(windowy)[g.from:g.to], rightsOf(g.flags), a.ep.number, g.flags.Has(nd.ThisEndpointOnly))
				if err != nil || !b.Apply() {
					t.Fatalf("window %d cannot be bound: %v", i, err)
				}
				a.ep.bound.add(&a.windows[i].window.Invalidatable)
			}
			if e := a.estates[g.estate]; g.flags.Has(nd.AllowWrite) && !g.otherwhere {
				e.allow(windowy, g.from, g.to)
			}
			r.tokens = append(r.tokens, a.windows[i].RemoteToken())
		}
		for _, e := range a.estates {
			e.allow(small, 0, rangeSize)
		}
	}
}

func rightsOf(f nd.OpFlags) (rights window.Rights) {
	if f.Has(nd.AllowRead) {
		rights |= window.Read
	}
	if f.Has(nd.AllowWrite) {
		rights |= window.Write
	}
	return rights
}

// mean replaces a number of an input by the address or offset that it means.
func (r *rig) mean(word uint64) uint64 {
	which, distance := int(word>>48&0xff), uint64(int64(int32(word)))
	switch word >> 56 {
	case addressMark:
		which %= 4 * rangeCount
		e := [...]*actor{r.victim, r.liar}[which/(2*rangeCount)].estates[which/rangeCount%2]
		return shm.AddressOf(e.of(which%rangeCount)) + distance
	case offsetMark:
		return r.landmark(which) + distance
	}
	return word
}

func (r *rig) landmark(which int) uint64 {
	off := shm.Offset(0)
	switch which % (arenaEnd + 1) {
	case liarsQP:
		off = r.liar.ep.localQPOffset
	case liarsRecord:
		off = r.mail
		if c := r.liar.ep.conn; c != nil {
			off = c.offset
		}
	case victimsQP:
		off = r.victim.ep.localQPOffset
	case victimsMemory:
		off, _ = r.arena.Locate(r.victim.estates[inArena].mem)
	case liarsMemory:
		off, _ = r.arena.Locate(r.liar.estates[inArena].mem)
	case tables:
		off = 4096
	case windowTable:
		off = r.arena.Info().WindowTable
	case heapStart:
		off = r.arena.Info().HeapStart
	case arenaEnd:
		off = shm.Offset(r.arena.Info().Size)
	}
	return uint64(off)
}

func (r *rig) token(t nd.Token) nd.Token {
	if int(t) < len(r.tokens) {
		return r.tokens[t]
	}
	return t
}

// slot reads a slot from an input.
func (r *rig) slot(b []byte) (s ring.Words) {
	words(s[:], b)
	for i := range s {
		if i == 0 || i == 2 {
			s[i] = s[i]&(1<<32-1) | uint64(r.token(nd.Token(s[i]>>32)))<<32
		}
		s[i] = r.mean(s[i])
	}
	return s
}

// words fills w from b, and with zeros behind its end.
func words(w []uint64, b []byte) {
	var last [8]byte
	for i := range w {
		w[i] = 0
		if len(b) >= 8 {
			w[i], b = binary.LittleEndian.Uint64(b), b[8:]
		} else if len(b) > 0 {
			last = [8]byte{}
			copy(last[:], b)
			w[i], b = binary.LittleEndian.Uint64(last[:]), nil
		}
	}
}

func bytesOf(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// write puts a message into the liar's ring at the place of message n.
func (r *rig) write(n uint64, s *ring.Words) {
	at := n % uint64(len(r.raw)/8) * 8
	copy(r.raw[at+1:], s[:])
	r.sequence(at).Store(n + 1)
}

func (r *rig) sequence(at uint64) *atomic.Uint64 {
	h := r.liar.ep.localQP
	word, _ := shm.At[atomic.Uint64](r.arena, shm.Offset(h.Ring+at*8)) // the offset is valid: arrive has checked it
	return word
}

// room reports whether the victim has taken as many messages as a correct producer waits for.
func (r *rig) room() bool {
	return r.published-r.victim.ep.localQP.Released.Load() < uint64(len(r.raw)/8)
}

// rest drives the victim until it makes no progress, and calls between after each step. It also
// drives the liar's endpoint if serve says so.
func (r *rig) rest(t *testing.T, liarServes bool, between func()) {
	t.Helper()
	for range 2000 {
		m := r.victim.ep.progress()
		if between != nil {
			between()
		}
		if liarServes {
			m = max(m, r.liar.ep.progress())
		}
		r.victim.provider.runDeferred()
		if m == noProgress {
			r.victim.collect(t)
			return
		}
	}
	t.Fatal("the victim never comes to rest")
}

// part closes both sides, and checks that nothing is left of them.
func (r *rig) part(t *testing.T) {
	t.Helper()
	r.liar.ep.localQP.Hazard.Store(0)
	for _, a := range []*actor{r.victim, r.liar} {
		a.ep.Close()
		a.connector.Close()
	}
	for range 4 {
		for _, a := range []*actor{r.victim, r.liar} {
			a.provider.progressAll()
			a.provider.runDeferred()
		}
	}
	for i, a := range []*actor{r.victim, r.liar} {
		name := [...]string{"victim", "liar"}[i]
		a.collect(t)
		if a.shared != nil {
			a.ledger.delivered += int(a.shared.outstanding()) // they are for other endpoints
			a.shared = nil
		}
		a.ledger.close(t, name)
		p := a.provider
		if n := a.member.InUse(); n != a.inUse {
			t.Fatalf("%s: %d bytes in use, %d before", name, n, a.inUse)
		}
		if len(p.conns) != 0 || len(p.deferred) != 0 || len(*p.endpoints.Load()) != 0 || len(a.listener.queue) != 0 || len(p.ports.used) != 1 || len(p.watched) > 1 {
			t.Fatalf("%s: left are %d connections, %d deferred, %d endpoints, %d requests, %d ports, %d watches", name,
				len(p.conns), len(p.deferred), len(*p.endpoints.Load()), len(a.listener.queue), len(p.ports.used), len(p.watched))
		}
		for n, w := range a.windows {
			if _, _, bound := w.window.Invalidate(a.ep.number); bound {
				t.Fatalf("%s: window %d is still bound", name, n)
			}
		}
		for _, e := range a.estates {
			e.check(t, name)
		}
	}
}

// ledger counts what an actor has posted, and the results.
type ledger struct {
	receives  []uint64 // capacities
	requests  []nd.OpFlags
	delivered int
	completed int
	success   int // successful requests
}

// collect takes all results and compares them with the posted requests.
func (a *actor) collect(t *testing.T) {
	t.Helper()
	var results [16]nd.Result
	l := &a.ledger
	for n := a.received.pop(results[:]); n > 0; n = a.received.pop(results[:]) {
		for _, res := range results[:n] {
			if res.RequestContext != uint64(l.delivered) || l.delivered >= len(l.receives) ||
				res.RequestType != nd.RequestReceive && res.RequestType != nd.RequestReceiveAndInvalidate {
				t.Fatalf("result %v for receive %d of %d", res, l.delivered, len(l.receives))
			}
			if limit := l.receives[l.delivered]; uint64(res.BytesTransferred) > limit || res.Status != nd.Success && res.BytesTransferred != 0 {
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
func (a *actor) sge(estate, rng, from, n int) nd.SGE {
	e := a.estates[estate]
	return nd.SGE{Buffer: e.of(rng)[from:][:n], Token: e.local[rng]}
}

// receiveKinds is the number of kinds of Receive.
const receiveKinds = 10

// receive posts a Receive of some kind.
func (a *actor) receive(kind byte) {
	from := len(a.ledger.receives) % 4 * 128
	var list []nd.SGE
	switch kind % receiveKinds {
	case 0:
		list = []nd.SGE{a.sge(inArena, local, from, 64)}
	case 1:
		list = []nd.SGE{a.sge(private, local, from, 100)}
	case 2:
		list = []nd.SGE{a.sge(inArena, local, from, 16), a.sge(private, local, from, 100)}
	case 3:
		list = []nd.SGE{a.sge(inArena, local, from, 10)}
	case 4: // empty
	case 5:
		list = []nd.SGE{a.sge(inArena, forPeers, from, 64)}
	case 6:
		list = []nd.SGE{a.sge(inArena, vast, 0, vastSize)}
	case 7:
		list = []nd.SGE{a.sge(private, vast, 0, vastSize/2), a.sge(inArena, vast, 0, vastSize/2)}
	case 8:
		list = []nd.SGE{a.sge(private, stale, from, 64)}
	case 9:
		list = []nd.SGE{a.sge(inArena, local, from, 20), a.sge(inArena, foreign, from, 64)}
	}
	receive := a.ep.Receive
	if a.shared != nil {
		receive = a.shared.Receive
	}
	if receive(uint64(len(a.ledger.receives)), list) != nil {
		return // the queue is full
	}
	a.estates[inArena].allow(local, from, from+64)
	a.estates[private].allow(local, from, from+100)
	total := uint64(0)
	for _, s := range list {
		total += uint64(len(s.Buffer))
	}
	a.ledger.receives = append(a.ledger.receives, total)
}

// posted notes the outcome of a post.
func (a *actor) posted(flags nd.OpFlags, err error) {
	if err == nil {
		a.ledger.requests = append(a.ledger.requests, flags)
	}
}

func (a *actor) context() uint64 { return uint64(len(a.ledger.requests)) }

// alive posts a Write, and checks that everything completes: successfully, if the connection is
// alive. A peer that has disconnected leaves earlier requests as they are.
func (r *rig) alive(t *testing.T) {
	t.Helper()
	v := r.victim
	r.rest(t, true, nil)
	if s := v.ep.state(); s != connected && s != failed || len(v.ledger.requests) > 15 {
		return
	}
	lived, before := v.ep.state() == connected && r.liar.ep.state() == connected, v.ledger.success
	e := r.liar.estates[inArena]
	v.posted(0, v.ep.Write(v.context(), []nd.SGE{v.sge(private, small, 0, 50)}, shm.AddressOf(e.of(small)), e.remote[small], 0))
	r.rest(t, true, nil)
	if v.ledger.completed != len(v.ledger.requests) || lived && v.ledger.success != before+1 {
		t.Fatalf("of %d requests %d have ended, %d of them well, %d before the last: %v", len(v.ledger.requests), v.ledger.completed, v.ledger.success, before, v.ep.life.cause)
	}
}

// bit reports whether a bit is set in the choices of an input.
func bit(choices uint16, n int) bool { return bits.TrailingZeros16(choices>>n) == 0 }
