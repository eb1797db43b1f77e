package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// An order is an operation that one side of a connection executes. Orders can be sent, so the
// same test runs with both sides in one process or in two.
type order struct {
	Do       verb
	Endpoint int // which endpoint, and which connector
	Context  uint64
	Parts    []part
	Far      nd.WindowDescriptor
	Flags    nd.OpFlags
	Window   int
	Region   int
	Off, Len int // of Region
	Rights   nd.RegionFlags
	Private  bool // memory of the process instead of arena memory
	Queue    queue
	N        int
	Retries  int // of doPoll: further polls while the queue is empty
	Seed     uint64
	Addr     netip.AddrPort
	Data     []byte
	In, Out  int           // read limits
	Timeout  time.Duration // limits a control call; 0 = proctest.Timeout
}

// part is one scatter/gather entry: a range of a region, which may be out of bounds.
type part struct {
	Region, Off, Len int
	Token            nd.Token // instead of the region's local token, if not 0
}

type reply struct {
	Status  nd.Status // status that the call returned
	Text    string    // its error
	Results []nd.Result
	Far     nd.WindowDescriptor
	Sum     uint64
	N       int
	In, Out int
	Addr    netip.AddrPort
	Data    []byte
	IsGone  bool // the process that received the order is gone
}

type queue int

const (
	initiatorQueue queue = iota
	receiveQueue
)

type verb string

const (
	doWrite         verb = "write"
	doRead          verb = "read"
	doSend          verb = "send"
	doSendRevoking  verb = "send and invalidate"
	doReceive       verb = "receive"
	doBind          verb = "bind"
	doInvalidate    verb = "invalidate"
	doFlush         verb = "flush"
	doWait          verb = "wait" // for N results of Queue
	doPoll          verb = "poll" // for the queued results
	doFill          verb = "fill"
	doFillByte      verb = "fill with byte N"
	doLongestRun    verb = "find the longest run of byte N"
	doSum           verb = "sum"
	doPeek          verb = "peek"   // the bytes themselves
	doGather        verb = "sum up" // of Parts
	doEdges         verb = "check the edges"
	doRegion        verb = "register"
	doAllocate      verb = "allocate" // a region without edges
	doRegionInfo    verb = "describe region"
	doDeregister    verb = "deregister"
	doCloseRegion   verb = "close region"
	doWindow        verb = "create window"
	doCloseWindow   verb = "close window"
	doDescriptor    verb = "describe"
	doEndpoint      verb = "create endpoint"
	doCloseEndpoint verb = "close endpoint"
	doWhy           verb = "why" // Endpoint.Err
	doListen        verb = "listen"
	doAccept        verb = "accept"
	doConnect       verb = "connect"
	doComplete      verb = "complete connect"
	doNotify        verb = "notify disconnect"
	doDisconnect    verb = "disconnect"
	doCloseLink     verb = "close connector"
	doVisit         verb = "visit"  // connect, exchange messages, and end the connection
	doServe         verb = "serve"  // the other side of a visit
	doRepeat        verb = "repeat" // a transfer, until it fails
	doCloseProvider verb = "close provider"
	doInUse         verb = "count memory"
	doLeave         verb = "leave"
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
	SGE               int
	InlineSize        int
	Shared            *nd.SharedReceiveQueueConfig // all endpoints take their receives from such a queue
}

// edge is the number of bytes around each region that no transfer may touch.
const edge = 4096

// regionMemory is a region with edges around it.
type regionMemory struct {
	mr     nd.MemoryRegion
	all    []byte
	edge   int
	holder nd.MemoryRegion // of all of it, if it is in the arena
	mapped nd.LogicalMapping
}

func (m *regionMemory) bytes() []byte { return m.all[m.edge : len(m.all)-m.edge] }

// cut returns a range of the region, which may include a part of the edges.
func (m *regionMemory) cut(off, n int) []byte { return m.all[m.edge+off:][:n] }

const edgeByte = 0xa5

// side is one end of the connections of a test.
type side struct {
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

// newSide joins the arena and makes an adapter, queues, an endpoint, and a region with all
// rights.
func newSide(ctx context.Context, arena *shm.Arena, o sideOptions) (*side, error) {
	member, err := arena.Join(shm.NoRank)
	if err != nil {
		return nil, err
	}
	s := &side{ctx: ctx, options: o, member: member}
	o.Options.disconnectTimeout = o.DisconnectTimeout
	if o.FaultRules != nil {
		s.plan = faultplan.New(o.FaultRules)
		o.Options.Faults = s.plan.For
	}
	if s.provider, err = New(member, o.Options); err != nil {
		return nil, errors.Join(err, member.Leave())
	}
	if err := s.furnish(); err != nil {
		return nil, errors.Join(err, s.leave())
	}
	return s, nil
}

func (s *side) furnish() (err error) {
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
	if r := s.obey(order{Do: doRegion, Len: size, Private: s.options.Private, Rights: all}); r.Status != nd.Success {
		return errors.New(r.Text)
	}
	if r := s.obey(order{Do: doEndpoint}); r.Status != nd.Success {
		return errors.New(r.Text)
	}
	return nil
}

// obey executes an order. Orders may run concurrently.
func (s *side) obey(o order) (r reply) {
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
	case doWrite, doRead, doSend, doSendRevoking, doReceive, doBind, doInvalidate, doFlush:
		err = s.post(o, r)
	case doWait:
		if r.Results, err = s.collect(ctx, o.Queue, o.N); err == nil && o.Len > 0 {
			r.Sum = xxhash.Sum64(s.memory(o)) // at this moment
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
		fill(s.memory(o), o.Seed)
		s.showRaceDetector()
	case doFillByte:
		s.showRaceDetector()
		mem := s.memory(o)
		for i := range mem {
			mem[i] = byte(o.N)
		}
		s.showRaceDetector()
	case doLongestRun:
		s.showRaceDetector()
		r.N = longestRun(s.memory(o), byte(o.N))
		s.showRaceDetector()
	case doSum:
		s.showRaceDetector()
		r.Sum = xxhash.Sum64(s.memory(o))
		s.showRaceDetector()
	case doPeek:
		s.showRaceDetector()
		r.Data = slices.Clone(s.memory(o))
		s.showRaceDetector()
	case doGather:
		s.showRaceDetector()
		h := xxhash.New()
		for _, part := range o.Parts {
			r.N += part.Len
			h.Write(s.region(part.Region).cut(part.Off, part.Len))
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
		mr := s.region(o.Region).mr
		r.Far, r.Sum = farOf(mr), uint64(mr.LocalToken())
	case doDeregister:
		err = s.region(o.Region).mr.Deregister(ctx)
	case doCloseRegion:
		err = s.region(o.Region).mr.Close()
	case doWindow:
		var w nd.MemoryWindow
		if w, err = s.adapter.CreateMemoryWindow(ctx); err == nil {
			s.mu.Lock()
			r.N = len(s.windows)
			s.windows = append(s.windows, w)
			s.mu.Unlock()
		}
	case doCloseWindow:
		err = s.window(o.Window).Close()
	case doDescriptor:
		r.Far = s.window(o.Window).Descriptor()
	case doEndpoint:
		err = s.addEndpoint(ctx, r)
	case doCloseEndpoint:
		err = s.endpoint(o.Endpoint).Close()
	case doWhy:
		err = s.endpoint(o.Endpoint).Err()
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
	ep := s.endpoint(o.Endpoint)
	sge := make([]nd.SGE, len(o.Parts))
	for i, p := range o.Parts {
		m := s.region(p.Region)
		sge[i] = nd.SGE{Buffer: m.cut(p.Off, p.Len), Token: p.Token}
		if p.Token == 0 {
			sge[i].Token = m.mr.LocalToken()
		}
	}
	switch o.Do {
	case doWrite:
		return ep.Write(o.Context, sge, o.Far.Address, o.Far.Token, o.Flags)
	case doRead:
		return ep.Read(o.Context, sge, o.Far.Address, o.Far.Token, o.Flags)
	case doSend:
		return ep.Send(o.Context, sge, o.Flags)
	case doSendRevoking:
		return ep.SendAndInvalidate(o.Context, sge, o.Far.Token, o.Flags)
	case doReceive:
		if s.shared != nil {
			return s.shared.Receive(o.Context, sge)
		}
		return ep.Receive(o.Context, sge)
	case doInvalidate:
		return ep.Invalidate(o.Context, s.window(o.Window), o.Flags)
	case doFlush:
		return ep.Flush()
	}
	m := s.region(o.Region)
	err := ep.Bind(o.Context, m.mr, s.window(o.Window), m.cut(o.Off, o.Len), o.Flags)
	r.Far = s.window(o.Window).Descriptor()
	return err
}

// link makes and ends connections.
func (s *side) link(ctx context.Context, o order, r *reply) (err error) {
	params := nd.ConnectParams{InboundReadLimit: o.In, OutboundReadLimit: o.Out, PrivateData: o.Data}
	switch o.Do {
	case doListen:
		return s.listen(ctx, o, r)
	case doAccept:
		c := s.connector(o.Endpoint)
		if err := s.listener.GetConnectionRequest(ctx, c); err != nil {
			return err
		}
		return c.Accept(ctx, s.endpoint(o.Endpoint), params)
	case doConnect:
		return s.connector(o.Endpoint).Connect(ctx, s.endpoint(o.Endpoint), o.Addr, params)
	case doComplete:
		return s.connector(o.Endpoint).CompleteConnect(ctx)
	case doNotify:
		return s.connector(o.Endpoint).NotifyDisconnect(ctx)
	case doDisconnect:
		return s.connector(o.Endpoint).Disconnect(ctx)
	case doCloseLink:
		return s.connector(o.Endpoint).Close()
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

func (s *side) listen(ctx context.Context, o order, r *reply) (err error) {
	if s.listener, err = s.adapter.CreateListener(ctx); err != nil {
		return err
	}
	addrs, err := s.adapter.QueryAddressList()
	if err != nil {
		return err
	}
	if err := s.listener.Bind(netip.AddrPortFrom(addrs[0], o.Addr.Port())); err != nil {
		return err
	}
	if err := s.listener.Listen(o.N); err != nil {
		return err
	}
	r.Addr, err = s.listener.LocalAddress()
	return err
}

func (s *side) addEndpoint(ctx context.Context, r *reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ep, err := s.adapter.CreateEndpoint(ctx, nd.EndpointConfig{
		Receive: s.queues[receiveQueue], Initiator: s.queues[initiatorQueue], SharedReceive: s.shared,
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

// addRegion makes a region of o.Len bytes between two edges.
func (s *side) addRegion(o order, r *reply) (err error) {
	m := &regionMemory{edge: edge}
	if o.Private {
		m.all = make([]byte, o.Len+2*edge)
	} else {
		if m.holder, err = s.adapter.Allocate(s.ctx, o.Len+2*edge, nd.AllowLocalWrite); err != nil {
			return err
		}
		m.all = m.holder.Bytes()
	}
	for i := range edge {
		m.all[i], m.all[len(m.all)-1-i] = edgeByte, edgeByte
	}
	if m.mr, err = s.adapter.Register(s.ctx, m.bytes(), o.Rights); err != nil {
		return err
	}
	s.keep(m, r)
	return nil
}

func (s *side) keep(m *regionMemory, r *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.N = len(s.regions)
	s.regions = append(s.regions, m)
	r.Far, r.Sum = farOf(m.mr), uint64(m.mr.LocalToken())
}

func (s *side) checkEdges() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, m := range s.regions {
		for i := range m.edge {
			if m.all[i] != edgeByte {
				return fmt.Errorf("region %d: byte %d before it was written", n, edge-i)
			}
			if m.all[len(m.all)-1-i] != edgeByte {
				return fmt.Errorf("region %d: byte %d after it was written", n, edge-1-i)
			}
		}
	}
	return nil
}

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

// fill writes a pattern that differs at every offset and for every seed.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x >> (i % 8 * 8))
	}
}

func longestRun(b []byte, x byte) (longest int) {
	run := 0
	for _, y := range b {
		if run++; y != x {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// showRaceDetector tells the race detector about synchronization with another process, which it
// cannot see.
func (s *side) showRaceDetector() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ep := range s.endpoints {
		_ = ep.Err() // takes the lock under which the engine copies
	}
}

func (s *side) memory(o order) []byte { return s.region(o.Region).cut(o.Off, o.Len) }

func (s *side) region(i int) *regionMemory   { return item(s, &s.regions, i) }
func (s *side) window(i int) nd.MemoryWindow { return item(s, &s.windows, i) }
func (s *side) endpoint(i int) nd.Endpoint   { return item(s, &s.endpoints, i) }
func (s *side) connector(i int) nd.Connector { return item(s, &s.connectors, i) }

func item[T any](s *side, list *[]T, i int) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (*list)[i]
}

func farOf(mr nd.MemoryRegion) nd.WindowDescriptor {
	return nd.WindowDescriptor{Address: mr.Address(), Length: uint64(len(mr.Bytes())), Token: mr.RemoteToken()}
}

// leave closes all objects and ends the membership.
func (s *side) leave() error {
	var errs []error
	close := func(what string, c interface{ Close() error }) {
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", what, err))
		}
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
		close("window", w)
	}
	for _, m := range s.regions {
		close("region", m.mr)
		if m.mapped != nil {
			close("mapping", m.mapped)
		}
		if m.holder != nil {
			close("region", m.holder)
		}
	}
	close("provider", s.provider)
	if err := s.member.Leave(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
