package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/softnd/softnd/nd"
)

// session is one connection of a link.
type session struct {
	*Link
	ctx         context.Context
	ep          nd.Endpoint
	cq          nd.CompletionQueue
	memory      [2]nd.MemoryRegion    // in the arena, and private
	srq         nd.SharedReceiveQueue // nil = the endpoint has its own receive queue
	guarded     nd.MemoryRegion       // which the peer reaches through the grant only
	window      nd.MemoryWindow       // the grant is this window
	fast        nd.MemoryRegion       // if not nil, the grant is this fast-registered region
	pages       nd.LogicalMapping     // of that region
	granted     nd.WindowDescriptor   // the last grant
	far         []nd.WindowDescriptor // memory of the peer
	farGrant    nd.WindowDescriptor   // grant of the peer; its Length is 0 before the first one
	bound       bool                  // the grant is valid, or a request runs that begins or ends it
	revoking    bool                  // a request of this side that ends the grant runs
	isGuarded   bool                  // the memory of the grant has the pattern, and must keep it
	ownCause    error                 // why the connection ends, if not because the peer died
	outstanding int
	posted      int // receives
	results     [16]nd.Result
}

const (
	limit       = 20 * time.Second       // until all requests of a connection are complete; no test asserts less
	largest     = 24 << 10               // largest transfer
	received    = receives / 2 * largest // of each region: memory of receives; the rest is that of requests
	memorySize  = received + 2*largest
	guardedSize = 4 * largest
	depth       = 32
	fastBase    = 1 << 40 // address of a fast-registered region

	// Contexts of requests. Those below receives are of receives, and say where the memory is.
	receives      = 16
	plainRequest  = 100
	revokeRequest = 101
	grantRequest  = 102 // a request that uses the grant of the peer

	toldSize = nd.WindowDescriptorSize + 8 // length of a message with a descriptor

	// Descriptors of memory and of the grant have different lengths.
	regionLength = memorySize - 8
	grantLength  = guardedSize
)

func (s *session) open() (err error) {
	a := s.Job.Adapter()
	const flags = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	if s.cq, err = a.CreateCompletionQueue(s.ctx, 4*depth); err != nil {
		return err
	}
	if s.memory[0], err = a.Allocate(s.ctx, memorySize, flags); err != nil {
		return err
	}
	if s.memory[1], err = a.Register(s.ctx, make([]byte, memorySize), flags); err != nil {
		return err
	}
	isFast := s.IntN(2) == 0
	if isFast || s.IntN(2) == 0 {
		s.guarded, err = a.Allocate(s.ctx, guardedSize, nd.AllowLocalWrite)
	} else {
		s.guarded, err = a.Register(s.ctx, make([]byte, guardedSize), nd.AllowLocalWrite)
	}
	if err != nil {
		return err
	}
	if isFast {
		err = s.openFast(a)
	} else {
		s.window, err = a.CreateMemoryWindow(s.ctx)
	}
	if err != nil {
		return err
	}
	if s.IntN(3) == 0 {
		if s.srq, err = a.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: depth, Threshold: receives, MaxSGE: 1}); err != nil {
			return err
		}
	}
	if s.ep, err = s.Job.Connect(s.ctx, s.Peer, nd.EndpointConfig{ReceiveCQ: s.cq, InitiatorCQ: s.cq, SharedReceive: s.srq, ReceiveDepth: depth, InitiatorDepth: depth, InlineSize: 64}); err != nil {
		return err
	}
	for i := range uint64(receives) {
		s.receive(i)
	}
	for _, mr := range s.memory {
		s.tell(nd.WindowDescriptor{Address: mr.Address(), Length: regionLength, Token: mr.RemoteToken()})
	}
	return nil
}

// openFast prepares the fast registration of the guarded memory.
func (s *session) openFast(a nd.Adapter) (err error) {
	if s.pages, err = a.BuildLogicalAddressMapping(s.ctx, s.guarded.Bytes()); err != nil {
		return err
	}
	if s.fast, err = a.CreateMemoryRegion(s.ctx); err != nil {
		return err
	}
	return s.fast.InitializeFastRegister(s.ctx, len(s.pages.Pages()), true)
}

// step makes a random step.
func (s *session) step() {
	s.check()
	switch k := s.IntN(20); {
	case s.Wild && s.IntN(20_000) == 0:
		_ = s.ep.Flush(context.Background())
	case k < 2:
		s.wait(time.Millisecond)
	case k < 6 || s.outstanding > depth/2:
		s.take(s.cq.Poll(s.results[:]))
	case k < 12 && (!s.Wild || s.IntN(50) == 0): // most connections of a damaged arena are to last
		s.useGrant()
	case s.Posts:
		s.post()
	}
}

func (s *session) wait(d time.Duration) {
	if s.srq == nil || s.IntN(3) > 0 {
		s.await(d)
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, d)
	defer cancel()
	_ = s.srq.Notify(ctx)
	s.take(s.cq.Poll(s.results[:]))
}

// await takes results. If there are none, it waits for one: Notify does not return for a result that an earlier one has
// returned for.
func (s *session) await(d time.Duration) {
	n := s.cq.Poll(s.results[:])
	if n == 0 {
		ctx, cancel := context.WithTimeout(s.ctx, d)
		defer cancel()
		if s.IntN(2) == 0 {
			_ = s.cq.Notify(ctx, nd.NotifyAny)
			n = s.cq.Poll(s.results[:])
		} else {
			n, _ = s.cq.Wait(ctx, s.results[:])
		}
	}
	s.take(n)
}

// useGrant begins the grant, or ends it. Half of the time the peer is left to end it.
func (s *session) useGrant() {
	if s.bound {
		if !s.revoking && s.IntN(2) == 0 && s.revoke() == nil {
			s.revoking = true
			s.outstanding++
		}
		return
	}
	s.isGuarded = false
	if s.grant() == nil {
		s.bound = true
		s.outstanding++
		s.tell(s.granted)
	}
}

func (s *session) grant() (err error) {
	if s.fast == nil {
		err = s.ep.Bind(plainRequest, s.guarded, s.window, s.guarded.Bytes(), nd.AllowRead|nd.AllowWrite|nd.AllowAtomic)
		s.granted = s.window.Descriptor()
		return err
	}
	err = s.ep.FastRegister(plainRequest, nd.FastRegistration{Region: s.fast, Pages: s.pages.Pages(), Offset: s.pages.Offset(), Length: guardedSize, BaseAddress: fastBase, Rights: nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic}, 0)
	s.granted = nd.WindowDescriptor{Address: fastBase, Length: grantLength, Token: s.fast.RemoteToken()}
	return err
}

func (s *session) revoke() error {
	if s.fast == nil {
		return s.ep.Invalidate(revokeRequest, s.window, 0)
	}
	return s.ep.InvalidateRegion(revokeRequest, s.fast, 0)
}

// post posts a request to the peer.
func (s *session) post() {
	far, reqCtx := s.farGrant, uint64(grantRequest)
	if far.Length == 0 || len(s.far) > 0 && s.IntN(3) == 0 {
		far, reqCtx = nd.WindowDescriptor{}, plainRequest
		if len(s.far) > 0 {
			far = s.far[s.IntN(len(s.far))]
		}
	}
	at := far.Address + guardedSize/2 + s.Uint64N(largest)
	switch {
	case far.Length == regionLength:
		at = far.Address + received + s.Uint64N(largest)
	case far.Length < grantLength:
		at = far.Address + s.Uint64N(100) // memory of a rank in C
	}
	sge, flags := s.source(), nd.OpFlags(0)
	if s.IntN(5) == 0 {
		flags = nd.ReadFence
	}
	var err error
	switch k := s.IntN(16); {
	case k < 1:
		err = s.ep.Send(plainRequest, nd.One(nd.SGE{Buffer: make([]byte, s.IntN(toldSize))}), flags|nd.Inline)
	case k < 4 || far.Length == 0 && !(s.Wild && s.IntN(5000) == 0):
		err = s.ep.Send(plainRequest, sge, flags)
	case k < 7 && (reqCtx == grantRequest || s.Wild && s.IntN(200) == 0):
		if s.IntN(2) == 0 { // else later requests come too late for it
			s.farGrant = nd.WindowDescriptor{}
		}
		err = s.ep.SendAndInvalidate(reqCtx, sge, far.Token, flags)
	case k < 8:
		err = s.ep.SendImmediate(plainRequest, sge, s.Uint32(), flags)
	case k < 9:
		err = s.ep.WriteImmediate(reqCtx, sge, at, far.Token, s.Uint32(), flags)
	case k < 11:
		err = s.ep.Write(reqCtx, sge, at, far.Token, flags)
	case k < 14:
		err = s.change(reqCtx, at&^7, far.Token, flags)
	default:
		err = s.ep.Read(reqCtx, sge, at, far.Token, flags)
	}
	if err == nil {
		s.outstanding++
	}
}

// change posts an atomic.
func (s *session) change(reqCtx, at uint64, token nd.Token, flags nd.OpFlags) error {
	m := s.memory[s.IntN(2)]
	old := nd.SGEOf(m, received+s.IntN(largest), 8)
	switch s.IntN(3) {
	case 0:
		return s.ep.FetchAndAdd(reqCtx, old, at, token, s.Uint64(), flags)
	case 1:
		return s.ep.Swap(reqCtx, old, at, token, s.Uint64(), flags)
	}
	return s.ep.CompareAndSwap(reqCtx, old, at, token, 0, s.Uint64(), flags)
}

// source returns memory for a request, in one or two parts.
func (s *session) source() nd.SGL {
	const small = 64
	n := 1 + s.IntN(small-4)
	if s.IntN(3) == 0 {
		n = 1 + s.IntN(largest-small)
	}
	if n == toldSize {
		n++
	}
	part := func(n int) nd.SGE {
		from := s.memory[s.IntN(2)]
		return nd.SGE{Buffer: from.Bytes()[received+s.IntN(largest):][:n], Token: from.LocalToken()}
	}
	first := part(n)
	if s.IntN(8) > 0 {
		return nd.One(first)
	}
	return nd.List(first, part(1+s.IntN(small)))
}

// receive posts a receive, in its own part of memory: the program reads a message while others arrive. One in 60 is too small for most messages.
func (s *session) receive(i uint64) {
	n := largest
	if s.IntN(60) == 0 {
		n = 40
	}
	mr := s.memory[i%2]
	post := s.ep.Receive
	if s.srq != nil {
		post = s.srq.Receive
	}
	if post(i, nd.One(nd.SGE{Buffer: mr.Bytes()[i/2*largest:][:n], Token: mr.LocalToken()})) == nil {
		s.posted++
	}
}

// hashOf is the hash of a descriptor in a message, by which its receiver knows that it is one.
func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// tell describes memory to the peer.
func (s *session) tell(d nd.WindowDescriptor) {
	b, err := d.MarshalBinary()
	if !s.Wild { // ranks in C expect no hash
		b = binary.LittleEndian.AppendUint64(b, hashOf(b))
	}
	if err == nil && s.ep.Send(plainRequest, nd.One(nd.SGE{Buffer: b}), nd.Inline) == nil {
		s.outstanding++
	}
}

// take takes the first n results.
func (s *session) take(n int) {
	for _, r := range s.results[:n] {
		switch r.Status {
		case nd.Success:
			s.Done.Add(1)
		case nd.AccessViolation:
			s.Refused.Add(1)
		}
		if !r.RequestType.Initiator() {
			s.takeReceive(&r)
			continue
		}
		s.outstanding--
		if r.RequestContext == revokeRequest && r.Status == nd.Success {
			s.revoking = false
			s.grantEnded()
		}
		if r.RequestContext == grantRequest && r.Status == nd.AccessViolation || r.RequestContext == revokeRequest && r.Status == nd.InvalidDeviceRequest {
			s.endsItself(&r) // a request came too late for the grant
		}
	}
}

// takeReceive takes the result of a receive.
func (s *session) takeReceive(r *nd.Result) {
	s.posted--
	switch r.Status {
	case nd.Success:
		if r.RequestType == nd.RequestReceiveAndInvalidate && r.InvalidatedToken == s.granted.Token {
			s.PeerRevoked.Add(1)
			s.grantEnded()
		}
		if r.RequestType != nd.RequestReceiveWriteImmediate { // which has no message
			s.learn(r)
		}
		s.receive(r.RequestContext)
	case nd.BufferOverflow, nd.InvalidDeviceRequest: // it was too small, or a message came too late for the grant
		s.endsItself(r)
	}
}

// breaks notes that a promise was broken.
func (s *session) breaks(err error) {
	if !s.Wild {
		s.Broken = fmt.Errorf("link of ranks %d and %d: %w", s.Job.Rank(), s.Peer, err)
	}
}

// endsItself notes that the connection ends because of a request of this side, and not because of a death.
func (s *session) endsItself(r *nd.Result) {
	s.ownCause = fmt.Errorf("%v completed with %v", r.RequestType, r.Status)
}

// grantEnded is called when a request has ended the grant.
func (s *session) grantEnded() {
	s.bound = false
	s.Revoked.Add(1)
	s.guard()
}

// learn notes memory that a message of the peer describes.
func (s *session) learn(r *nd.Result) {
	var d nd.WindowDescriptor
	i := r.RequestContext
	if n := r.BytesTransferred; i >= receives || n != toldSize && !(s.Wild && n == nd.WindowDescriptorSize) {
		return
	}
	b := s.memory[i%2].Bytes()[i/2*largest:][:toldSize]
	isTrue := hashOf(b[:nd.WindowDescriptorSize]) == binary.LittleEndian.Uint64(b[nd.WindowDescriptorSize:])
	if d.UnmarshalBinary(b[:nd.WindowDescriptorSize]) != nil || !isTrue && !s.Wild {
		return
	}
	switch d.Length {
	case grantLength:
		s.farGrant = d
	default:
		s.far = append(s.far[:min(len(s.far), 5)], d)
	}
}

var pattern = bytes.Repeat([]byte{0x5c}, guardedSize)

// guard fills the memory of the grant, which is not valid.
func (s *session) guard() {
	copy(s.guarded.Bytes(), pattern)
	s.isGuarded = true
}

// check checks that no byte has changed behind the grant.
func (s *session) check() {
	if s.isGuarded && !bytes.Equal(s.guarded.Bytes(), pattern) {
		s.breaks(errors.New("a byte behind an invalid grant has changed"))
	}
}

// finish ends the connection in one of several ways, and returns its error. If the connection has ended already, every
// request must complete.
func (s *session) finish() error {
	if s.ep.Err() == nil && s.IntN(3) == 0 {
		return nil // close ends it
	}
	var failed error
	if err := s.ep.Err(); err == nil || errors.Is(err, nd.ConnectionDisconnected) {
		ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
		defer cancel()
		if failed = s.ep.Connector().Disconnect(ctx); failed == nil { // else the peer has died, or ended the connection in another way
			s.ownCause = nd.ConnectionDisconnected
		}
	}
	for end := time.Now().Add(limit); s.outstanding > 0 || s.posted > 0 && s.srq == nil; {
		s.await(100 * time.Millisecond)
		if time.Now().After(end) {
			s.breaks(fmt.Errorf("%d requests and %d receives do not complete: %v", s.outstanding, s.posted, s.ep.Err()))
			break
		}
	}
	for n := 1; n > 0; { // results of a shared receive queue, which the loop above does not count
		n = s.cq.Poll(s.results[:])
		s.take(n)
	}
	err := s.ep.Err()
	isOwn := false
	switch nd.StatusOf(err) {
	case nd.BufferOverflow, nd.InvalidDeviceRequest, nd.RemoteError:
		isOwn = true
	case nd.AccessViolation: // a death must not look like one
		isOwn = strings.Contains(err.Error(), "which grants nothing")
	}
	if isOwn && s.ownCause == nil { // the peer died before an earlier request was complete, so the one that failed was canceled
		s.ownCause = err
	}
	if failed != nil {
		return failed // Err returns the first reason, which is this Disconnect
	}
	return err
}

func (s *session) close() {
	if s.ep != nil {
		s.ep.Close()
	}
	if s.window != nil {
		s.window.Close(context.Background())
		s.mustKeep()
	}
	if s.fast != nil {
		s.fast.Close(context.Background())
		s.mustKeep()
	}
	for _, object := range []any{s.pages, s.guarded, s.memory[0], s.memory[1], s.srq, s.cq} {
		if object == nil {
			continue
		}
		shut := func() error {
			if c, ok := object.(interface{ Close() error }); ok {
				return c.Close()
			}
			return object.(interface{ Close(context.Context) error }).Close(context.Background())
		}
		err := shut()
		// A FastRegister keeps the pages until it is canceled: when a copy of the peer has ended, and perhaps after ep.Close.
		for end := time.Now().Add(limit); errors.Is(err, nd.DeviceBusy) && !s.Wild && time.Now().Before(end); err = shut() {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			s.breaks(err)
		}
	}
}

// mustKeep checks that the memory of the grant, which has just ended, keeps its content.
func (s *session) mustKeep() {
	s.check()
	s.guard()
	time.Sleep(200 * time.Microsecond)
	s.check()
}
