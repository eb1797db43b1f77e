package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// session is one connection.
type session struct {
	*Link
	ctx        context.Context
	ep         nd.Endpoint
	cq         nd.CompletionQueue
	inline     int
	endsAccess bool // this side hardly does anything but to end the access while the peer uses it

	local  [2]nd.MemoryRegion // from Allocate, and private
	blocks pool               // of local
	inbox  [2]nd.MemoryRegion // of the receives; nil if they are from Shared
	shared nd.MemoryRegion    // the slots that the peer writes, and a pattern that it reads
	guard  nd.MemoryRegion    // memory whose access ends while the peer uses it
	guard0 []byte             // the bytes of guard, also while it is not registered
	own    [][]byte           // private memory of the regions

	srq         nd.SharedReceiveQueue // of the session; nil if receives are the endpoint's own, or from Shared
	privileged  nd.Token
	window      nd.MemoryWindow   // of shared
	fast        nd.MemoryRegion   // of the pages of shared
	pages       nd.LogicalMapping // of shared, if that is arena memory
	sink        nd.MemoryRegion   // registered for one Read
	sinkPages   nd.LogicalMapping
	sinkBusy    bool
	guardWindow nd.MemoryWindow

	pending  []request
	next     uint64 // context of the next request
	silent   int    // silent requests since the last other one
	receives int    // outstanding receives of the own queue
	outbox   []letter
	moved    time.Time // of the last post or result
	results  [16]nd.Result

	nonce   [2]uint64 // of the messages sent, and of those received
	said    [2]uint64 // number of messages sent, and received; one WriteImmediate counts as one
	counter uint64    // expected in the counter of the peer

	grant grant // to the peer
	far   far   // from the peer
	trap  trap  // the guarded memory
}

// request is a posted request whose result has not been taken.
type request struct {
	context uint64
	kind    nd.RequestType
	bytes   int
	silent  bool
	loud    bool // it has no flags, and its result comes at once
	mayFail bool // it uses memory that the peer may take away
	done    func(ok bool)
}

const (
	depth          = 64
	inboxDepth     = 8 // receives
	largestMessage = medium
	stalled        = 30 * time.Second // for progress of a session; a watchdog
	readWrite      = nd.AllowRead | nd.AllowWrite
	anything       = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
)

// memory returns a region of either kind.
func (s *session) memory(n int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	return s.memoryOf(s.IntN(2), n, flags)
}

// memoryOf returns a region from Allocate, or of private memory.
func (s *session) memoryOf(kind, n int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	a := s.Job.Adapter()
	if kind == 0 {
		return a.Allocate(context.Background(), n, flags)
	}
	for i, b := range s.private {
		if len(b) == n {
			s.private = append(s.private[:i], s.private[i+1:]...)
			if !s.Wild && !isAll(b, poison) {
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
func (s *session) open() (err error) {
	a, ctx := s.Job.Adapter(), context.Background()
	must := func(e error) { err = errors.Join(err, e) }
	region := func(mr nd.MemoryRegion, e error) nd.MemoryRegion { must(e); return mr }
	var e error
	s.cq, e = a.CreateCompletionQueue(ctx, 2*depth+sharedReceives)
	must(e)
	for i := range s.local {
		s.local[i] = region(s.memoryOf(i, blocksSize, nd.AllowLocalWrite))
	}
	if from := s.IntN(3); from > 0 || s.Shared == nil {
		for i := range s.inbox {
			s.inbox[i] = region(s.memoryOf(i, inboxDepth/2*largestMessage, nd.AllowLocalWrite))
		}
		if from == 1 {
			s.srq, e = a.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: depth, Threshold: inboxDepth})
			must(e)
		}
	}
	s.shared = region(s.memory(sharedSize, anything))
	if s.endsAccess = s.IntN(3) == 0; s.endsAccess && s.IntN(2) == 0 {
		s.guard = region(s.memoryOf(0, guardSize, anything)) // the peer can copy itself
	} else {
		s.guard = region(s.memory(guardSize, anything))
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
	must(s.fast.InitializeFastRegister(ctx, sharedSize/4096+2, true))
	must(s.sink.InitializeFastRegister(ctx, blocksSize/4096+2, false))
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
	copy(s.shared.Bytes()[patternAt:], patternOf(s.Job.Rank()))
	setAll(s.shared.Bytes()[counterAt:][:8], 0)
	s.grant.seal = sealOf(s.shared.Bytes())
	s.guard0 = s.guard.Bytes()
	setAll(s.guard0, poison)
	s.trap.sealed = true
	return err
}

// connect connects the endpoint and posts the first receives. It returns an error if the peer is not there, or ctx has ended.
func (s *session) connect() (err error) {
	s.inline = []int{0, 48, 256}[s.IntN(3)]
	cfg := nd.EndpointConfig{ReceiveCQ: s.cq, InitiatorCQ: s.cq, SharedReceive: s.srq, ReceiveDepth: depth, InitiatorDepth: depth, MaxInitiatorSGE: 8, InlineSize: s.inline}
	if s.inbox[0] == nil {
		cfg.SharedReceive = s.Shared.queue
	}
	if s.Wild { // a weak order has a lower limit
		cfg.MaxInitiatorSGE = 0
	}
	if s.ep, err = s.Job.Connect(s.ctx, s.Peer, cfg); err != nil {
		switch nd.StatusOf(err) {
		case nd.HostUnreachable, nd.ConnectionAborted, nd.ConnectionRefused, nd.Canceled:
			return err
		}
		s.fail(err)
	}
	if s.inbox[0] != nil {
		for i := range []uint64{2, inboxDepth}[s.IntN(2)] { // with few, messages wait for receives
			s.receive(i)
		}
	}
	s.nonce[0] = s.Uint64()
	s.say(mHello, helloMessage{s.nonce[0]}, 0)
	if s.Wild {
		s.say(mGrant, grantMessage{Desc: encode(nd.DescriptorOf(s.shared))}, 0)
	}
	s.moved = time.Now()
	return nil
}

// receive posts the receive with a number, in its own part of memory.
func (s *session) receive(i uint64) {
	if s.inbox[0] == nil {
		s.fail(s.Shared.queue.Receive(i, s.letter(i)))
		return
	}
	to, post := s.letter(i), s.ep.Receive
	if s.Errs && s.IntN(20) == 0 && (!s.Wild || s.IntN(10) == 0) { // too small for some messages
		to = nd.One(nd.SGE{Buffer: to.First.Buffer[:min(40, len(to.First.Buffer))], Token: to.First.Token})
	}
	if s.srq != nil {
		post = s.srq.Receive
	}
	if err := post(i, to); err != nil {
		if !s.ended() && !s.Wild {
			s.fail(fmt.Errorf("post of a receive: %w", err))
		}
		return
	}
	s.receives++
}

// letter is the memory of a receive.
func (s *session) letter(i uint64) nd.SGL {
	if s.inbox[0] == nil {
		return s.Shared.letter(i)
	}
	mr := s.inbox[i%2]
	b := mr.Bytes()[i/2*largestMessage:][:largestMessage]
	if i%4 < 2 {
		return nd.One(nd.SGE{Buffer: b, Token: mr.LocalToken()})
	}
	return nd.List(nd.SGE{Buffer: b[:5], Token: mr.LocalToken()}, nd.SGE{Buffer: b[5:], Token: mr.LocalToken()})
}

// ended reports whether the connection has ended.
func (s *session) ended() bool { return s.ep.Err() != nil }

// post posts a request. Its result is checked when it is taken.
func (s *session) post(q request, flags nd.OpFlags, call func(x uint64, f nd.OpFlags) error) bool {
	f := flags
	if !q.loud {
		f |= s.flags(q.kind)
	}
	q.context, q.silent = s.next, f.Has(nd.SilentSuccess)
	if err := call(q.context, f); err != nil {
		if !s.ended() && !s.Wild {
			s.fail(fmt.Errorf("post of a %v with %v: %w", q.kind, f, err))
		}
		return false
	}
	for bit, what := range map[nd.OpFlags]int{nd.SilentSuccess: Silents, nd.ReadFence: Fences, nd.Inline: Inlines} {
		if f.Has(bit) {
			s.count(what)
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
func (s *session) flags(kind nd.RequestType) (f nd.OpFlags) {
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
func (s *session) take(n int) {
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
func (s *session) completed(r nd.Result) {
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
	case s.Wild:
	case r.RequestType != q.kind || ok && int(r.BytesTransferred) != q.bytes || ok && q.silent:
		s.fail(fmt.Errorf("result %+v of a %v of %d bytes, silent %t", r, q.kind, q.bytes, q.silent))
	case ok:
	case r.Status == nd.Canceled && s.ended():
	case r.Status == nd.AccessViolation && (q.mayFail || s.Errs):
		s.count(TooLate)
	case s.Errs && (r.Status == nd.RemoteError || r.Status == nd.InvalidDeviceRequest):
	default:
		s.fail(fmt.Errorf("%v %d of %d bytes: %v: %w", q.kind, q.context, q.bytes, r.Status, nd.Explain(s.ep, r)))
	}
	if ok {
		s.count(Done)
	}
	q.done(ok)
}

// received handles the result of a receive.
func (s *session) received(r nd.Result) {
	if s.inbox[0] != nil {
		s.receives--
	}
	switch {
	case r.Status == nd.Success:
		s.count(Messages)
		s.count(Done)
		s.message(r)
		if s.inbox[0] == nil || !s.ended() {
			s.receive(r.RequestContext)
		}
	case r.Status == nd.Canceled && s.ended():
		if s.inbox[0] == nil {
			s.receive(r.RequestContext)
		}
	case s.Wild || s.Errs && (r.Status == nd.BufferOverflow || r.Status == nd.InvalidDeviceRequest):
	default:
		s.fail(fmt.Errorf("receive: %v: %w", r.Status, nd.Explain(s.ep, r)))
	}
}

// message handles a message, or the number of a WriteImmediate.
func (s *session) message(r nd.Result) {
	token := r.InvalidatedToken
	if number, ok := r.Immediate(); ok {
		if token = 0; number != uint32(s.said[1]) && !s.Wild {
			s.fail(fmt.Errorf("message %d has the number %d", s.said[1], number))
		}
	}
	if r.RequestType == nd.RequestReceiveWriteImmediate {
		s.said[1]++ // a message about its bytes follows
		return
	}
	var b []byte
	letter := s.letter(r.RequestContext)
	for _, e := range letter.Entries() {
		b = append(b, e.Buffer...)
	}
	s.hear(b[:r.BytesTransferred], token)
}

// sealOf returns the hash of the slots in shared memory.
func sealOf(shared []byte) uint64 { return xxhash.Sum64(shared[:patternAt]) }
