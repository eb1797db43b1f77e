package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// stream is a test of transfers that do not wait for each other: as many are outstanding as the depth allows.
type stream struct {
	name      string
	kind      nd.RequestType
	unit      string
	better    string
	note      string
	size      []int // by default
	depths    []int // one figure each; nil means the default depth of the size
	notTwoWay bool  // the test does not support both directions at once
	single    bool  // single operations have a figure in the same unit
	figure    func(took time.Duration, n, size int) float64
	against   func(loop *loop, w *World, size int)
}

func bandwidth(name string, kind nd.RequestType) stream {
	return stream{
		name: name, kind: kind, unit: "MB/s", better: "more", figure: mbPerSecond, single: true,
		size:    []int{64 << 10, 1 << 20},
		against: (*loop).againstMemcpyBandwidth,
	}
}

var msgRate = stream{
	name: "msg_rate", kind: nd.RequestSend, unit: "msg/s", better: "more", size: []int{8}, depths: []int{rateDepth},
	figure:  func(took time.Duration, n, _ int) float64 { return perSecond(took, n) },
	against: func(loop *loop, _ *World, _ int) { loop.againstRawLineRate() },
}

var posted = stream{
	name: "posted", kind: nd.RequestWrite, unit: "ns", better: "less", size: []int{8}, depths: []int{1, 0}, notTwoWay: true, single: true,
	figure:  func(took time.Duration, n, _ int) float64 { return nsPerOp(took, n) },
	against: func(loop *loop, w *World, _ int) { loop.againstExchange(w) },
	note:    "posted, completed and polled, back to back",
}

const (
	rateDepth  = 128
	largeDepth = 16
	smallDepth = 64 // of transfers below smallSize, which end sooner
	smallSize  = 4 << 10
)

// check returns an error if the test does not support the options.
func (t stream) check(o Options) error {
	if o.Bidirectional && t.notTwoWay {
		return notBidirectional(t.name)
	}
	return nil
}

func (t stream) run(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	if err := t.check(o); err != nil {
		return nil, err
	}
	for _, size := range sizes(o, t.size...) {
		for _, depth := range t.depthsFor(o, size) {
			got, err := t.runOne(ctx, w, o, size, depth)
			if err != nil {
				return nil, err
			}
			found = append(found, got...)
		}
	}
	return found, nil
}

// depthsFor returns the depths to measure. A 0 in t.depths stands for the depth of the options, or the default of the
// size.
func (t stream) depthsFor(o Options, size int) []int {
	depth := o.Depth
	if depth == 0 {
		depth = largeDepth
		if size < smallSize && len(t.depths) == 0 {
			depth = smallDepth
		}
	}
	if t.depths == nil || o.Depth != 0 && len(t.depths) == 1 {
		return []int{depth}
	}
	var list []int
	for _, d := range t.depths {
		if d == 0 {
			d = depth
		}
		if len(list) == 0 || list[len(list)-1] != d {
			list = append(list, d)
		}
	}
	return list
}

func (t stream) runOne(ctx context.Context, w *World, o Options, size, depth int) (_ []report.Result, err error) {
	c := linkConfig{size: size, depth: depth}
	if t.kind == nd.RequestSend {
		c.receives = 2 * depth // the sender never waits for a Receive to be posted
		c.repost = true
	}
	c.sharesSink = t.kind == nd.RequestRead && depth > 1
	res := newResult(t.name, t.unit, t.better, t.note, o)
	p, err := w.open(ctx, o, t.kind, c, &res, steps{t.repeat, t.sample, t.one})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			err = p.close()
		}
	}()
	res.Settings = p.settings
	res.Depth = depth
	loop := loop{
		result: res,
		run: func(ctx context.Context, n int) (float64, error) {
			took, err := p.repeat(n)
			if err != nil || !o.Bidirectional {
				return t.figure(took, n, size), err
			}
			all, err := gather(ctx, w, t.figure(took, n, size))
			return sum(all), err
		},
	}
	if t.single && !o.Bidirectional {
		loop.sample = func(ctx context.Context, n int, h *histogram) error { return p.sample(n, h) }
	}
	if w.wire != nil {
		loop.againstStream(w.wire, size, t.one)
	} else {
		t.against(&loop, w, size)
	}
	return loop.measure(ctx, w, o)
}

// repeat makes n transfers, in each direction if the options ask for both, and returns how long this rank's part took.
func (t stream) repeat(l *link, n int) (time.Duration, error) {
	if err := t.part(l, l.leadIn()); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := t.part(l, n); err != nil {
		return 0, err
	}
	took := max(time.Since(start), 1)
	return took, t.finish(l)
}

func sum(figures []float64) (all float64) {
	for _, f := range figures {
		all += f
	}
	return all
}

// one returns the figure of a single transfer.
func (t stream) one(ns float64, size int) float64 {
	return t.figure(max(time.Duration(ns), 1), 1, size)
}

// part makes this rank's part of n transfers.
func (t stream) part(l *link, n int) error {
	out, in := n, n
	if !l.active() && !l.o.Bidirectional {
		out = 0
	}
	if t.kind != nd.RequestSend || l.active() && !l.o.Bidirectional {
		in = 0
	}
	return l.flow(t.kind, out, in)
}

// finish ends a repeat: the active rank signals the end, and the other polls until then.
func (t stream) finish(l *link) error {
	if l.active() || l.o.Bidirectional {
		if err := l.signal(); err != nil {
			return err
		}
	}
	if !l.active() || l.o.Bidirectional {
		return l.serve()
	}
	return nil
}

// sample makes single transfers, one after the other.
func (t stream) sample(l *link, n int, h *histogram) error {
	if !l.active() {
		if err := t.part(l, l.leadIn()+n); err != nil {
			return err
		}
		return l.serve()
	}
	clock := newClock()
	if err := t.part(l, l.leadIn()); err != nil {
		return err
	}
	for range n {
		start := clock.now()
		if err := l.flow(t.kind, 1, 0); err != nil {
			return err
		}
		h.record(t.one(clock.ns(start, clock.now()), l.size))
	}
	return l.signal()
}
