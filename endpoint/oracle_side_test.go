package endpoint

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// oracleSide is one end of the connections of an oracle, and the model of it. The requests of a
// side take effect one after the other, in the order of posting, and a message waits for a
// receive; so the model applies each as soon as it has been posted, or the receive has.
type oracleSide struct {
	o     *oracle
	far   *oracleSide
	name  string
	side  *side
	areas []*oracleArea // arena memory, and private memory

	// Of one connection.
	ep        nd.Endpoint
	connector nd.Connector
	queues    [2]nd.CompletionQueue
	shared    nd.SharedReceiveQueue // nil = receives of its own
	limits    nd.EndpointConfig
	windows   []*oracleWindow
	fast      [2]*fastArea // for the peer; for requests of this side
	access    []*oracleAccess
	context   uint64
	want      [2][]*expectation // results owed, in order
	requests  []*oracleRequest  // that the model has yet to apply: the first waits for a receive
	receives  []*oracleReceive  // that no message has taken
	reads     []*oracleRead     // not known to be done
	batching  bool
	confused  bool // what memory holds is not known
}

// expectation is a result that is owed.
type expectation struct {
	nd.Result
	what    string
	silent  bool // a success is not reported
	decided bool // the model has applied it
	done    func()
}

func (e *expectation) String() string { return fmt.Sprintf("%s: %+v", e.what, e.Result) }

type oracleRequest struct {
	*expectation
	message bool // takes a receive
	bytes   int
	apply   func(into *oracleReceive)
}

type oracleReceive struct {
	*expectation
	parts    []oraclePart
	capacity int
}

// oracleRead is a Read that may still be under way.
type oracleRead struct {
	sink   []oraclePart
	source oraclePart
	fenced bool // nothing after it overtakes it
}

// oracleAccess is memory that the peer may use.
type oracleAccess struct {
	oraclePart        // token is the remote one
	address    uint64 // of its first byte, for peers
	read       bool
	write      bool
	atomic     bool
	usable     bool // its request is done
	users      int  // requests of the peer that are not known to be done
	plain      bool // a region's own
	window     *oracleWindow
	fast       *fastArea
}

type oracleWindow struct {
	mw   nd.MemoryWindow
	busy bool // bound, or being so
}

func newOracleSide(o *oracle, x *side) *oracleSide {
	p := &oracleSide{o: o, name: x.name, side: x}
	const all = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	for i, name := range []string{"arena", "private"} {
		n := x.must(order{Do: doRegion, Len: 2 * areaMiddle, Private: i == 1, Rights: all}).N
		m := x.regionAt(n)
		a := &oracleArea{name: name, mr: m.mr, mem: m.bytes(), model: make([]byte, 2*areaMiddle)}
		a.refill(uint64(i), true)
		p.areas = append(p.areas, a)
	}
	return p
}

// begin makes what belongs to one connection.
func (p *oracleSide) begin() {
	o, ctx, ad := p.o, context.Background(), p.side.adapter
	*p = oracleSide{o: o, far: p.far, name: p.name, side: p.side, areas: p.areas, confused: p.confused}
	for i := range p.queues {
		if i > 0 && o.one(3) {
			p.queues[i] = p.queues[0]
			break
		}
		p.queues[i] = must(ad.CreateCompletionQueue(ctx, 512))
	}
	p.limits = nd.EndpointConfig{ReceiveCQ: p.queues[receiveQueue], InitiatorCQ: p.queues[initiatorQueue], Context: o.Uint64(),
		ReceiveDepth: 2 + o.IntN(60), InitiatorDepth: 2 + o.IntN(60), MaxReceiveSGE: 4 + o.IntN(5), MaxInitiatorSGE: 4 + o.IntN(5), InlineSize: o.IntN(512)}
	if o.one(3) {
		p.shared = must(ad.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: p.limits.ReceiveDepth, MaxSGE: p.limits.MaxReceiveSGE}))
		p.limits.SharedReceive = p.shared
	}
	p.ep = must(ad.CreateEndpoint(ctx, p.limits))
	p.connector = must(ad.CreateConnector(ctx))
	for range 3 {
		p.windows = append(p.windows, &oracleWindow{mw: must(ad.CreateMemoryWindow(ctx))})
	}
	for i := range p.fast {
		f := &fastArea{part: i, mr: must(ad.CreateMemoryRegion(ctx))}
		f.mapping = must(ad.BuildLogicalAddressMapping(ctx, p.areas[0].mem[i*areaMiddle:][:areaMiddle]))
		o.must(f.mr.InitializeFastRegister(ctx, 8, true))
		p.fast[i] = f
	}
	for _, a := range p.areas {
		a.refill(o.Uint64(), p.confused)
		p.access = append(p.access, &oracleAccess{oraclePart: oraclePart{span{0, areaMiddle}, a, a.mr.RemoteToken()}, address: a.mr.Address(),
			read: true, write: true, atomic: true, usable: true, plain: true})
	}
	p.confused = false
}

// end closes it.
func (p *oracleSide) end() {
	o := p.o
	o.must(p.ep.Close())
	o.must(p.connector.Close())
	if p.shared != nil {
		o.must(p.shared.Close())
	}
	for _, w := range p.windows {
		o.must(w.mw.Close(context.Background()))
	}
	for _, f := range p.fast {
		o.must(f.mr.Close(context.Background()))
		o.must(f.mapping.Close(context.Background()))
	}
	for _, q := range p.queues {
		o.must(q.Close())
	}
}

// blocked returns the message that waits for a receive of the peer's, if any.
func (p *oracleSide) blocked() *oracleRequest {
	if len(p.requests) == 0 {
		return nil
	}
	return p.requests[0]
}

// settle applies what can be.
func (p *oracleSide) settle() {
	for len(p.requests) > 0 {
		r := p.requests[0]
		var into *oracleReceive
		if r.message {
			if len(p.far.receives) == 0 {
				return
			}
			into, p.far.receives = p.far.receives[0], p.far.receives[1:]
			into.decided = true
		}
		p.requests = p.requests[1:]
		r.apply(into)
		r.decided = true
	}
}

// post makes an initiator request and tells the model. It reports whether there was room.
func (p *oracleSide) post(r *oracleRequest, flags nd.OpFlags, call func(context uint64) error) bool {
	p.context++
	p.o.ops++
	err := call(p.context)
	p.o.note("%s: %d %s %v: %v", p.name, p.context, r.what, flags, err)
	if err != nil {
		if nd.StatusOf(err) != nd.NoMoreEntries || len(p.want[initiatorQueue]) < p.limits.InitiatorDepth {
			p.o.failf("%s: %s: %v, with %d results owed of %d", p.name, r.what, err, len(p.want[initiatorQueue]), p.limits.InitiatorDepth)
		}
		p.pollAll()
		return false
	}
	r.EndpointContext, r.RequestContext, r.silent = p.limits.Context, p.context, flags.Has(nd.SilentSuccess)
	p.want[initiatorQueue] = append(p.want[initiatorQueue], r.expectation)
	p.requests = append(p.requests, r)
	p.settle()
	return true
}

// receive posts a receive, large enough for a message that waits for one.
func (p *oracleSide) receive() {
	o := p.o
	n := o.size()
	if r := p.far.blocked(); r != nil {
		n = max(n, r.bytes)
	}
	p.postReceive(p.split(0, n, p.limits.MaxReceiveSGE))
}

func (p *oracleSide) postReceive(parts []oraclePart) {
	o := p.o
	p.context++
	o.ops++
	post := p.ep.Receive
	if p.shared != nil {
		post = p.shared.Receive
	}
	err := post(p.context, listOf(parts))
	o.note("%s: %d receive into %v: %v", p.name, p.context, parts, err)
	if err != nil {
		if nd.StatusOf(err) != nd.NoMoreEntries || len(p.want[receiveQueue]) < p.limits.ReceiveDepth {
			o.failf("%s: receive: %v, with %d results owed of %d", p.name, err, len(p.want[receiveQueue]), p.limits.ReceiveDepth)
		}
		p.pollAll()
		return
	}
	r := &oracleReceive{&expectation{what: "receive", Result: nd.Result{EndpointContext: p.limits.Context, RequestContext: p.context, RequestType: nd.RequestReceive}},
		parts, lengthOf(parts)}
	p.want[receiveQueue] = append(p.want[receiveQueue], r.expectation)
	p.receives = append(p.receives, r)
	p.far.settle()
}

// poll takes some results.
func (p *oracleSide) poll() int {
	var results [8]nd.Result
	n := p.queues[p.o.IntN(2)].Poll(results[:1+p.o.IntN(len(results))])
	for _, r := range results[:n] {
		p.result(r)
	}
	return n
}

// pollAll takes what is there.
func (p *oracleSide) pollAll() {
	for _, q := range p.queues {
		var results [64]nd.Result
		for _, r := range results[:q.Poll(results[:])] {
			p.result(r)
		}
	}
}

// result compares a result with the expected one.
func (p *oracleSide) result(r nd.Result) {
	p.o.note("%s: result %+v", p.name, r)
	q := receiveQueue
	if r.RequestType.Initiator() {
		q = initiatorQueue
	}
	owed := p.want[q]
	for len(owed) > 0 && owed[0].silent && owed[0].Status == nd.Success && owed[0].RequestContext != r.RequestContext {
		owed = p.take(q)
	}
	if len(owed) == 0 || !owed[0].decided || owed[0].Result != r {
		p.o.failf("%s: result %+v, owed %v", p.name, r, owed[:min(len(owed), 2)])
	}
	if owed[0].silent && r.Status == nd.Success {
		p.o.failf("%s: result %+v of a request with SilentSuccess", p.name, r)
	}
	p.take(q)
}

// take strikes the oldest result off.
func (p *oracleSide) take(q queue) []*expectation {
	e := p.want[q][0]
	p.want[q] = p.want[q][1:]
	if e.done != nil {
		e.done()
	}
	return p.want[q]
}

// decidedReceives counts the receives whose messages have been sent.
func (p *oracleSide) decidedReceives() (n int) {
	for _, e := range p.want[receiveQueue] {
		if e.decided {
			n++
		}
	}
	return n
}

// burst posts some requests while the peer serves nothing, so that they wait in its ring.
func (p *oracleSide) burst() {
	p.o.pause(p.far)
	defer p.o.goOn()
	for range 2 + p.o.IntN(8) {
		p.request()
	}
}

// batch begins or ends a batch.
func (p *oracleSide) batch() {
	if p.batching {
		p.submit()
		return
	}
	p.o.note("%s: start batch", p.name)
	p.batching = true
}

// submit lets everything run, by a post that fails.
func (p *oracleSide) submit() {
	_ = p.ep.Send(0, nd.SGL{}, nd.AllowRead)
	p.batching = false
}

// marker posts a request whose result shows that those before it are done.
func (p *oracleSide) marker() {
	r := &oracleRequest{expectation: &expectation{what: "marker", Result: nd.Result{RequestType: nd.RequestRead}}, apply: func(*oracleReceive) {}}
	for end := time.Now().Add(proctest.Timeout); !p.post(r, nd.ReadFence, func(c uint64) error { return p.ep.Read(c, nd.SGL{}, 0, 0, nd.ReadFence) }); {
		if time.Now().After(end) {
			p.o.failf("%s: the queue stays full", p.name)
		}
		p.o.unblock()
	}
	for _, r := range p.reads {
		r.fenced = true
	}
}

// forget removes a Read that is done.
func (p *oracleSide) forget(r *oracleRead) {
	p.reads = slices.DeleteFunc(p.reads, func(x *oracleRead) bool { return x == r })
}
