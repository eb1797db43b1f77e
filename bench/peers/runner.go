package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/report"
)

// runner measures one peer, one repeat at a time.
type runner struct {
	peer   Peer
	s      *session
	trials map[Figure]*trial
}

// trial records the attempts at one figure.
type trial struct {
	rounds int
	ways   []*way
}

// way is one of the ways in which a peer can measure a figure.
type way struct {
	name string
	run  func(ctx context.Context) (sample, error) // one repeat

	repeats    []float64 // ns of one operation
	rounds     []int     // of the repeats, counted from 0
	iterations int
	failures   int
	trouble    error // the last failure
}

// maxFailures is how often a way may fail before Run gives it up. Each failure may take as long as the time-out.
const maxFailures = 2

// sample is the result of one repeat.
type sample struct {
	ns         float64 // of one operation
	iterations int
}

// newRunner prepares a peer to be measured. It locks the calling goroutine to its thread until close, which also ends the
// processes of the peer. o has no defaults left.
func newRunner(ctx context.Context, p Peer, o Options) (_ *runner, err error) {
	runtime.LockOSThread()
	r := &runner{peer: p, trials: map[Figure]*trial{}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.s, err = open(o); err != nil {
		return nil, err
	}
	if p.compiler.program != "" {
		if err := r.s.compile(ctx, p.compiler.program); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// close ends the processes of the peer and removes its files.
func (r *runner) close() {
	if r.s != nil {
		r.s.close()
	}
	runtime.UnlockOSThread()
}

// has reports whether the peer can measure a figure.
func (r *runner) has(f Figure) bool { return len(r.trial(f).ways) > 0 }

func (r *runner) trial(f Figure) *trial {
	t := r.trials[f]
	if t == nil {
		t = &trial{ways: r.peer.ways(r.s, f)}
		r.trials[f] = t
	}
	return t
}

// repeat makes one repeat of a figure in each way that the peer has for it. If a way fails, repeat tries it once more, and
// result reports the error. A program that takes longer than the time-out is killed.
func (r *runner) repeat(ctx context.Context, f Figure) {
	t := r.trial(f)
	for _, w := range t.ways {
		w.repeat(ctx, t.rounds)
	}
	t.rounds++
}

func (w *way) repeat(ctx context.Context, round int) {
	for w.failures < maxFailures && ctx.Err() == nil {
		one, err := w.run(ctx)
		if err == nil {
			w.repeats, w.rounds, w.iterations = append(w.repeats, one.ns), append(w.rounds, round), one.iterations
			return
		}
		w.failures++
		w.trouble = fmt.Errorf("%s: %w", w.name, err)
	}
}

// result returns the figure of the best way, nil if no way has a repeat, and an error for each way without one. It compares
// each repeat with the limit before and after it, unless limit is nil.
func (r *runner) result(f Figure, limit *limitByRound) (*report.Result, error) {
	var best *report.Result
	var failed error
	t := r.trial(f)
	for _, w := range t.ways {
		if len(w.repeats) == 0 {
			if w.trouble != nil {
				failed = errors.Join(failed, fmt.Errorf("peers: %s: %s: %w", r.peer.Title, f, w.trouble))
			}
			continue
		}
		one := r.resultOf(f, w, limit)
		if w.trouble != nil {
			one.Note += fmt.Sprintf("; %d of %d repeats, one try ended with: %v", len(w.repeats), t.rounds, w.trouble)
		}
		if best == nil || (one.Better == "less") == (one.Value < best.Value) {
			best = one
		}
	}
	return best, failed
}

func (r *runner) resultOf(f Figure, w *way, limit *limitByRound) *report.Result {
	one := &report.Result{
		Test: f.Test, Provider: r.peer.Name, Note: w.name,
		Settings: report.Settings{Size: f.Size, Iterations: w.iterations, Ranks: f.Ranks, Mode: "polling", Pinned: r.s.o.Pinned},
	}
	one.Unit, one.Better = f.unit()
	for _, ns := range w.repeats {
		one.Repeats = append(one.Repeats, f.in(ns))
	}
	one.Value = median.Of(one.Repeats)
	one.Low, one.High = median.Interval(one.Repeats)
	if limit == nil {
		return one
	}
	l := &report.Limit{Name: limit.name, Unit: limit.unit}
	var values []float64
	for i, round := range w.rounds {
		v := math.Sqrt(limit.values[round] * limit.values[round+1])
		values, l.Ratios = append(values, v), append(l.Ratios, one.Repeats[i]/v)
	}
	l.Value, l.Ratio = median.Of(values), median.Of(l.Ratios)
	one.Limit = l
	return one
}
