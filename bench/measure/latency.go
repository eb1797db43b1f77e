package measure

import (
	"context"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// pingPong is a latency test. A step of the active rank starts an exchange and waits for its end. The passive rank
// answers.
type pingPong struct {
	name        string
	parts       float64 // figures in a step: 2 if the figure is half a round trip
	note        string
	config      linkConfig
	kind        nd.RequestType
	step        func(l *link, n int) error // n steps of the active rank
	answer      func(l *link, n int) error // by the passive rank; nil if it only calls serve
	against     func(loop *loop, w *World, size int)
	eventAdvice string // what to do instead in event mode; "" if the test supports it
	privateOnly bool   // private memory whatever the options are
}

var writeLat = pingPong{
	name: "write_lat", parts: 2, kind: nd.RequestWrite, config: linkConfig{depth: 1},
	step: (*link).pingWrites, answer: (*link).pongWrites, against: halfTrip,
	eventAdvice: "use send_lat or write_completion: a Write causes no event at the target",
}

var sendLat = pingPong{
	name: "send_lat", parts: 2, kind: nd.RequestSend, config: linkConfig{depth: 2, receives: 64, spare: 1},
	step: (*link).pingSends, answer: (*link).pongSends, against: halfTrip,
}

var readLat = pingPong{
	name: "read_lat", parts: 1, kind: nd.RequestRead, config: linkConfig{depth: 1},
	step: (*link).reads, against: halfTrip, note: "from post to completion",
}

var atomicLat = pingPong{
	name: "atomic_lat", parts: 2, kind: nd.RequestFetchAndAdd, config: linkConfig{depth: 1},
	step: (*link).pingAdds, answer: (*link).pongAdds, against: halfTrip,
	eventAdvice: "use send_lat: an atomic causes no event at the target",
}

var writeCompletion = pingPong{
	name: "write_completion", parts: 1, kind: nd.RequestWrite, config: linkConfig{depth: 1}, privateOnly: true,
	step: (*link).writes, against: func(loop *loop, _ *World, _ int) { loop.againstRawRoundTrip() },
	note: "from post to completion, the target moves the bytes",
}

// halfTrip compares small transfers with a cache line, and large ones with a copy.
func halfTrip(loop *loop, w *World, size int) {
	const large = 8 << 10
	if size < large {
		loop.againstRawLine()
	} else {
		loop.againstMemcpy(w, size)
	}
}

// check returns an error if the test does not support the options.
func (t pingPong) check(o Options) error {
	if o.Events && t.eventAdvice != "" {
		return &nd.OpError{Op: t.name, Object: "event mode", Status: nd.NotSupported, Detail: "the test has no completion to wait for", Next: t.eventAdvice}
	}
	if o.Bidirectional {
		return notBidirectional(t.name)
	}
	return nil
}

func (t pingPong) run(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	if err := t.check(o); err != nil {
		return nil, err
	}
	o.Private = o.Private || t.privateOnly
	for _, size := range sizes(o, 8) {
		got, err := t.runSize(ctx, w, o, size)
		if err != nil {
			return nil, err
		}
		found = append(found, got...)
	}
	return found, nil
}

func (t pingPong) runSize(ctx context.Context, w *World, o Options, size int) (_ []report.Result, err error) {
	c := t.config
	c.size = size
	res := newResult(t.name, "ns", "less", t.note, o)
	p, err := w.open(ctx, o, t.kind, c, &res, steps{t.repeat, t.sample, func(ns float64, _ int) float64 { return ns / t.parts }})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			err = p.close()
		}
	}()
	res.Settings = p.settings
	if t.privateOnly {
		res.Executor = "target"
	}
	loop := loop{
		result: res,
		run: func(ctx context.Context, n int) (float64, error) {
			took, err := p.repeat(n)
			return nsPerOp(took, n) / t.parts, err
		},
		sample: func(ctx context.Context, n int, h *histogram) error { return p.sample(n, h) },
	}
	if w.wire != nil {
		loop.againstTrip(w.wire, t.kind, size)
	} else {
		t.against(&loop, w, size)
	}
	return loop.measure(ctx, w, o)
}

// sample is repeat with a reading of the clock for each step.
func (t pingPong) sample(l *link, n int, h *histogram) error {
	if !l.active() {
		return t.respond(l, l.leadIn()+n)
	}
	clock := newClock()
	if err := t.step(l, l.leadIn()); err != nil {
		return err
	}
	for range n {
		start := clock.now()
		if err := t.step(l, 1); err != nil {
			return err
		}
		h.record(clock.ns(start, clock.now()) / t.parts)
	}
	return l.signal()
}

func (t pingPong) respond(l *link, n int) error {
	if t.answer == nil {
		return l.serve()
	}
	return t.answer(l, n)
}

func notBidirectional(test string) error {
	return &nd.OpError{Op: test, Object: "both ways at once", Status: nd.NotSupported, Detail: "a latency test has one operation outstanding",
		Next: "omit the option, or use a bandwidth test"}
}
