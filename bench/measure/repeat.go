package measure

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/report"
)

// loop is one figure to be measured: the operation and its limit. Every rank of a test makes the same loop and calls
// [loop.measure].
type loop struct {
	// result has the test's name, settings, unit, what is better, and the note.
	// measure fills in the rest, Iterations and Pinned included.
	result report.Result

	// run makes n operations and returns the figure of this repeat, in the unit
	// of the result. All ranks are called at the same time with the same n. The
	// results of ranks other than 0 are ignored. The clock is read outside of the
	// loop over the operations, see [nsPerOp].
	run func(ctx context.Context, n int) (float64, error)

	// limit measures, on ranks 0 and 1 at the same time, what the figure is
	// compared with, in the unit limitUnit. It is given the raw line of the same
	// moment, 0 where there are more than two ranks. nil if there is no such thing.
	limit     func(line float64) (float64, error)
	within    bool // run itself has measured the limit, and limit returns that
	limitName string
	limitUnit string

	// sample makes n operations as run does, and on rank 0 records each of them.
	// nil if single operations have no figure.
	sample func(ctx context.Context, n int, h *histogram) error
}

const (
	defaultRepeats  = 5
	defaultDuration = 200 * time.Millisecond

	// A run that lasts for one such part of the duration is long enough to estimate how many operations fit into it. The
	// time of a shorter run may be due to chance.
	tellingPart = 4
	boldest     = 64 // the greatest growth of the number of operations from one try to the next

	longRun   = 10 * time.Millisecond
	shortRuns = 3

	sampleCap = 1 << 20 // operations of a distribution
)

// Defaults returns the options that have the same default in all tests: Repeats and Duration. The others are zero.
func Defaults() Options { return Options{Repeats: defaultRepeats, Duration: defaultDuration} }

// measure warms up, runs the repeats with the limit before and after each, then
// samples single operations. On rank 0 it returns the result, on others nil.
func (l *loop) measure(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	if err := l.warmUp(ctx, w, o); err != nil {
		return nil, l.failed("warm-up", err)
	}
	n, err := l.iterations(ctx, w, o)
	if err != nil {
		return nil, l.failed("choice of iterations", err)
	}
	res := l.result
	res.Iterations, res.Pinned = n, o.Pinned
	made, err := l.repeats(ctx, w, repeats(o), n)
	if err != nil {
		return nil, err
	}
	var h *histogram
	if l.sample != nil {
		h = new(histogram)
		if err := w.Job.Barrier(ctx); err != nil {
			return nil, l.failed("distribution", err)
		}
		if err := l.sample(ctx, min(n, sampleCap), h); err != nil {
			return nil, l.failed("distribution", err)
		}
	}
	if w.Job.Rank() != 0 {
		return nil, nil
	}
	l.conclude(&res, steadiest(made, repeats(o)), h)
	return []report.Result{res}, nil
}

func repeats(o Options) int {
	if o.Repeats > 0 {
		return o.Repeats
	}
	return defaultRepeats
}

// length is the time of a repeat.
func length(o Options) time.Duration {
	if o.Duration > 0 {
		return o.Duration
	}
	return defaultDuration
}

func (l *loop) failed(part string, err error) error {
	return fmt.Errorf("%s: %s: %w", l.result.Test, part, err)
}

// runTogether makes n operations after a barrier of all ranks.
func (l *loop) runTogether(ctx context.Context, w *World, n int) (float64, error) {
	if err := w.Job.Barrier(ctx); err != nil {
		return 0, err
	}
	return l.run(ctx, n)
}

// warmUp makes the operations of the warm-up, in ever longer runs. It ends early when they
// have taken the time of a repeat, since large transfers need fewer operations.
func (l *loop) warmUp(ctx context.Context, w *World, o Options) error {
	start := time.Now()
	for n, left := 1, o.WarmUp; left > 0; n *= 2 {
		n = min(n, left)
		if _, err := l.runTogether(ctx, w, n); err != nil {
			return err
		}
		left -= n
		decided, err := agree(ctx, w, left, time.Since(start) >= length(o))
		if err != nil || decided.enough {
			return err
		}
	}
	return nil
}

// iterations returns the operations of one repeat, the same on every rank:
// those asked for, or as many as fit into the duration. A run of no operations
// shows what comes on top of them: the barrier and the lead-in.
func (l *loop) iterations(ctx context.Context, w *World, o Options) (int, error) {
	if o.Iterations > 0 {
		return o.Iterations, nil
	}
	want := length(o)
	var onTop time.Duration
	for n := 0; ; {
		took, err := l.undisturbed(ctx, w, n)
		if err != nil {
			return 0, err
		}
		next, enough := 1, false
		if n == 0 {
			onTop = took
		} else {
			took = max(took-onTop, 1)
			enough = took >= want/tellingPart
			times := float64(want) / float64(took)
			if !enough {
				times = max(2, min(times/2, boldest))
			}
			next = max(1, int(float64(n)*times))
		}
		// Rank 0 decides: the clocks of the ranks do not agree.
		decided, err := agree(ctx, w, next, enough)
		if err != nil {
			return 0, err
		}
		if n = decided.n; decided.enough {
			return n, nil
		}
	}
}

// undisturbed returns the time of a run of n operations. Of short runs, which an
// interruption makes many times as long, it makes several and takes the least.
func (l *loop) undisturbed(ctx context.Context, w *World, n int) (time.Duration, error) {
	least := time.Duration(math.MaxInt64)
	for run := 1; ; run++ {
		start := time.Now()
		if _, err := l.runTogether(ctx, w, n); err != nil {
			return 0, err
		}
		took := time.Since(start)
		least = min(least, took)
		decided, err := agree(ctx, w, 0, took > longRun || run == shortRuns)
		if err != nil || decided.enough {
			return least, err
		}
	}
}

type decision struct {
	n      int
	enough bool
}

// agree gives every rank what rank 0 has decided.
func agree(ctx context.Context, w *World, n int, enough bool) (decision, error) {
	word := uint64(n) << 1
	if enough {
		word |= 1
	}
	all, err := w.Job.Exchange(ctx, binary.NativeEndian.AppendUint64(nil, word))
	if err != nil {
		return decision{}, err
	}
	word = binary.NativeEndian.Uint64(all[0])
	return decision{int(word >> 1), word&1 != 0}, nil
}

// conclude turns repeats into a result.
func (l *loop) conclude(res *report.Result, made []repeat, h *histogram) {
	var limits, ratios []float64
	for _, r := range made {
		res.Repeats = append(res.Repeats, r.value)
		limits, ratios = append(limits, r.limit), append(ratios, r.value/r.limit)
		if l.limit != nil {
			res.Drifts = append(res.Drifts, r.drift)
		}
		if r.line > 0 {
			res.Lines = append(res.Lines, r.line)
		}
	}
	res.Value = median.Of(res.Repeats)
	res.Low, res.High = median.Interval(res.Repeats)
	if l.limit != nil {
		res.Limit = &report.Limit{Name: l.limitName, Unit: l.limitUnit, Value: median.Of(limits), Ratio: median.Of(ratios), Ratios: ratios}
	}
	if h != nil && h.count() > 0 {
		res.Distribution = h.distribution()
	}
}
