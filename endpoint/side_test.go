package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// sideOptions configure a side.
type sideOptions struct {
	Options
	DisconnectTimeout time.Duration    // becomes Options.disconnectTimeout, which gob does not send to other processes
	FaultRules        []faultplan.Rule // become Options.Faults, likewise
	Private           bool             // of the first region
	Size              int              // of the first region, bytes; 0 = 256 KiB
	ReceiveDepth      int
	InitiatorDepth    int
	QueueDepth        int  // of the completion queues; 0 = 1024
	OneQueue          bool // one completion queue instead of two
	Bare              bool // no endpoint, region or goroutine: the test drives the provider
	SGE               int
	InlineSize        int
	Shared            *nd.SharedReceiveQueueConfig // all endpoints take their receives from such a queue
}

// side is one end of the connections of a test, in this process or in another one. Then its objects are there, and orders reach
// them through process.
type side struct {
	t       testing.TB // nil in the process of a remote side
	name    string
	process *remoteSide // nil = in this process
	id      shm.MemberID
	memory  nd.WindowDescriptor // the first region

	ctx      context.Context
	options  sideOptions
	plan     *faultplan.Plan // nil = none
	member   *shm.Member
	provider *Provider
	adapter  nd.Adapter
	queues   [2]nd.CompletionQueue
	shared   nd.SharedReceiveQueue

	mu         sync.Mutex
	endpoints  []nd.Endpoint
	connectors []nd.Connector
	regions    []*regionMemory
	windows    []nd.MemoryWindow
	listener   nd.Listener
}

// newSide makes a side in this process or in another one. When the test ends it closes all
// objects, checks the edges of its memory, and leaves.
func newSide(t testing.TB, arena *shm.Arena, name string, o sideOptions, otherProcess bool) *side {
	t.Helper()
	if otherProcess {
		p := startRemoteSide(t, arena, o)
		t.Cleanup(p.leave)
		return &side{t: t, name: name, process: p, id: p.member}
	}
	s, err := openSide(proctest.Context(t), arena, o)
	if err != nil {
		t.Fatal(err)
	}
	s.t, s.name = t, name
	t.Cleanup(func() {
		if err := s.checkEdges(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.leave(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return s
}

// newUnconnected makes a side in an arena of its own.
func newUnconnected(t testing.TB) *side {
	t.Helper()
	return newSide(t, newArena(t), "alone", sideOptions{}, false)
}

// openSide joins the arena and makes an adapter, queues, an endpoint, and a region with all
// rights.
func openSide(ctx context.Context, arena *shm.Arena, o sideOptions) (*side, error) {
	member, err := arena.Join(shm.NoRank)
	if err != nil {
		return nil, err
	}
	s := &side{ctx: ctx, options: o, member: member, id: member.ID()}
	o.Options.disconnectTimeout = o.DisconnectTimeout
	if o.ReceiveTimeout == 0 { // the default is short for a busy machine
		o.ReceiveTimeout = proctest.Timeout
	}
	if o.FaultRules != nil {
		s.plan = faultplan.New(o.FaultRules)
		o.Options.Faults = s.plan.For
	}
	if s.provider, err = New(member, o.Options); err != nil {
		return nil, errors.Join(err, member.Leave())
	}
	if o.Bare {
		s.provider.engine.stop()
		s.provider.housekeeper.stop()
	}
	if err := s.setUp(); err != nil {
		return nil, errors.Join(err, s.leave())
	}
	return s, nil
}

func (s *side) setUp() (err error) {
	if s.adapter, err = s.provider.OpenAdapter(s.ctx, s.provider.adapterID()); err != nil {
		return err
	}
	depth := s.options.QueueDepth
	if depth == 0 {
		depth = 1024
	}
	for i := range s.queues {
		if i > 0 && s.options.OneQueue {
			s.queues[i] = s.queues[0]
			break
		}
		if s.queues[i], err = s.adapter.CreateCompletionQueue(s.ctx, depth); err != nil {
			return err
		}
	}
	if s.options.Bare {
		return nil
	}
	if s.options.Shared != nil {
		if s.shared, err = s.adapter.CreateSharedReceiveQueue(s.ctx, *s.options.Shared); err != nil {
			return err
		}
	}
	size := s.options.Size
	if size == 0 {
		size = 256 << 10
	}
	const all = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	if r := s.execute(order{Do: doRegion, Len: size, Private: s.options.Private, Rights: all}); r.Status != nd.Success {
		return errors.New(r.Text)
	}
	if r := s.execute(order{Do: doEndpoint}); r.Status != nd.Success {
		return errors.New(r.Text)
	}
	return nil
}

// execute executes an order. Orders may run concurrently.
func (s *side) execute(o order) (r reply) {
	if err := s.try(o, &r); err != nil {
		r.Status, r.Text = nd.StatusOf(err), err.Error()
	}
	return r
}

func (s *side) try(o order, r *reply) (err error) {
	ctx := s.ctx
	if o.Timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	switch o.Do {
	case doWrite, doRead, doSend, doSendRevoking, doReceive, doBind, doInvalidate, doFlush, doSendImmediate, doWriteImmediate, doFetchAndAdd, doCompareAndSwap, doSwap:
		err = s.post(o, r)
	case doWait:
		if r.Results, err = s.collect(ctx, o.Queue, o.N); err == nil && o.Len > 0 {
			r.Sum = xxhash.Sum64(s.rangeOf(o)) // at this moment
		}
	case doPoll:
		room := make([]nd.Result, o.N)
		for range o.Retries + 1 {
			if r.Results = room[:s.queues[o.Queue].Poll(room)]; len(r.Results) > 0 {
				break
			}
		}
	case doFill:
		s.showRaceDetector()
		fill(s.rangeOf(o), o.Seed)
		s.showRaceDetector()
	case doFillByte:
		s.showRaceDetector()
		mem := s.rangeOf(o)
		for i := range mem {
			mem[i] = byte(o.N)
		}
		s.showRaceDetector()
	case doLongestRun:
		s.showRaceDetector()
		r.N = longestRun(s.rangeOf(o), byte(o.N))
		s.showRaceDetector()
	case doSum:
		s.showRaceDetector()
		r.Sum = xxhash.Sum64(s.rangeOf(o))
		s.showRaceDetector()
	case doPeek:
		s.showRaceDetector()
		r.Data = slices.Clone(s.rangeOf(o))
		s.showRaceDetector()
	case doGather:
		s.showRaceDetector()
		h := xxhash.New()
		for _, part := range o.Parts {
			r.N += part.Len
			h.Write(s.regionAt(part.Region).cut(part.Off, part.Len))
		}
		r.Sum = h.Sum64()
		s.showRaceDetector()
	case doEdges:
		err = s.checkEdges()
	case doRegion:
		err = s.addRegion(o, r)
	case doAllocate:
		var mr nd.MemoryRegion
		if mr, err = s.adapter.Allocate(ctx, o.Len, o.Rights); err == nil {
			s.keep(&regionMemory{mr: mr, all: mr.Bytes()}, r)
		}
	case doRegionInfo:
		mr := s.regionAt(o.Region).mr
		r.Far, r.Sum = farOf(mr), uint64(mr.LocalToken())
	case doDeregister:
		err = s.regionAt(o.Region).mr.Deregister(ctx)
	case doCloseRegion:
		err = s.regionAt(o.Region).mr.Close(ctx)
	case doWindow:
		var w nd.MemoryWindow
		if w, err = s.adapter.CreateMemoryWindow(ctx); err == nil {
			s.mu.Lock()
			r.N = len(s.windows)
			s.windows = append(s.windows, w)
			s.mu.Unlock()
		}
	case doCloseWindow:
		err = s.windowAt(o.Window).Close(ctx)
	case doDescriptor:
		r.Far = s.windowAt(o.Window).Descriptor()
	case doEndpoint:
		err = s.addEndpoint(ctx, r)
	case doCloseEndpoint:
		err = s.endpointAt(o.Endpoint).Close()
	case doWhy:
		err = s.endpointAt(o.Endpoint).Err()
	case doVisit:
		err = s.visit(ctx, o)
	case doServe:
		err = s.serve(ctx)
	case doRepeat:
		err = s.repeat(o, r)
	case doCloseProvider:
		err = s.provider.Close()
	case doInUse:
		r.N = int(s.member.InUse())
	case doLeave:
		err = s.leave()
	default:
		if do := fastOrders[o.Do]; do != nil {
			return do(s, ctx, o, r)
		}
		err = s.link(ctx, o, r)
	}
	return err
}

// post makes the work request of an order.
func (s *side) post(o order, r *reply) error {
	ep := s.endpointAt(o.Endpoint)
	entries := make([]nd.SGE, len(o.Parts))
	for i, p := range o.Parts {
		m := s.regionAt(p.Region)
		entries[i] = nd.SGE{Buffer: m.cut(p.Off, p.Len), Token: p.Token}
		if p.Token == 0 {
			entries[i].Token = m.mr.LocalToken()
		}
	}
	sge := nd.List(entries...)
	switch o.Do {
	case doWrite:
		return ep.Write(o.Context, sge, o.Far.Address, o.Far.Token, o.Flags)
	case doRead:
		return ep.Read(o.Context, sge, o.Far.Address, o.Far.Token, o.Flags)
	case doSend:
		return ep.Send(o.Context, sge, o.Flags)
	case doSendRevoking:
		return ep.SendAndInvalidate(o.Context, sge, o.Far.Token, o.Flags)
	case doSendImmediate:
		return ep.SendImmediate(o.Context, sge, uint32(o.Operand), o.Flags)
	case doWriteImmediate:
		return ep.WriteImmediate(o.Context, sge, o.Far.Address, o.Far.Token, uint32(o.Operand), o.Flags)
	case doFetchAndAdd:
		return ep.FetchAndAdd(o.Context, sge.First, o.Far.Address, o.Far.Token, o.Operand, o.Flags)
	case doCompareAndSwap:
		return ep.CompareAndSwap(o.Context, sge.First, o.Far.Address, o.Far.Token, o.Operand, o.Swap, o.Flags)
	case doSwap:
		return ep.Swap(o.Context, sge.First, o.Far.Address, o.Far.Token, o.Operand, o.Flags)
	case doReceive:
		if s.shared != nil {
			return s.shared.Receive(o.Context, sge)
		}
		return ep.Receive(o.Context, sge)
	case doInvalidate:
		return ep.Invalidate(o.Context, s.windowAt(o.Window), o.Flags)
	case doFlush:
		return ep.Flush(s.ctx)
	}
	m := s.regionAt(o.Region)
	err := ep.Bind(o.Context, m.mr, s.windowAt(o.Window), m.cut(o.Off, o.Len), o.Flags)
	r.Far = s.windowAt(o.Window).Descriptor()
	return err
}

func (s *side) addEndpoint(ctx context.Context, r *reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ep, err := s.adapter.CreateEndpoint(ctx, nd.EndpointConfig{
		ReceiveCQ: s.queues[receiveQueue], InitiatorCQ: s.queues[initiatorQueue], SharedReceive: s.shared,
		Context:      endpointContext(len(s.endpoints)),
		ReceiveDepth: s.options.ReceiveDepth, InitiatorDepth: s.options.InitiatorDepth,
		MaxReceiveSGE: s.options.SGE, MaxInitiatorSGE: s.options.SGE, InlineSize: s.options.InlineSize,
	})
	if err != nil {
		return err
	}
	c, err := s.adapter.CreateConnector(ctx)
	if err != nil {
		return err
	}
	r.N = len(s.endpoints)
	s.endpoints, s.connectors = append(s.endpoints, ep), append(s.connectors, c)
	return nil
}

// endpointContext is the Context of a side's endpoint i.
func endpointContext(i int) uint64 { return 0xe0 + uint64(i) }

// collect waits for n results.
func (s *side) collect(ctx context.Context, q queue, n int) ([]nd.Result, error) {
	all := make([]nd.Result, n)
	for got := 0; got < n; {
		k, err := s.queues[q].Wait(ctx, all[got:])
		if err != nil {
			return all[:got], fmt.Errorf("after %d of %d results: %w", got, n, err)
		}
		got += k
	}
	return all, nil
}

// repeat posts the transfer that o.Data names repeatedly, with o.N of them outstanding at a
// time. It returns the status of the first failure, after all have completed, and the number of
// transfers before it.
func (s *side) repeat(o order, r *reply) error {
	again := o
	again.Do = verb(o.Data)
	results := make([]nd.Result, max(o.N, 1))
	end := nd.Success
	for outstanding := 0; ; {
		for end == nd.Success && outstanding < len(results) {
			if err := s.post(again, r); err != nil {
				return err
			}
			again.Context++
			outstanding++
		}
		if outstanding == 0 {
			return end
		}
		k, err := s.queues[initiatorQueue].Wait(s.ctx, results)
		if err != nil {
			return err
		}
		outstanding -= k
		for _, res := range results[:k] {
			switch {
			case end != nd.Success:
			case res.Status == nd.Success:
				r.N++
			default:
				end = res.Status
			}
		}
	}
}

// showRaceDetector tells the race detector about synchronization with another process, which it
// cannot see.
func (s *side) showRaceDetector() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ep := range s.endpoints {
		_ = ep.Err() // takes the lock under which the endpoint copies
	}
}

func (s *side) regionAt(i int) *regionMemory   { return item(s, &s.regions, i) }
func (s *side) windowAt(i int) nd.MemoryWindow { return item(s, &s.windows, i) }
func (s *side) endpointAt(i int) nd.Endpoint   { return item(s, &s.endpoints, i) }
func (s *side) connectorAt(i int) nd.Connector { return item(s, &s.connectors, i) }

func item[T any](s *side, list *[]T, i int) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (*list)[i]
}

// leave closes all objects and ends the membership.
func (s *side) leave() error {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", what, err))
		}
	}
	close := func(what string, c interface{ Close() error }) { note(what, c.Close()) }
	drain := func(what string, c interface{ Close(context.Context) error }) {
		note(what, c.Close(context.Background()))
	}
	if s.listener != nil {
		close("listener", s.listener)
	}
	for _, ep := range s.endpoints {
		close("endpoint", ep)
	}
	for _, c := range s.connectors {
		close("connector", c)
	}
	if s.shared != nil {
		close("shared receive queue", s.shared)
	}
	for _, w := range s.windows {
		drain("window", w)
	}
	for _, m := range s.regions {
		drain("region", m.mr)
		if m.mapped != nil {
			drain("mapping", m.mapped)
		}
		if m.holder != nil {
			drain("region", m.holder)
		}
	}
	close("provider", s.provider)
	if err := s.member.Leave(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
