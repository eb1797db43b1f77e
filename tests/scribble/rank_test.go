package scribble

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/traffic"
	"github.com/softnd/softnd/nd"
)

var roleScribbled = proctest.Role("scribbled", playScribbled)

// playScribbled is an honest rank, for a while.
func playScribbled(s *proctest.Self) error {
	span, err1 := time.ParseDuration(s.Args[0])
	seed, err2 := strconv.ParseUint(s.Args[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	j, err := softnd.Init(ctx)
	if err != nil {
		return nil // the arena was damaged before
	}
	var done sync.WaitGroup
	var sum work
	random := func(i uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, i)) }
	done.Go(func() { honestTraffic(ctx, j, random(0), &sum) })
	done.Go(func() { traffic.Objects(ctx, j.Adapter(), random(1), func() { sum.add(allocations, 1) }) })
	done.Go(func() { honestTogether(ctx, j, random(2), &sum) })
	ended := make(chan struct{})
	go func() {
		done.Wait()
		close(ended)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(time.Second): // a drain may wait for a hazard that is none
	}
	j.Close()
	<-ended
	s.Say("%d %d %d %d", sum[0], sum[1], sum[2], sum[3])
	return nil
}

// honestTogether makes collective calls as long as they succeed.
func honestTogether(ctx context.Context, j *softnd.Job, r *rand.Rand, sum *work) {
	for ctx.Err() == nil {
		if _, err := j.Exchange(ctx, make([]byte, r.IntN(5000))); err != nil {
			return
		}
		if err := j.Barrier(ctx); err != nil {
			return
		}
		sum.add(collectives, 2)
	}
}

// honestTraffic connects with the other ranks in their order, and moves bytes.
func honestTraffic(ctx context.Context, j *softnd.Job, r *rand.Rand, sum *work) {
	for ctx.Err() == nil {
		var done sync.WaitGroup
		for peer := range j.Size() {
			if peer == j.Rank() {
				continue
			}
			seed := r.Uint64()
			done.Go(func() {
				c, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
				defer cancel()
				s := session{ctx: c, job: j, Rand: rand.New(rand.NewPCG(seed, 1)), sum: sum}
				s.play(peer)
			})
		}
		done.Wait()
	}
}

// session is one connection of an honest rank.
type session struct {
	*rand.Rand
	ctx     context.Context
	job     *softnd.Job
	sum     *work
	ep      nd.Endpoint
	cq      nd.CompletionQueue
	arena   nd.MemoryRegion
	private nd.MemoryRegion
	window  nd.MemoryWindow
	bound   bool
	fast    nd.MemoryRegion
	mapping nd.LogicalMapping
	mapped  bool // by the fast region
	srq     nd.SharedReceiveQueue
	far     []nd.WindowDescriptor // memory that the peer has described
	results [8]nd.Result
}

const (
	largest       = 64 << 10 // message or transfer
	sessionMemory = 4 * largest
)

func (s *session) play(peer int) {
	defer s.close()
	if s.open(peer) != nil {
		return
	}
	s.sum.add(sessions, 1)
	for i := range uint64(1 << 30) {
		if s.ctx.Err() != nil || s.ep.Err() != nil {
			return
		}
		s.post(i)
		if s.IntN(3) == 0 {
			s.count(s.cq.Poll(s.results[:]))
			s.learn()
		}
		if s.IntN(50) == 0 {
			wait, cancel := context.WithTimeout(s.ctx, 5*time.Millisecond)
			n, _ := s.cq.Wait(wait, s.results[:])
			s.count(n)
			cancel()
		}
		if s.IntN(20_000) == 0 {
			s.ep.Flush()
		}
	}
}

// count counts the transfers among the first n results.
func (s *session) count(n int) {
	for _, r := range s.results[:n] {
		if r.Status == nd.Success && r.BytesTransferred > 0 {
			s.sum.add(transfers, 1)
		}
	}
}

func (s *session) open(peer int) (err error) {
	a := s.job.Adapter()
	const flags = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	if s.cq, err = a.CreateCompletionQueue(s.ctx, 1024); err != nil {
		return err
	}
	if s.arena, err = a.Allocate(s.ctx, sessionMemory, flags); err != nil {
		return err
	}
	if s.private, err = a.Register(s.ctx, make([]byte, sessionMemory), flags); err != nil {
		return err
	}
	if s.window, err = a.CreateMemoryWindow(s.ctx); err != nil {
		return err
	}
	if s.fast, err = a.CreateMemoryRegion(s.ctx); err != nil {
		return err
	}
	if err = s.fast.InitializeFastRegister(s.ctx, 2*largest/4096, true); err != nil {
		return err
	}
	if s.mapping, err = a.BuildLogicalAddressMapping(s.ctx, s.arena.Bytes()[2*largest:]); err != nil {
		return err
	}
	cfg := nd.EndpointConfig{Receive: s.cq, Initiator: s.cq, ReceiveDepth: 64, InitiatorDepth: 64, InlineSize: 64}
	if s.IntN(3) == 0 {
		if s.srq, err = a.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 64}); err != nil {
			return err
		}
		cfg.SharedReceive = s.srq
	}
	if s.ep, err = s.job.Connect(s.ctx, peer, cfg); err != nil {
		return err
	}
	for i := range uint64(16) {
		s.receive(i)
	}
	for _, mr := range []nd.MemoryRegion{s.arena, s.private} {
		s.tell(nd.WindowDescriptor{Address: mr.Address(), Length: sessionMemory, Token: mr.RemoteToken()})
	}
	return nil
}

func (s *session) close() {
	for _, c := range []interface{ Close() error }{s.ep, s.srq, s.window, s.fast, s.mapping, s.arena, s.private, s.cq} {
		if c != nil {
			c.Close()
		}
	}
}

// tell sends the peer a description of memory.
func (s *session) tell(d nd.WindowDescriptor) {
	if b, err := d.MarshalBinary(); err == nil {
		s.ep.Send(1, []nd.SGE{{Buffer: b}}, nd.Inline)
	}
}

// learn looks whether a message in the memory for receives describes memory of the peer.
// Now and then it believes any.
func (s *session) learn() {
	var d nd.WindowDescriptor
	message := bytes.Clone(s.arena.Bytes()[s.IntN(2)*largest:][:nd.WindowDescriptorSize])
	if d.UnmarshalBinary(message) == nil && (d.Length == sessionMemory || s.IntN(2000) == 0) {
		s.far = append(s.far[:min(len(s.far), 5)], d)
	}
}

func (s *session) receive(i uint64) {
	mr := s.arena
	if s.IntN(4) == 0 {
		mr = s.private
	}
	sge := []nd.SGE{{Buffer: mr.Bytes()[i%2*largest:][:largest], Token: mr.LocalToken()}}
	if s.srq != nil {
		s.srq.Receive(i, sge)
		return
	}
	s.ep.Receive(i, sge)
}

// memory is a random part of the session's memory beyond that for receives.
func (s *session) memory() nd.SGE {
	mr := s.arena
	if s.IntN(3) == 0 {
		mr = s.private
	}
	n := 1 + s.IntN(64)
	if s.IntN(4) == 0 {
		n = 1 + s.IntN(largest/2)
	}
	at := 2*largest + s.IntN(2*largest-n)
	return nd.SGE{Buffer: mr.Bytes()[at:][:n], Token: mr.LocalToken()}
}

// post posts something.
func (s *session) post(i uint64) {
	sge := []nd.SGE{s.memory()}
	if s.IntN(8) == 0 {
		sge = append(sge, s.memory())
	}
	var far nd.WindowDescriptor
	if len(s.far) > 0 {
		far = s.far[s.IntN(len(s.far))]
	} else if s.IntN(5000) != 0 { // without one a Write or Read ends the connection
		s.receive(i)
		s.learn()
		return
	}
	address := far.Address + s.Uint64N(sessionMemory-largest)
	var flags nd.OpFlags
	if s.IntN(5) == 0 {
		flags |= nd.ReadFence
	}
	switch k := s.IntN(60); {
	case k < 20:
		s.receive(i)
	case k < 30:
		s.ep.Send(i, sge, flags)
	case k < 38:
		s.ep.Send(i, []nd.SGE{{Buffer: make([]byte, s.IntN(48))}}, flags|nd.Inline)
	case k < 48:
		s.ep.Write(i, sge, address, far.Token, flags)
	case k < 58:
		s.ep.Read(i, sge, address, far.Token, flags)
	case s.IntN(10) == 0 && !s.mapped:
		const base = 1 << 40
		s.mapped = s.ep.FastRegister(i, s.fast, s.mapping.Pages(), s.mapping.Offset(), 2*largest, base,
			nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite, flags) == nil
	case s.IntN(10) == 0 && s.mapped:
		s.mapped = s.ep.InvalidateRegion(i, s.fast, flags) != nil
	case s.IntN(200) == 0: // the peer has not bound it, or uses it
		s.ep.SendAndInvalidate(i, sge, far.Token, flags)
	case s.bound && s.IntN(100) == 0: // a request that still uses it ends the connection
		s.bound = s.ep.Invalidate(i, s.window, flags) != nil
	case !s.bound:
		if s.ep.Bind(i, s.arena, s.window, s.arena.Bytes(), nd.AllowRead|nd.AllowWrite) == nil {
			s.bound = true
			s.tell(s.window.Descriptor())
		}
	}
}
