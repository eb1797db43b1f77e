package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
)

// link is the connection of ranks 0 and 1: queue pairs that share one completion queue, and memory in which each queue
// pair has a part.
type link struct {
	ctx context.Context
	w   *World
	o   Options
	linkConfig

	mr    nd.MemoryRegion
	mem   []byte
	far   nd.WindowDescriptor // the other rank's mem
	cq    nd.CompletionQueue
	pairs []pair
	next  int // of pairs, in turn

	results  []nd.Result
	flags    nd.OpFlags // of Sends and Writes
	done     int        // completions taken, without receives
	received int        // receives taken
	expected int        // receives to wait for
	posted   int        // Sends of a ping-pong
	rests    int        // loads in this wait, since it began or the last yield in it, see rest

	flag     mark // set by the other rank, see signal
	flagOut  nd.SGE
	flagMark mark
	signaled uint64
	awaited  uint64
}

// pair is a queue pair with its memory: a place where the other rank's data land, and a place that outgoing data come
// from and Reads go to.
type pair struct {
	ep    nd.Endpoint
	land  nd.SGE
	out   nd.SGE
	to    uint64 // the landing place of the other rank's pair
	token nd.Token

	landed, stamp mark
	seq           uint64
}

// linkConfig is what a test needs of its link.
type linkConfig struct {
	size       int
	depth      int  // initiator requests outstanding, of all queue pairs together
	receives   int  // receives posted from the beginning, per queue pair
	spare      int  // room for further receives, per queue pair
	repost     bool // poll posts a receive for each one taken
	sharesSink bool // several Reads are in flight at once
	slots      int  // places to land, and to send from, per queue pair; 0 = 1
}

const (
	access     = nd.AllowLocalWrite | nd.AllowRemoteWrite | nd.AllowRemoteRead | nd.AllowRemoteAtomic
	flagRoom   = 128
	maxResults = 32 // results of one poll
)

// openLink connects ranks 0 and 1. Both call it with the same values.
func openLink(ctx context.Context, w *World, o Options, c linkConfig) (*link, error) {
	o.Pairs = max(o.Pairs, 1)
	c.slots = max(c.slots, 1)
	c.fit(o.Pairs)
	l := &link{ctx: ctx, w: w, o: o, linkConfig: c, results: make([]nd.Result, maxResults)}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// maxQueue is the largest depth of a completion queue. The helpers in C take it, too.
const maxQueue = 64 << 10

// MaxDepth is the largest number of requests of all queue pairs of a link, as each queue pair has a queue for them.
const MaxDepth = 4095

// queueDepth returns the depth of the completion queue of all queue pairs. Together they have at most depth requests outstanding, and
// one for the flag of each.
func (c *linkConfig) queueDepth(pairs int) int {
	return min(pairs*(c.depth+1+c.receives+c.spare), maxQueue)
}

// fit reduces the receives of each queue pair until the completion queue has room for all results that may wait in it.
func (c *linkConfig) fit(pairs int) {
	c.receives = min(c.receives, (maxQueue-c.depth)/pairs-1-c.spare)
}

func (l *link) open() (err error) {
	ad := l.w.Job.Adapter()
	size := flagRoom + 2*l.o.Pairs*l.slots*l.stride()
	if l.o.Private {
		l.mr, err = ad.Register(l.ctx, aligned(size), access)
	} else {
		l.mr, err = ad.Allocate(l.ctx, size, access)
	}
	if err != nil {
		return err
	}
	l.mem = l.mr.Bytes()
	l.fillPlaces()
	if l.cq, err = ad.CreateCompletionQueue(l.ctx, l.queueDepth(l.o.Pairs)); err != nil {
		return err
	}
	all, err := l.w.Job.ExchangeWindows(l.ctx, nd.WindowDescriptor{Address: l.mr.Address(), Length: uint64(size), Token: l.mr.RemoteToken()})
	if err != nil {
		return err
	}
	l.far = all[l.peer()]
	l.flag = newMark(l.mem[:8])
	l.flagOut = nd.SGE{Buffer: l.mem[flagRoom/2:][:8], Token: l.mr.LocalToken()}
	l.flagMark = newMark(l.flagOut.Buffer)
	for i := range l.o.Pairs {
		if err := l.addPair(i); err != nil {
			return err
		}
	}
	return l.w.Job.Barrier(l.ctx)
}

// fillPlaces fills all places with data. It leaves out their ends, whose marks begin at 0.
func (l *link) fillPlaces() {
	const marks = 16
	clear(l.mem)
	for i := range 2 * l.o.Pairs {
		for slot := range l.slots {
			pattern(l.mem[l.place(i, slot):][:max(l.size-marks, 0)])
		}
	}
}

func (l *link) addPair(i int) error {
	cfg := nd.EndpointConfig{ReceiveCQ: l.cq, InitiatorCQ: l.cq, Context: uint64(i), ReceiveDepth: max(l.receives+l.spare, 1), InitiatorDepth: l.depth + 1}
	if l.o.Inline {
		cfg.InlineSize, l.flags = l.size, nd.Inline
	}
	ep, err := l.w.Job.Connect(l.ctx, l.peer(), cfg)
	if err != nil {
		return err
	}
	land, out := l.place(i, 0), l.place(i+l.o.Pairs, 0)
	p := pair{
		ep:    ep,
		land:  nd.SGE{Buffer: l.mem[land:][:l.size], Token: l.mr.LocalToken()},
		out:   nd.SGE{Buffer: l.mem[out:][:l.size], Token: l.mr.LocalToken()},
		to:    l.far.Address + uint64(land), // both ranks have the same layout
		token: l.far.Token,
	}
	p.landed, p.stamp = newMark(p.land.Buffer), newMark(p.out.Buffer)
	l.pairs = append(l.pairs, p)
	if l.receives > 1 || l.sharesSink {
		nd.Expect(ep, "the data are not used, so all requests store into one place", "N202")
	}
	for range l.receives {
		if err := ep.Receive(0, nd.One(p.land)); err != nil {
			return err
		}
	}
	return nil
}

// stride returns the distance between two places. It is two lines more than the data. They separate neighbours, and
// give large places different positions in a cache.
func (l *link) stride() int { return (l.size+63)&^63 + 128 }

// place returns the offset of a place in mem. The landing places come first.
func (l *link) place(half, slot int) int { return flagRoom + (half*l.slots+slot)*l.stride() }

func (l *link) peer() int { return 1 - l.w.Job.Rank() }

func (l *link) active() bool { return l.w.Job.Rank() == 0 }

// nextPair returns the next queue pair.
func (l *link) nextPair() *pair {
	p := &l.pairs[l.next]
	if l.next++; l.next == len(l.pairs) {
		l.next = 0
	}
	return p
}

// A rank that is not pinned yields its core after unpinnedLoads loads of a word that has not changed, or after as many empty polls as take
// that time: more than a round trip of two ranks with a core each.
const (
	unpinnedLoads = 4096
	loadsOfPoll   = 64
)

// rest is called after an empty poll, or after a word has not changed, which costs a number of loads. It yields the core to others that may
// need it: between hosts to the relay, each time, and now and then to the other rank if the ranks are not pinned, because they may share a
// core. A wait that ends sets rests to 0, so a rank never yields in a short one.
func (l *link) rest(loads int) {
	if l.w.wire != nil {
		linux.Yield()
	} else if !l.o.Pinned {
		if l.rests += loads; l.rests >= unpinnedLoads {
			l.rests = 0
			linux.Yield()
		}
	}
}

// poll takes completions, if there are any. In event mode it waits for one.
func (l *link) poll() error {
	n, err := 0, error(nil)
	if l.o.Events {
		n, err = l.cq.Wait(l.ctx, l.results)
	} else {
		n = l.cq.Poll(l.results)
		if n == 0 {
			l.rest(loadsOfPoll)
		}
	}
	if n > 0 {
		l.rests = 0
	}
	for i := range n {
		r := &l.results[i]
		if r.Status != nd.Success {
			return l.failure(r)
		}
		if r.RequestType != nd.RequestReceive {
			l.done++
			continue
		}
		l.received++
		if l.repost {
			p := &l.pairs[r.EndpointContext]
			if err := p.ep.Receive(0, nd.One(p.land)); err != nil {
				return err
			}
		}
	}
	return err
}

// complete polls until count initiator requests have completed, counted since openLink.
func (l *link) complete(count int) error {
	for l.done < count {
		if err := l.poll(); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) failure(r *nd.Result) error {
	return fmt.Errorf("queue pair %d: %w", r.EndpointContext, nd.Explain(l.pairs[r.EndpointContext].ep, *r))
}

// mustPoll reports whether the passive rank has to poll because it moves the bytes. In event mode its provider moves
// them without polls.
func (o *Options) mustPoll() bool { return (o.Private || o.Executor == "target") && !o.Events }

// signal tells the other rank that a repeat is over; see serve.
func (l *link) signal() error {
	if !l.o.mustPoll() {
		return nil
	}
	l.signaled++
	p := &l.pairs[0]
	l.flagMark.put(l.signaled)
	if err := p.ep.Write(0, nd.One(l.flagOut), l.far.Address, l.far.Token, 0); err != nil {
		return err
	}
	return l.complete(l.done + 1)
}

// serve polls until the other rank signals. If the other rank does not depend on polls, serve returns at once, and the
// rank waits in a barrier.
func (l *link) serve() error {
	if !l.o.mustPoll() {
		return nil
	}
	l.awaited++
	for !l.flag.shows(l.awaited) {
		if err := l.poll(); err != nil {
			return err
		}
	}
	l.rests = 0
	return nil
}

// Close closes the connections after both ranks have called it.
func (l *link) Close() error { return errors.Join(l.w.Job.Barrier(l.ctx), l.release()) }

func (l *link) release() error {
	var errs []error
	for i := range l.pairs {
		errs = append(errs, l.pairs[i].ep.Close())
	}
	if l.cq != nil {
		errs = append(errs, l.cq.Close())
	}
	if l.mr != nil {
		errs = append(errs, l.mr.Deregister(l.ctx), l.mr.Close(l.ctx))
	}
	return errors.Join(errs...)
}

// settings returns the settings for a report.
func (o *Options) settings(size int) report.Settings {
	s := report.Settings{Size: size, Pairs: o.Pairs, Ranks: 2, Mode: "polling", Executor: o.Executor, Memory: "arena", Bidirectional: o.Bidirectional}
	if s.Executor == "" {
		s.Executor = "auto"
	}
	if o.Events {
		s.Mode = "event"
	}
	if o.Private {
		s.Memory = "private"
	}
	if o.Hosts > 1 {
		s.Hosts = o.Hosts
	}
	return s
}
