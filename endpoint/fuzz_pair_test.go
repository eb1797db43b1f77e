package endpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// A fuzzPair is a victim and an attacker: two members of one arena with stopped engines. Everything
// happens when a fuzz target drives it, so that an input has the same effect each time.
type fuzzPair struct {
	arena            *shm.Arena
	victim, attacker *fuzzSide
	tokens           []nd.Token // the tokens that small numbers in an input mean
	raw              []uint64   // the ring of the attacker
	published        uint64
	mail             shm.Offset // a record that the attacker made
}

// The ranges of an area, and their users.
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
	vastSize  = quantum + 64<<10 // more than a call of progress transfers
	rangeSize = 512
	rangeStep = 1024
	margin    = 4096
)

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
	theAttacker
)

// address, landmark and token make such numbers.
func address(who, area, rng int, distance int32) uint64 {
	return addressMark<<56 | uint64(who*2*rangeCount+area*rangeCount+rng)<<48 | uint64(uint32(distance))
}

func landmark(which int, distance int32) uint64 {
	return offsetMark<<56 | uint64(which)<<48 | uint64(uint32(distance))
}

func remote(who, area, rng int) nd.Token {
	return nd.Token(1 + 2*(who*2*rangeCount+area*rangeCount+rng))
}

func localOf(who, area, rng int) nd.Token { return remote(who, area, rng) + 1 }

func windowToken(who, i int) nd.Token { return nd.Token(1 + 8*rangeCount + who*len(boundWindows) + i) }

// boundWindows are the windows of each side: parts of its windowy ranges.
var boundWindows = [...]struct {
	area, from, to int
	flags          nd.OpFlags
	otherwhere     bool // bound on another endpoint
}{
	{inArena, 0, 128, nd.AllowRead | nd.AllowWrite, false},
	{inArena, 160, 288, nd.AllowRead, false},
	{inArena, 320, 416, nd.AllowWrite | nd.ThisEndpointOnly, false},
	{inArena, 448, 512, nd.AllowRead | nd.AllowWrite, true},
	{private, 0, 128, nd.AllowRead | nd.AllowWrite, false},
	{private, 160, 288, nd.AllowRead, false},
}

const otherEndpoint = 1 << 40

// Landmarks of the arena, for offsets that an attacker passes to a peer.
const (
	attackersQP = iota
	attackersRecord
	victimsQP
	victimsMemory
	attackersMemory
	tables
	windowTable
	heapStart
	arenaEnd
)

func newFuzzPair(f testing.TB) *fuzzPair {
	f.Helper()
	r := new(fuzzPair)
	r.build(f)
	f.Cleanup(func() {
		if err := r.clear(); err != nil {
			f.Error(err)
		}
	})
	return r
}

func (r *fuzzPair) build(t testing.TB) {
	t.Helper()
	arena, err := shm.Create(shm.Config{Size: 96 << 20})
	if err != nil {
		t.Fatal(err)
	}
	*r = fuzzPair{arena: arena, victim: newFuzzSide(t, arena, 1), attacker: newFuzzSide(t, arena, 2)}
}

func (r *fuzzPair) clear() error {
	var errs []error
	for _, a := range []*fuzzSide{r.victim, r.attacker} {
		errs = append(errs, a.leave())
	}
	return errors.Join(append(errs, r.arena.Close())...)
}

// begin starts an input. The process ends if the input does not. After an input that fails the
// pair is built again.
func (r *fuzzPair) begin(t *testing.T) (end func()) {
	returned := proctest.Watchdog(t)
	return func() {
		returned()
		if t.Failed() {
			_ = r.clear() // it may be in any state
			r.build(t)
		}
	}
}

// connect gives both sides an endpoint, connects the two, and binds their windows. The attacker
// connects, or else the victim does.
func (r *fuzzPair) connect(t *testing.T, attackerConnects bool) {
	t.Helper()
	r.arrive(t)
	active, passive := r.victim, r.attacker
	if attackerConnects {
		active, passive = r.attacker, r.victim
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
func (r *fuzzPair) arrive(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, a := range []*fuzzSide{r.victim, r.attacker} {
		a.provider.options.Executor = Auto
		cfg := nd.EndpointConfig{ReceiveCQ: a.received, InitiatorCQ: a.initiated, ReceiveDepth: 8, InitiatorDepth: 16}
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
	h := r.attacker.ep.localQP
	r.published = 0
	var err error
	if r.raw, err = shm.Slice[uint64](r.arena, shm.Offset(h.Ring), h.RingSlots*ring.SlotSize/8); err != nil {
		t.Fatal(err)
	}
}

// settle binds the windows, and collects all tokens.
func (r *fuzzPair) settle(t *testing.T) {
	t.Helper()
	r.tokens = append(r.tokens[:0], 0)
	for _, a := range []*fuzzSide{r.victim, r.attacker} {
		for _, e := range a.areas {
			for i := range rangeCount {
				r.tokens = append(r.tokens, e.remote[i], e.local[i])
			}
		}
	}
	for _, a := range []*fuzzSide{r.victim, r.attacker} {
		for i, g := range boundWindows {
			if e := a.areas[g.area]; !g.otherwhere && a.ep.state() == cm.QPConnected {
				b, err := a.windows[i].window.Prepare(e.regions[windowy], e.of(windowy)[g.from:g.to], rightsOf(g.flags), a.ep.number, g.flags.Has(nd.ThisEndpointOnly))
				if err != nil || !b.Apply() {
					t.Fatalf("window %d cannot be bound: %v", i, err)
				}
				a.ep.bound.Add(&a.windows[i].window.Invalidatable)
			}
			if e := a.areas[g.area]; g.flags.Has(nd.AllowWrite) && !g.otherwhere {
				e.allow(windowy, g.from, g.to)
			}
			r.tokens = append(r.tokens, a.windows[i].RemoteToken())
		}
		for _, e := range a.areas {
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
func (r *fuzzPair) mean(word uint64) uint64 {
	which, distance := int(word>>48&0xff), uint64(int64(int32(word)))
	switch word >> 56 {
	case addressMark:
		which %= 4 * rangeCount
		e := [...]*fuzzSide{r.victim, r.attacker}[which/(2*rangeCount)].areas[which/rangeCount%2]
		return shm.AddressOf(e.of(which%rangeCount)) + distance
	case offsetMark:
		return r.landmark(which) + distance
	}
	return word
}

func (r *fuzzPair) landmark(which int) uint64 {
	off := shm.Offset(0)
	switch which % (arenaEnd + 1) {
	case attackersQP:
		off = r.attacker.ep.localQPOffset
	case attackersRecord:
		off = r.mail
		if c := r.attacker.ep.conn; c != nil {
			off = c.record.Offset
		}
	case victimsQP:
		off = r.victim.ep.localQPOffset
	case victimsMemory:
		off, _ = r.arena.Locate(r.victim.areas[inArena].mem)
	case attackersMemory:
		off, _ = r.arena.Locate(r.attacker.areas[inArena].mem)
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

func (r *fuzzPair) token(t nd.Token) nd.Token {
	if int(t) < len(r.tokens) {
		return r.tokens[t]
	}
	return t
}

// slot reads a slot from an input.
func (r *fuzzPair) slot(b []byte) (s ring.Words) {
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

// write puts a message into the attacker's ring at the place of message n.
func (r *fuzzPair) write(n uint64, s *ring.Words) {
	at := n % uint64(len(r.raw)/8) * 8
	copy(r.raw[at+1:], s[:])
	r.sequence(at).Store(n + 1)
}

func (r *fuzzPair) sequence(at uint64) *atomic.Uint64 {
	h := r.attacker.ep.localQP
	word, _ := shm.At[atomic.Uint64](r.arena, shm.Offset(h.Ring+at*8)) // the offset is valid: arrive has checked it
	return word
}

// room reports whether the victim has taken as many messages as a correct producer waits for.
func (r *fuzzPair) room() bool {
	return r.published-r.victim.ep.localQP.Released.Load() < uint64(len(r.raw)/8)
}

// rest drives the victim until it makes no progress, and calls between after each step. It also
// drives the attacker's endpoint if serve says so.
func (r *fuzzPair) rest(t *testing.T, attackerServes bool, between func()) {
	t.Helper()
	for range 2000 {
		m := r.victim.ep.progress()
		if between != nil {
			between()
		}
		if attackerServes {
			m = max(m, r.attacker.ep.progress())
		}
		r.victim.provider.deferred.Run()
		if m == noProgress {
			r.victim.collect(t)
			return
		}
	}
	t.Fatal("the victim never comes to rest")
}

// part closes both sides, and checks that nothing is left of them.
func (r *fuzzPair) part(t *testing.T) {
	t.Helper()
	r.attacker.ep.localQP.Hazard.Store(0)
	for _, a := range []*fuzzSide{r.victim, r.attacker} {
		a.ep.Close()
		a.connector.Close()
	}
	for range 4 {
		for _, a := range []*fuzzSide{r.victim, r.attacker} {
			a.provider.progressAll()
			a.provider.deferred.Run()
		}
	}
	for i, a := range []*fuzzSide{r.victim, r.attacker} {
		name := [...]string{"victim", "attacker"}[i]
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
		if len(p.conns) != 0 || !p.deferred.IsEmpty() || len(*p.endpoints.Load()) != 0 || len(a.listener.queue) != 0 || p.ports.InUse() != 1 || len(p.watched) > 1 {
			t.Fatalf("%s: left are %d connections, deferred work: %t, %d endpoints, %d requests, %d ports, %d watches", name,
				len(p.conns), !p.deferred.IsEmpty(), len(*p.endpoints.Load()), len(a.listener.queue), p.ports.InUse(), len(p.watched))
		}
		for n, w := range a.windows {
			if _, _, bound := w.window.Invalidate(a.ep.number); bound {
				t.Fatalf("%s: window %d is still bound", name, n)
			}
		}
		for _, e := range a.areas {
			e.check(t, name)
		}
	}
}

// receiveKinds is the number of kinds of Receive.
const receiveKinds = 10

// alive posts a Write, and checks that everything completes: successfully, if the connection is
// alive. A peer that has disconnected leaves earlier requests as they are.
func (r *fuzzPair) alive(t *testing.T) {
	t.Helper()
	v := r.victim
	r.rest(t, true, nil)
	if s := v.ep.state(); s != cm.QPConnected && s != cm.QPFailed || len(v.ledger.requests) > 15 {
		return
	}
	lived, before := v.ep.state() == cm.QPConnected && r.attacker.ep.state() == cm.QPConnected, v.ledger.success
	e := r.attacker.areas[inArena]
	v.posted(0, v.ep.Write(v.context(), nd.One(v.sge(private, small, 0, 50)), shm.AddressOf(e.of(small)), e.remote[small], 0))
	r.rest(t, true, nil)
	if v.ledger.completed != len(v.ledger.requests) || lived && v.ledger.success != before+1 {
		t.Fatalf("of %d requests %d have ended, %d of them well, %d before the last: %v", len(v.ledger.requests), v.ledger.completed, v.ledger.success, before, v.ep.life.cause)
	}
}

// bit reports whether a bit is set in the choices of an input.
func bit(choices uint16, n int) bool { return bits.TrailingZeros16(choices>>n) == 0 }
