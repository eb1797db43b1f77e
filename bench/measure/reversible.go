package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd/bench/report"
)

// reversible is an operation on an object and its reversal, such as registering and deregistering. Rank 0 measures each
// of the two, and the others wait.
type reversible struct {
	objects  int // all are done before the first is undone
	do, undo func(i int) error
}

// time does and undoes n times. It reads the clock once for all objects.
func (t reversible) time(n int) (doing, undoing time.Duration, err error) {
	for n > 0 {
		now := min(n, t.objects)
		n -= now
		start := time.Now()
		if err := count(now, t.do); err != nil {
			return 0, 0, err
		}
		middle := time.Now()
		if err := count(now, t.undo); err != nil {
			return 0, 0, err
		}
		doing += middle.Sub(start)
		undoing += time.Since(middle)
	}
	return doing, undoing, nil
}

// count calls f for 0 to n-1, until it fails.
func count(n int, f func(i int) error) error {
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// sample does and undoes n times as time does, and records one of the two.
func (t reversible) sample(n int, h *histogram, undoing bool) error {
	clock := newClock()
	recorded := func(f func(i int) error) func(i int) error {
		return func(i int) error {
			start := clock.now()
			if err := f(i); err != nil {
				return err
			}
			h.record(clock.ns(start, clock.now()))
			return nil
		}
	}
	if undoing {
		t.undo = recorded(t.undo)
	} else {
		t.do = recorded(t.do)
	}
	_, _, err := t.time(n)
	return err
}

// latency measures how long each of the two takes.
func (t reversible) latency(ctx context.Context, w *World, o Options, do, undo report.Result) ([]report.Result, error) {
	return t.measure(ctx, w, o, do, undo, nsPerOp, true)
}

// rate measures how often each of the two is possible per second.
func (t reversible) rate(ctx context.Context, w *World, o Options, do, undo report.Result) ([]report.Result, error) {
	for _, r := range []*report.Result{&do, &undo} {
		r.Unit, r.Better, r.Depth = "ops/s", "more", t.objects
	}
	return t.measure(ctx, w, o, do, undo, perSecond, false)
}

func (t reversible) measure(ctx context.Context, w *World, o Options, do, undo report.Result,
	figure func(time.Duration, int) float64, sampled bool) (found []report.Result, err error) {
	for i, res := range []report.Result{do, undo} {
		l := &loop{result: res}
		l.run = func(_ context.Context, n int) (float64, error) {
			if w.Job.Rank() != 0 {
				return 0, nil
			}
			doing, undoing, err := t.time(n)
			return figure([]time.Duration{doing, undoing}[i], n), err
		}
		if sampled {
			l.sample = func(_ context.Context, n int, h *histogram) error {
				if w.Job.Rank() != 0 {
					return nil
				}
				return t.sample(n, h, i == 1)
			}
		}
		r, err := l.measure(ctx, w, o)
		if err != nil {
			return nil, err
		}
		found = append(found, r...)
	}
	return found, nil
}
