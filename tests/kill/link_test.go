//go:build failpoints

package kill

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/nd"
)

// killLink is one side of the connections between two ranks, which follow one another until a rank dies.
type killLink struct {
	*rand.Rand
	job   *softnd.Job
	peer  int
	posts bool         // this side posts Sends, Writes and Reads; each side describes its memory to the other
	done  atomic.Int64 // requests that have succeeded

	revoked     atomic.Int64          // grants that a request has ended
	peerRevoked atomic.Int64          // those among them that a SendAndInvalidate of the peer has ended
	refused     atomic.Int64          // requests that used a grant too late
	last        atomic.Pointer[error] // how the last connection ended

	// Valid after run.
	endedAt int64 // when the last call and the last request of this side had ended
	end     error // of the last connection, or of the last attempt to connect
	ownEnd  error // why that connection has ended, if not because the peer died
	broken  error // a promise was broken
}

// run connects again and again, until ctx ends or the peer is gone.
func (l *killLink) run(ctx context.Context) {
	for ctx.Err() == nil && l.broken == nil && !l.peerGone() {
		l.session(ctx)
	}
}

func (l *killLink) peerGone() bool {
	arena := jobaccess.Of(l.job).Arena
	id, ok := arena.MemberOf(l.peer)
	if !ok {
		return false
	}
	p, err := arena.Peer(id)
	return err == nil && p.Gone()
}

// killSession is one connection of a link.
type killSession struct {
	*killLink
	ctx         context.Context
	ep          nd.Endpoint
	connector   nd.Connector
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
	receives    int
	results     [16]nd.Result
}

const (
	killPart   = 24 << 10 // largest transfer
	killMemory = 4 * killPart
	killDepth  = 32
	killBase   = 1 << 40 // address of a fast-registered region

	// Contexts of requests. Those below killReceives are of receives, and say where the memory is.
	killReceives = 16
	killRequest  = 100
	killRevoke   = 101
	killGranted  = 102 // a request that uses the grant of the peer

	killTold = nd.WindowDescriptorSize + 8 // length of a message with a descriptor

	// Descriptors of memory and of the grant have different lengths.
	killRegionLength = killMemory - 8
	killGrantLength  = killMemory
)

func (l *killLink) session(ctx context.Context) {
	s := &killSession{killLink: l, ctx: ctx}
	err := s.open()
	if err == nil {
		for range 10 + s.IntN(120) {
			if s.step(); s.ep.Err() != nil {
				break
			}
		}
		err = s.finish()
	}
	s.close()
	l.end, l.ownEnd, l.endedAt = err, s.ownCause, linux.HostClock()
	if err != nil {
		l.last.Store(&err)
	}
}

func (s *killSession) open() (err error) {
	a := s.job.Adapter()
	const flags = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	if s.cq, err = a.CreateCompletionQueue(s.ctx, 4*killDepth); err != nil {
		return err
	}
	if s.memory[0], err = a.Allocate(s.ctx, killMemory, flags); err != nil {
		return err
	}
	if s.memory[1], err = a.Register(s.ctx, make([]byte, killMemory), flags); err != nil {
		return err
	}
	isFast := s.IntN(2) == 0
	if isFast || s.IntN(2) == 0 {
		s.guarded, err = a.Allocate(s.ctx, killMemory, nd.AllowLocalWrite)
	} else {
		s.guarded, err = a.Register(s.ctx, make([]byte, killMemory), nd.AllowLocalWrite)
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
		if s.srq, err = a.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: killDepth, Threshold: killReceives, MaxSGE: 1}); err != nil {
			return err
		}
	}
	if s.ep, err = a.CreateEndpoint(s.ctx, nd.EndpointConfig{Receive: s.cq, Initiator: s.cq, SharedReceive: s.srq, ReceiveDepth: killDepth, InitiatorDepth: killDepth, InlineSize: 64}); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	for i := range uint64(killReceives) {
		s.receive(i)
	}
	for _, mr := range s.memory {
		s.tell(nd.WindowDescriptor{Address: mr.Address(), Length: killRegionLength, Token: mr.RemoteToken()})
	}
	return nil
}

// openFast prepares the fast registration of the guarded memory.
func (s *killSession) openFast(a nd.Adapter) (err error) {
	if s.pages, err = a.BuildLogicalAddressMapping(s.ctx, s.guarded.Bytes()); err != nil {
		return err
	}
	if s.fast, err = a.CreateMemoryRegion(s.ctx); err != nil {
		return err
	}
	return s.fast.InitializeFastRegister(s.ctx, len(s.pages.Pages()), true)
}

const connectPort = 1 // of each rank, for Job.Connect

// connect is Job.Connect, and keeps the connector.
func (s *killSession) connect() (err error) {
	j, inside := s.job, jobaccess.Of(s.job)
	id, _ := inside.Arena.MemberOf(s.peer)
	params := nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16, PrivateData: binary.LittleEndian.AppendUint32(nil, uint32(j.Rank()))}
	if s.peer < j.Rank() {
		if s.connector, err = j.Adapter().CreateConnector(s.ctx); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = fmt.Errorf("connect to rank %d: %w", s.peer, err) // as Job.Connect does
			}
		}()
		if err = s.connector.Connect(s.ctx, s.ep, netip.AddrPortFrom(endpoint.Address(inside.Arena.Host(), id), connectPort), params); err != nil {
			return err
		}
		return s.connector.CompleteConnect(s.ctx)
	}
	err = inside.Provider.WaitFor(s.ctx, statuspage.Call{Op: "accept", Peer: id}, func() bool {
		s.connector = inside.Request(s.peer)
		return s.connector != nil || s.peerGone()
	})
	if err != nil || s.connector == nil {
		return errors.Join(err, fmt.Errorf("rank %d has died", s.peer))
	}
	return s.connector.Accept(s.ctx, s.ep, params)
}

// step makes a random step.
func (s *killSession) step() {
	s.check()
	switch k := s.IntN(20); {
	case k < 2:
		s.wait(time.Millisecond)
	case k < 6 || s.outstanding > killDepth/2:
		s.take(s.cq.Poll(s.results[:]))
	case k < 12:
		s.useGrant()
	case s.posts:
		s.post()
	}
}

func (s *killSession) wait(d time.Duration) {
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
func (s *killSession) await(d time.Duration) {
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
func (s *killSession) useGrant() {
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

func (s *killSession) grant() (err error) {
	if s.fast == nil {
		err = s.ep.Bind(killRequest, s.guarded, s.window, s.guarded.Bytes(), nd.AllowRead|nd.AllowWrite)
		s.granted = s.window.Descriptor()
		return err
	}
	err = s.ep.FastRegister(killRequest, s.fast, s.pages.Pages(), s.pages.Offset(), killMemory, killBase, nd.AllowRemoteRead|nd.AllowRemoteWrite, 0)
	s.granted = nd.WindowDescriptor{Address: killBase, Length: killGrantLength, Token: s.fast.RemoteToken()}
	return err
}

func (s *killSession) revoke() error {
	if s.fast == nil {
		return s.ep.Invalidate(killRevoke, s.window, 0)
	}
	return s.ep.InvalidateRegion(killRevoke, s.fast, 0)
}

// post posts a request to the peer.
func (s *killSession) post() {
	from := s.memory[s.IntN(2)]
	n := 1 + s.IntN(60)
	if s.IntN(3) == 0 {
		n = 1 + s.IntN(killPart)
	}
	if n == killTold {
		n++
	}
	sge := []nd.SGE{{Buffer: from.Bytes()[2*killPart+s.IntN(killPart):][:n], Token: from.LocalToken()}}
	far, reqCtx := s.farGrant, uint64(killGranted)
	if far.Length == 0 || len(s.far) > 0 && s.IntN(3) == 0 {
		far, reqCtx = nd.WindowDescriptor{}, killRequest
		if len(s.far) > 0 {
			far = s.far[s.IntN(len(s.far))]
		}
	}
	at := far.Address + 2*killPart + s.Uint64N(killPart)
	var err error
	switch k := s.IntN(12); {
	case k < 4 || far.Length == 0:
		err = s.ep.Send(killRequest, sge, 0)
	case k < 7 && reqCtx == killGranted:
		if s.IntN(2) == 0 { // else later requests come too late for it
			s.farGrant = nd.WindowDescriptor{}
		}
		err = s.ep.SendAndInvalidate(reqCtx, sge, far.Token, 0)
	case k < 9:
		err = s.ep.Write(reqCtx, sge, at, far.Token, 0)
	default:
		err = s.ep.Read(reqCtx, sge, at, far.Token, 0)
	}
	if err == nil {
		s.outstanding++
	}
}

// receive posts a receive, in its own quarter of memory. One in 60 is too small for most messages.
func (s *killSession) receive(i uint64) {
	n := killPart
	if s.IntN(60) == 0 {
		n = 40
	}
	mr := s.memory[i%2]
	post := s.ep.Receive
	if s.srq != nil {
		post = s.srq.Receive
	}
	if post(i, []nd.SGE{{Buffer: mr.Bytes()[i/2%2*killPart:][:n], Token: mr.LocalToken()}}) == nil {
		s.receives++
	}
}

// killHash is the hash of a descriptor in a message, whose memory later messages may overwrite.
func killHash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// tell describes memory to the peer.
func (s *killSession) tell(d nd.WindowDescriptor) {
	b, err := d.MarshalBinary()
	b = binary.LittleEndian.AppendUint64(b, killHash(b))
	if err == nil && s.ep.Send(killRequest, []nd.SGE{{Buffer: b}}, nd.Inline) == nil {
		s.outstanding++
	}
}

// take takes the first n results.
func (s *killSession) take(n int) {
	for _, r := range s.results[:n] {
		switch r.Status {
		case nd.Success:
			s.done.Add(1)
		case nd.AccessViolation:
			s.refused.Add(1)
		}
		switch r.RequestType {
		case nd.RequestReceive, nd.RequestReceiveAndInvalidate:
			s.takeReceive(&r)
			continue
		}
		s.outstanding--
		if r.RequestContext == killRevoke && r.Status == nd.Success {
			s.revoking = false
			s.grantEnded()
		}
		if r.RequestContext == killGranted && r.Status == nd.AccessViolation || r.RequestContext == killRevoke && r.Status == nd.InvalidDeviceRequest {
			s.endsItself(&r) // a request came too late for the grant
		}
	}
}

// takeReceive takes the result of a receive.
func (s *killSession) takeReceive(r *nd.Result) {
	s.receives--
	switch r.Status {
	case nd.Success:
		if r.RequestType == nd.RequestReceiveAndInvalidate && r.InvalidatedToken == s.granted.Token {
			s.peerRevoked.Add(1)
			s.grantEnded()
		}
		s.learn(r)
		s.receive(r.RequestContext)
	case nd.BufferOverflow, nd.InvalidDeviceRequest: // it was too small, or a message came too late for the grant
		s.endsItself(r)
	}
}

// endsItself notes that the connection ends because of a request of this scene, and not because of a death.
func (s *killSession) endsItself(r *nd.Result) {
	s.ownCause = fmt.Errorf("%v completed with %v", r.RequestType, r.Status)
}

// grantEnded is called when a request has ended the grant.
func (s *killSession) grantEnded() {
	s.bound = false
	s.revoked.Add(1)
	s.guard()
}

// learn notes memory that a message of the peer describes.
func (s *killSession) learn(r *nd.Result) {
	var d nd.WindowDescriptor
	i := r.RequestContext
	if r.BytesTransferred != killTold {
		return
	}
	b := s.memory[i%2].Bytes()[i/2%2*killPart:][:killTold]
	if killHash(b[:nd.WindowDescriptorSize]) != binary.LittleEndian.Uint64(b[nd.WindowDescriptorSize:]) || d.UnmarshalBinary(b[:nd.WindowDescriptorSize]) != nil {
		return
	}
	switch d.Length {
	case killGrantLength:
		s.farGrant = d
	case killRegionLength:
		s.far = append(s.far, d)
	}
}

var killPattern = bytes.Repeat([]byte{0x5c}, killMemory)

// guard fills the memory of the grant, which is not valid.
func (s *killSession) guard() {
	copy(s.guarded.Bytes(), killPattern)
	s.isGuarded = true
}

// check checks that no byte has changed behind the grant.
func (s *killSession) check() {
	if s.isGuarded && !bytes.Equal(s.guarded.Bytes(), killPattern) {
		s.broken = fmt.Errorf("link of ranks %d and %d: a byte behind an invalid grant has changed", s.job.Rank(), s.peer)
	}
}

// finish ends the connection in one of several ways, and returns its error. If the connection has ended already, every
// request must complete.
func (s *killSession) finish() error {
	if s.ep.Err() == nil && s.IntN(3) == 0 {
		return nil // close ends it
	}
	var failed error
	if err := s.ep.Err(); err == nil || errors.Is(err, nd.ConnectionDisconnected) {
		ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
		defer cancel()
		if failed = s.connector.Disconnect(ctx); failed == nil { // else the peer has died, or ended the connection in another way
			s.ownCause = nd.ConnectionDisconnected
		}
	}
	for end := time.Now().Add(killLimit); s.outstanding > 0 || s.receives > 0 && s.srq == nil; {
		s.await(100 * time.Millisecond)
		if time.Now().After(end) {
			s.broken = fmt.Errorf("link of ranks %d and %d: %d requests and %d receives do not complete: %v", s.job.Rank(), s.peer, s.outstanding, s.receives, s.ep.Err())
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

func (s *killSession) close() {
	if s.ep != nil {
		s.ep.Close()
	}
	if s.connector != nil {
		s.connector.Close()
	}
	if s.window != nil {
		s.window.Close()
		s.mustKeep()
	}
	if s.fast != nil {
		s.fast.Close()
		s.mustKeep()
	}
	for _, c := range []interface{ Close() error }{s.pages, s.guarded, s.memory[0], s.memory[1], s.srq, s.cq} {
		if c == nil {
			continue
		}
		err := c.Close()
		// A FastRegister keeps the pages until it is canceled: when a copy of the peer has ended, and perhaps after ep.Close.
		for end := time.Now().Add(killLimit); errors.Is(err, nd.DeviceBusy) && time.Now().Before(end); err = c.Close() {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			s.broken = fmt.Errorf("link of ranks %d and %d: %w", s.job.Rank(), s.peer, err)
		}
	}
}

// mustKeep checks that the memory of the grant, which has just ended, keeps its content.
func (s *killSession) mustKeep() {
	s.check()
	s.guard()
	time.Sleep(200 * time.Microsecond)
	s.check()
}
