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

// Runner measures one peer, one repeat at a time. The caller measures others
// between the repeats, so that all of them see the same minutes of a machine that
// changes.
type Runner struct {
	peer   Peer
	s      *session
	trials map[Figure]*trial
}

// trial records the attempts at one figure.
type trial struct {
	rounds int
	ways   []*way
}

// way is one of the ways in which a peer can do what a figure asks for.
type way struct {
	name string
	run  func(ctx context.Context) (sample, error) // one repeat

	repeats    []float64 // ns of one operation
	rounds     []int     // of the repeats, counted from 0
	iterations int
	failures   int
	trouble    error // the last failure
}

// mostFailures is how often a way may fail before it is given up. Each may
// take as long as the time-out.
const mostFailures = 2

// sample is what one repeat has found.
type sample struct {
	ns         float64 // of one operation
	iterations int
}

// Open prepares a peer to be measured. The calling goroutine stays on its thread
// until Close, with which the processes of the peer end, too.
func Open(ctx context.Context, p Peer, o Options) (_ *Runner, err error) {
	if pkg := p.Missing(); pkg != "" {
		return nil, fmt.Errorf("peers: %s is not installed here: apt-get install %s", p.Title, pkg)
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	r := &Runner{peer: p, trials: map[Figure]*trial{}}
	defer func() {
		if err != nil {
			r.Close()
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

// Close removes the files of the peer and ends what still runs of it.
func (r *Runner) Close() {
	if r.s != nil {
		r.s.close()
	}
	runtime.UnlockOSThread()
}

// Has reports whether the peer has what a figure asks for.
func (r *Runner) Has(f Figure) bool { return len(r.trial(f).ways) > 0 }

func (r *Runner) trial(f Figure) *trial {
	t := r.trials[f]
	if t == nil {
		t = &trial{ways: r.peer.ways(r.s, f)}
		r.trials[f] = t
	}
	return t
}

// Repeat makes one repeat of a figure in each of the ways that the peer has for
// it. A way that fails is tried once more, and its error is then in Result. A program that
// takes longer than the time-out is ended.
func (r *Runner) Repeat(ctx context.Context, f Figure) {
	t := r.trial(f)
	for _, w := range t.ways {
		w.repeat(ctx, t.rounds)
	}
	t.rounds++
}

func (w *way) repeat(ctx context.Context, round int) {
	for w.failures < mostFailures && ctx.Err() == nil {
		one, err := w.run(ctx)
		if err == nil {
			w.repeats, w.rounds, w.iterations = append(w.repeats, one.ns), append(w.rounds, round), one.iterations
			return
		}
		w.failures++
		w.trouble = fmt.Errorf("%s: %w", w.name, err)
	}
}

// Around is the limit of the machine as measured before the first round, between
// the rounds, and after the last one.
type Around struct {
	Name, Unit string
	Values     []float64
}

// Result returns the figure of the best way, nil if none has brought a repeat,
// and an error for each way that has not brought one. It is compared with the
// limit around each of its repeats, nil if there is none.
func (r *Runner) Result(f Figure, limit *Around) (*report.Result, error) {
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
		one := r.result(f, w, limit)
		if w.trouble != nil {
			one.Note += fmt.Sprintf("; %d of %d repeats, one try ended with: %v", len(w.repeats), t.rounds, w.trouble)
		}
		if best == nil || (one.Better == "less") == (one.Value < best.Value) {
			best = one
		}
	}
	return best, failed
}

func (r *Runner) result(f Figure, w *way, limit *Around) *report.Result {
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
	l := &report.Limit{Name: limit.Name, Unit: limit.Unit}
	var values []float64
	for i, round := range w.rounds {
		v := math.Sqrt(limit.Values[round] * limit.Values[round+1])
		values, l.Ratios = append(values, v), append(l.Ratios, one.Repeats[i]/v)
	}
	l.Value, l.Ratio = median.Of(values), median.Of(l.Ratios)
	one.Limit = l
	return one
}
