package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// soakLink is one side of the connections of two ranks, which follow one another.
type soakLink struct {
	*rand.Rand
	rank    *soakRank
	peer    int
	private [][]byte // private memory of the last session, which must stay as it is
}

// run connects again and again, until ctx ends.
func (l *soakLink) run(ctx context.Context) {
	for ctx.Err() == nil {
		s := &soakSession{soakLink: l, ctx: ctx}
		s.fail(s.open())
		if s.connect() {
			l.rank.count(soakSessions)
			for range 20 + l.IntN(1000) {
				if s.step(); s.ended() || ctx.Err() != nil {
					break
				}
			}
			s.finish()
		} else {
			time.Sleep(5 * time.Millisecond) // the peer may be dead
		}
		s.close()
	}
}

// soakSession is one connection.
type soakSession struct {
	*soakLink
	ctx        context.Context
	ep         nd.Endpoint
	cq         nd.CompletionQueue
	inline     int
	endsAccess bool // this side hardly does anything but to end the access while the peer uses it

	local  [2]nd.MemoryRegion // from Allocate, and private
	blocks soakPool           // of local
	inbox  [2]nd.MemoryRegion // of the receives; nil if the endpoint uses the shared receive queue
	shared nd.MemoryRegion    // the slots that the peer writes, and a pattern that it reads
	guard  nd.MemoryRegion    // memory whose access ends while the peer uses it
	guard0 []byte             // the bytes of guard, also while it is not registered
	own    [][]byte           // private memory of the regions

	privileged  nd.Token
	window      nd.MemoryWindow   // of shared
	fast        nd.MemoryRegion   // of the pages of shared
	pages       nd.LogicalMapping // of shared, if that is arena memory
	sink        nd.MemoryRegion   // registered for one Read
	sinkPages   nd.LogicalMapping
	sinkBusy    bool
	guardWindow nd.MemoryWindow

	pending  []soakRequest
	next     uint64 // context of the next request
	silent   int    // silent requests since the last other one
	receives int    // outstanding receives of the own queue
	outbox   []soakLetter
	moved    time.Time // of the last post or result
	results  [16]nd.Result

	nonce [2]uint64 // of the messages sent, and of those received
	said  [2]uint64 // number of messages sent, and received; one WriteImmediate counts as one
	added uint64    // to the counter of the peer

	grant soakGrant // to the peer
	far   soakFar   // from the peer
	trap  soakTrap  // the guarded memory
}

// soakRequest is a posted request whose result has not been taken.
type soakRequest struct {
	context uint64
	kind    nd.RequestType
	bytes   int
	silent  bool
	loud    bool // it has no flags, and its result comes at once
	mayFail bool // it uses memory that the peer may take away
	done    func(ok bool)
}

const (
	soakDepth    = 64
	soakInbox    = 16 // receives
	soakMessage  = soakMedium
	soakStalled  = time.Minute // for progress of a session; a watchdog
	soakBoth     = nd.AllowRead | nd.AllowWrite
	soakAnything = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
)

// fail ends the process if a promise was broken.
func (s *soakSession) fail(err error) {
	if err != nil {
		s.rank.fail(fmt.Errorf("session with rank %d: %w", s.peer, err))
	}
}

// memory returns a region of either kind.
func (s *soakSession) memory(n int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	return s.memoryOf(s.IntN(2), n, flags)
}

// memoryOf returns a region from Allocate, or of private memory.
func (s *soakSession) memoryOf(kind, n int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	a := s.rank.job.Adapter()
	if kind == 0 {
		return a.Allocate(context.Background(), n, flags)
	}
	for i, b := range s.private {
		if len(b) == n {
			s.private = append(s.private[:i], s.private[i+1:]...)
			if !isAll(b, soakPoison) {
				return nil, errors.New("private memory has changed after the end of its session")
			}
			s.own = append(s.own, b)
			return a.Register(context.Background(), b, flags)
		}
	}
	b := make([]byte, n)
	s.own = append(s.own, b)
	return a.Register(context.Background(), b, flags)
}

func isAll(b []byte, v byte) bool { return bytes.Count(b, []byte{v}) == len(b) }

func setAll(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// open creates the objects of the session, but for the endpoint.
func (s *soakSession) open() (err error) {
	a, ctx := s.rank.job.Adapter(), context.Background()
	must := func(e error) { err = errors.Join(err, e) }
	region := func(mr nd.MemoryRegion, e error) nd.MemoryRegion { must(e); return mr }
	var e error
	s.cq, e = a.CreateCompletionQueue(ctx, 2*soakDepth+soakReceives)
	must(e)
	for i := range s.local {
		s.local[i] = region(s.memoryOf(i, soakBlocksSize, nd.AllowLocalWrite))
	}
	if s.IntN(3) > 0 {
		for i := range s.inbox {
			s.inbox[i] = region(s.memoryOf(i, soakInbox/2*soakMessage, nd.AllowLocalWrite))
		}
	}
	s.shared = region(s.memory(soakSharedSize, soakAnything))
	if s.endsAccess = s.IntN(3) == 0; s.endsAccess && s.IntN(2) == 0 {
		s.guard = region(s.memoryOf(0, soakGuardSize, soakAnything)) // the peer can copy itself
	} else {
		s.guard = region(s.memory(soakGuardSize, soakAnything))
	}
	s.window, e = a.CreateMemoryWindow(ctx)
	must(e)
	s.guardWindow, e = a.CreateMemoryWindow(ctx)
	must(e)
	s.fast = region(a.CreateMemoryRegion(ctx))
	s.sink = region(a.CreateMemoryRegion(ctx))
	if err != nil {
		return err
	}
	must(s.fast.InitializeFastRegister(ctx, soakSharedSize/4096+2, true))
	must(s.sink.InitializeFastRegister(ctx, soakBlocksSize/4096+2, false))
	s.privileged, e = a.PrivilegedToken()
	must(e)
	s.sinkPages, e = a.BuildLogicalAddressMapping(ctx, s.local[0].Bytes())
	must(e)
	if s.pages, e = a.BuildLogicalAddressMapping(ctx, s.shared.Bytes()); e != nil {
		s.pages = nil // private memory
	}
	for _, mr := range s.local {
		s.blocks.add(mr)
	}
	copy(s.shared.Bytes()[soakSlots:], soakPattern(s.rank.job.Rank()))
	setAll(s.shared.Bytes()[soakCounter:][:8], 0)
	s.grant.seal = sealOf(s.shared.Bytes())
	s.guard0 = s.guard.Bytes()
	setAll(s.guard0, soakPoison)
	s.trap.sealed = true
	return err
}

// connect connects the endpoint and posts the first receives. It returns false if the peer is not there, or the ranks
// are to rest.
func (s *soakSession) connect() bool {
	s.inline = []int{0, 48, 256}[s.IntN(3)]
	cfg := nd.EndpointConfig{ReceiveCQ: s.cq, InitiatorCQ: s.cq, ReceiveDepth: soakDepth, InitiatorDepth: soakDepth, MaxInitiatorSGE: 8, InlineSize: s.inline}
	if s.inbox[0] == nil {
		cfg.SharedReceive = s.rank.srq
	}
	var err error
	s.ep, err = s.rank.job.Connect(s.ctx, s.peer, cfg)
	if err != nil {
		for _, status := range []nd.Status{nd.HostUnreachable, nd.ConnectionAborted, nd.ConnectionRefused, nd.Canceled} {
			if errors.Is(err, status) {
				return false
			}
		}
		s.fail(err)
	}
	if s.inbox[0] != nil {
		for i := range uint64(soakInbox) {
			s.receive(i)
		}
	}
	s.nonce[0] = s.Uint64()
	s.say(mHello, helloMessage{s.nonce[0]}, 0)
	s.moved = time.Now()
	return true
}

// receive posts the receive with a number, in its own part of memory.
func (s *soakSession) receive(i uint64) {
	if s.inbox[0] == nil {
		s.fail(s.rank.receive(i))
		return
	}
	if err := s.ep.Receive(i, s.letter(i)); err != nil {
		if s.ep.Err() == nil {
			s.fail(fmt.Errorf("post of a receive: %w", err))
		}
		return
	}
	s.receives++
}

// letter is the memory of a receive.
func (s *soakSession) letter(i uint64) nd.SGL {
	if s.inbox[0] == nil {
		return s.rank.letter(i)
	}
	mr := s.inbox[i%2]
	b := mr.Bytes()[i/2*soakMessage:][:soakMessage]
	if i%4 < 2 {
		return nd.One(nd.SGE{Buffer: b, Token: mr.LocalToken()})
	}
	return nd.List(nd.SGE{Buffer: b[:5], Token: mr.LocalToken()}, nd.SGE{Buffer: b[5:], Token: mr.LocalToken()})
}

// ended reports whether the connection has ended.
func (s *soakSession) ended() bool { return s.ep.Err() != nil }

// post posts a request. Its result is checked when it is taken.
func (s *soakSession) post(q soakRequest, flags nd.OpFlags, call func(x uint64, f nd.OpFlags) error) bool {
	f := flags
	if !q.loud {
		f |= s.flags(q.kind)
	}
	q.context, q.silent = s.next, f.Has(nd.SilentSuccess)
	if err := call(q.context, f); err != nil {
		if !s.ended() {
			s.fail(fmt.Errorf("post of a %v with %v: %w", q.kind, f, err))
		}
		return false
	}
	for bit, what := range map[nd.OpFlags]int{nd.SilentSuccess: soakSilents, nd.ReadFence: soakFences, nd.Inline: soakInlines} {
		if f.Has(bit) {
			s.rank.count(what)
		}
	}
	s.next++
	s.silent++
	if !q.silent {
		s.silent = 0
	}
	s.pending = append(s.pending, q)
	s.moved = time.Now()
	return true
}

// flags chooses flags that every request of a type takes.
func (s *soakSession) flags(kind nd.RequestType) (f nd.OpFlags) {
	if s.IntN(3) == 0 && s.silent < 8 {
		f |= nd.SilentSuccess
	}
	if s.IntN(6) == 0 {
		f |= nd.ReadFence
	}
	if s.IntN(8) == 0 {
		f |= nd.Defer
	}
	if kind == nd.RequestSend && s.IntN(3) == 0 {
		f |= nd.SendAndSolicitEvent
	}
	return f
}

// take takes the first n results.
func (s *soakSession) take(n int) {
	for _, r := range s.results[:n] {
		s.moved = time.Now()
		if r.RequestType.Initiator() {
			s.completed(r)
		} else {
			s.received(r)
		}
	}
}

// completed handles the result of a request.
func (s *soakSession) completed(r nd.Result) {
	for len(s.pending) > 0 && s.pending[0].context != r.RequestContext {
		q := s.pending[0]
		if s.pending = s.pending[1:]; !q.silent {
			s.fail(fmt.Errorf("%v %d has no result, and the next one is %+v", q.kind, q.context, r))
		}
		q.done(true)
	}
	if len(s.pending) == 0 {
		s.fail(fmt.Errorf("result %+v of no request", r))
	}
	q := s.pending[0]
	s.pending = s.pending[1:]
	ok := r.Status == nd.Success
	switch {
	case r.RequestType != q.kind || ok && int(r.BytesTransferred) != q.bytes || ok && q.silent:
		s.fail(fmt.Errorf("result %+v of a %v of %d bytes, silent %t", r, q.kind, q.bytes, q.silent))
	case ok:
	case r.Status == nd.Canceled && s.ended():
	case r.Status == nd.AccessViolation && q.mayFail:
		s.rank.count(soakTooLate)
	default:
		s.fail(fmt.Errorf("%v %d of %d bytes: %v: %w", q.kind, q.context, q.bytes, r.Status, nd.Explain(s.ep, r)))
	}
	q.done(ok)
}

// received handles the result of a receive.
func (s *soakSession) received(r nd.Result) {
	if s.inbox[0] != nil {
		s.receives--
	}
	switch {
	case r.Status == nd.Success:
		s.rank.count(soakMessages)
		token := r.InvalidatedToken
		if number, ok := r.Immediate(); ok {
			if token = 0; number != uint32(s.said[1]) {
				s.fail(fmt.Errorf("message %d has the number %d", s.said[1], number))
			}
		}
		var b []byte
		letter := s.letter(r.RequestContext)
		for _, e := range letter.Entries() {
			b = append(b, e.Buffer...)
		}
		if r.RequestType == nd.RequestReceiveWriteImmediate {
			s.said[1]++ // a message about its bytes follows
		} else {
			s.hear(b[:r.BytesTransferred], token)
		}
		if s.inbox[0] == nil || !s.ended() {
			s.receive(r.RequestContext)
		}
	case r.Status == nd.Canceled && s.ended():
		if s.inbox[0] == nil {
			s.receive(r.RequestContext)
		}
	default:
		s.fail(fmt.Errorf("receive: %v: %w", r.Status, nd.Explain(s.ep, r)))
	}
}

// sealOf returns the hash of the slots in shared memory.
func sealOf(shared []byte) uint64 { return xxhash.Sum64(shared[:soakSlots]) }
