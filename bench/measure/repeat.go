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
	// result contains the name of the test, the settings, the unit, Better and the note. measure fills in the rest, including
	// Iterations and Pinned.
	result report.Result

	// run makes n operations and returns the figure of this repeat, in the unit of the result. All ranks call it at the same
	// time with the same n. Only the figure of rank 0 counts. run reads the clock outside of the loop over the operations.
	run func(ctx context.Context, n int) (float64, error)

	// limit measures the limit of the figure in limitUnit. Ranks 0 and 1 call it at the same time. line is the raw line of
	// that moment. It is 0 if there are more than two ranks. limit is nil if the figure has none.
	limit     func(line float64) (float64, error)
	within    bool // run itself measures the limit, and limit returns it
	limitName string
	limitUnit string

	width func() (float64, error) // of rank 0's core; nil if the figure does not depend on it

	// sample makes n operations as run does, and records each of them on rank 0. It is nil if single operations have no
	// figure.
	sample func(ctx context.Context, n int, h *histogram) error
}

const (
	defaultRepeats  = 5
	defaultDuration = 200 * time.Millisecond

	// A run that lasts for one such part of the duration is long enough to estimate how many operations fit into it. The
	// time of a shorter run may be due to chance.
	estimatePart = 4
	maxGrowth    = 64 // the greatest growth of the number of operations from one try to the next

	longRun   = 10 * time.Millisecond
	shortRuns = 3

	maxSamples = 1 << 20 // operations of a distribution
)

// Defaults returns the options whose default is the same in all tests: Repeats and Duration. The others are zero.
func Defaults() Options { return Options{Repeats: defaultRepeats, Duration: defaultDuration} }

// measure warms up, makes the repeats with the limit before and after each, and then samples single operations. It
// returns the result on rank 0, and nil on the others.
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
		if err := w.ranks().Barrier(ctx); err != nil {
			return nil, l.failed("distribution", err)
		}
		if err := l.sample(ctx, min(n, maxSamples), h); err != nil {
			return nil, l.failed("distribution", err)
		}
	}
	if w.ranks().Rank() != 0 {
		return nil, nil
	}
	l.fillResult(&res, steadiest(made, repeats(o)), h)
	return []report.Result{res}, nil
}

func repeats(o Options) int {
	if o.Repeats > 0 {
		return o.Repeats
	}
	return defaultRepeats
}

// length returns the duration of a repeat.
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
	if err := w.ranks().Barrier(ctx); err != nil {
		return 0, err
	}
	return l.run(ctx, n)
}

// warmUp makes the operations of the warm-up, in ever longer runs. It ends early after the duration of a repeat,
// because large transfers need fewer operations.
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

// iterations returns the operations of one repeat, the same on every rank: the requested number, or as many as fit into
// the duration. A run of no operations measures the barrier and the lead-in.
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
			enough = took >= want/estimatePart
			times := float64(want) / float64(took)
			if !enough {
				times = max(2, min(times/2, maxGrowth))
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

// undisturbed returns the time of a run of n operations. An interruption makes a short run many times as long, so
// undisturbed makes several short runs and returns the least time.
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

// agree gives the decision of rank 0 to every rank.
func agree(ctx context.Context, w *World, n int, enough bool) (decision, error) {
	word := uint64(n) << 1
	if enough {
		word |= 1
	}
	all, err := w.ranks().Exchange(ctx, binary.NativeEndian.AppendUint64(nil, word))
	if err != nil {
		return decision{}, err
	}
	word = binary.NativeEndian.Uint64(all[0])
	return decision{int(word >> 1), word&1 != 0}, nil
}

// fillResult computes a result from its repeats.
func (l *loop) fillResult(res *report.Result, made []repeat, h *histogram) {
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
		if r.width > 0 {
			res.Widths = append(res.Widths, r.width)
		}
	}
	res.Value = median.Of(res.Repeats)
	res.Low, res.High = median.Interval(res.Repeats)
	if l.limit != nil {
		res.Limit = &report.Limit{Name: l.limitName, Unit: l.limitUnit, Value: median.Of(limits), Ratio: median.Of(ratios), Ratios: ratios}
	}
	if h != nil && h.count() > 0 {
		res.Distribution = h.distribution().Known()
	}
}
