//go:build failpoints

package softnd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/hostclock"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// killLink is one side of the connections between two ranks, which follow one another until a rank dies.
type killLink struct {
	*rand.Rand
	job   *Job
	peer  int
	posts bool         // this side posts Sends, Writes and Reads; each side describes its memory to the other
	done  atomic.Int64 // requests that have succeeded

	revoked atomic.Int64          // Invalidates that have succeeded
	refused atomic.Int64          // requests that used a window too late
	last    atomic.Pointer[error] // how the last connection ended

	// Valid after run.
	endedAt int64 // when the last call and the last request of this side had ended
	end     error // of the last connection, or of the last attempt to connect
	broken  error // a promise was broken
}

// run connects again and again, until ctx ends or the peer is gone.
func (l *killLink) run(ctx context.Context) {
	for ctx.Err() == nil && l.broken == nil && !l.peerGone() {
		l.session(ctx)
	}
}

func (l *killLink) peerGone() bool {
	id, ok := l.job.arena.MemberOf(l.peer)
	if !ok {
		return false
	}
	p, err := l.job.arena.Peer(id)
	return err == nil && p.Gone()
}

// killSession is one connection of a link.
type killSession struct {
	*killLink
	ctx         context.Context
	ep          nd.Endpoint
	connector   nd.Connector
	cq          nd.CompletionQueue
	memory      [2]nd.MemoryRegion // in the arena, and private
	guarded     nd.MemoryRegion    // which the peer reaches through the window only
	window      nd.MemoryWindow
	far         []nd.WindowDescriptor // memory of the peer
	bound       bool                  // the window is bound, or a Bind or an Invalidate runs
	revoking    bool                  // an Invalidate runs
	isGuarded   bool                  // the memory of the window has the pattern, and must keep it
	outstanding int
	receives    int
	results     [16]nd.Result
}

const (
	killPart   = 24 << 10 // largest transfer
	killMemory = 4 * killPart
	killDepth  = 32

	// Contexts of requests. Those below killReceives are of receives, and say where the memory is.
	killReceives = 16
	killRequest  = 100
	killRevoke   = 101
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
	l.end, l.endedAt = err, hostclock.Now()
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
	if s.IntN(2) == 0 {
		s.guarded, err = a.Allocate(s.ctx, killMemory, nd.AllowLocalWrite)
	} else {
		s.guarded, err = a.Register(s.ctx, make([]byte, killMemory), nd.AllowLocalWrite)
	}
	if err != nil {
		return err
	}
	if s.window, err = a.CreateMemoryWindow(s.ctx); err != nil {
		return err
	}
	if s.ep, err = a.CreateEndpoint(s.ctx, nd.EndpointConfig{Receive: s.cq, Initiator: s.cq, ReceiveDepth: killDepth, InitiatorDepth: killDepth, InlineSize: 64}); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	for i := range uint64(killReceives) {
		s.receive(i)
	}
	for _, mr := range s.memory {
		s.tell(nd.WindowDescriptor{Address: mr.Address(), Length: killMemory, Token: mr.RemoteToken()})
	}
	return nil
}

// connect is Job.Connect, and keeps the connector.
func (s *killSession) connect() (err error) {
	j := s.job
	id, _ := j.arena.MemberOf(s.peer)
	params := nd.ConnectParams{InboundReadLimit: 16, OutboundReadLimit: 16, PrivateData: binary.LittleEndian.AppendUint32(nil, uint32(j.Rank()))}
	if s.peer < j.Rank() {
		if s.connector, err = j.adapter.CreateConnector(s.ctx); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = fmt.Errorf("connect to rank %d: %w", s.peer, err) // as Job.Connect does
			}
		}()
		if err = s.connector.Connect(s.ctx, s.ep, netip.AddrPortFrom(endpoint.Address(j.arena.Host(), id), connectPort), params); err != nil {
			return err
		}
		return s.connector.CompleteConnect(s.ctx)
	}
	err = j.provider.WaitFor(s.ctx, statuspage.Call{Op: "accept", Peer: id}, func() bool {
		j.sortRequests()
		s.connector = j.requestFrom(s.peer)
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
		s.useWindow()
	case s.posts:
		s.post()
	}
}

func (s *killSession) wait(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, d)
	defer cancel()
	n, _ := s.cq.Wait(ctx, s.results[:])
	s.take(n)
}

// useWindow binds the window, or invalidates it.
func (s *killSession) useWindow() {
	if !s.bound {
		s.isGuarded = false
		if s.ep.Bind(killRequest, s.guarded, s.window, s.guarded.Bytes(), nd.AllowRead|nd.AllowWrite) == nil {
			s.bound = true
			s.outstanding++
			s.tell(s.window.Descriptor())
		}
	} else if !s.revoking && s.ep.Invalidate(killRevoke, s.window, 0) == nil {
		s.revoking = true
		s.outstanding++
	}
}

// post posts a request to the peer.
func (s *killSession) post() {
	from := s.memory[s.IntN(2)]
	n := 1 + s.IntN(60)
	if s.IntN(3) == 0 {
		n = 1 + s.IntN(killPart)
	}
	if n == nd.WindowDescriptorSize {
		n++
	}
	sge := []nd.SGE{{Buffer: from.Bytes()[2*killPart+s.IntN(killPart):][:n], Token: from.LocalToken()}}
	var err error
	if k := s.IntN(3); k == 0 || len(s.far) == 0 {
		err = s.ep.Send(killRequest, sge, 0)
	} else {
		far := s.far[len(s.far)-1] // the window, if the peer has described it
		if s.IntN(3) == 0 {
			far = s.far[s.IntN(len(s.far))]
		}
		at := far.Address + 2*killPart + s.Uint64N(killPart)
		if k == 1 {
			err = s.ep.Write(killRequest, sge, at, far.Token, 0)
		} else {
			err = s.ep.Read(killRequest, sge, at, far.Token, 0)
		}
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
	if s.ep.Receive(i, []nd.SGE{{Buffer: mr.Bytes()[i/2%2*killPart:][:n], Token: mr.LocalToken()}}) == nil {
		s.receives++
	}
}

// tell describes memory to the peer.
func (s *killSession) tell(d nd.WindowDescriptor) {
	b, err := d.MarshalBinary()
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
		if r.RequestType != nd.RequestReceive {
			s.outstanding--
			if r.RequestContext == killRevoke && r.Status == nd.Success {
				s.bound, s.revoking = false, false
				s.revoked.Add(1)
				s.guard()
			}
			continue
		}
		s.receives--
		if r.Status == nd.Success {
			s.learn(&r)
			s.receive(r.RequestContext)
		}
	}
}

// learn notes memory that a message of the peer describes.
func (s *killSession) learn(r *nd.Result) {
	var d nd.WindowDescriptor
	i := r.RequestContext
	if r.BytesTransferred != nd.WindowDescriptorSize || d.UnmarshalBinary(s.memory[i%2].Bytes()[i/2%2*killPart:][:nd.WindowDescriptorSize]) != nil {
		return // or a later message has overwritten it
	}
	if d.Length != killMemory {
		return
	}
	if len(s.far) == 3 { // the window again
		s.far[2] = d
		return
	}
	s.far = append(s.far, d)
}

var killPattern = bytes.Repeat([]byte{0x5c}, killMemory)

// guard fills the memory of the window, which is not bound.
func (s *killSession) guard() {
	copy(s.guarded.Bytes(), killPattern)
	s.isGuarded = true
}

// check checks that no byte has changed behind the window.
func (s *killSession) check() {
	if s.isGuarded && !bytes.Equal(s.guarded.Bytes(), killPattern) {
		s.broken = fmt.Errorf("link of ranks %d and %d: a byte behind an invalid window has changed", s.job.Rank(), s.peer)
	}
}

// finish ends the connection in one of several ways, and returns its error. If the connection has ended already, every
// request must complete.
func (s *killSession) finish() error {
	if s.ep.Err() == nil && s.IntN(3) == 0 {
		return nil // close ends it
	}
	if err := s.ep.Err(); err == nil || errors.Is(err, nd.ConnectionDisconnected) {
		ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
		defer cancel()
		_ = s.connector.Disconnect(ctx) // fails if the peer dies, or ends the connection in another way
	}
	for end := time.Now().Add(killLimit); s.outstanding > 0 || s.receives > 0; {
		s.wait(100 * time.Millisecond)
		if time.Now().After(end) {
			s.broken = fmt.Errorf("link of ranks %d and %d: %d requests and %d receives do not complete: %v", s.job.Rank(), s.peer, s.outstanding, s.receives, s.ep.Err())
			break
		}
	}
	return s.ep.Err()
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
		s.check()
		s.guard()
		time.Sleep(200 * time.Microsecond)
		s.check()
	}
	for _, c := range []interface{ Close() error }{s.guarded, s.memory[0], s.memory[1], s.cq} {
		if c != nil {
			c.Close()
		}
	}
}
