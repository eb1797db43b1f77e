package measure

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/softnd/softnd/bench/report"
)

// Loop is one figure to be measured: what is repeated, and what it is compared
// with. Every rank of a test makes the same Loop and calls [Loop.Measure].
type Loop struct {
	// Result has the test's name, settings, unit, what is better, and the note.
	// Measure fills in the rest, Iterations and Pinned included.
	Result report.Result

	// Run makes n operations and returns the figure of this repeat, in the unit
	// of the result. All ranks are called at the same time with the same n; what
	// ranks other than 0 return does not count. The clock is read outside of the
	// loop over the operations, see [NsPerOp] and its like.
	Run func(ctx context.Context, n int) (float64, error)

	// Limit measures, on ranks 0 and 1 at the same time, what the figure is
	// compared with, in the unit LimitUnit. nil if there is no such thing.
	Limit     func() (float64, error)
	LimitName string
	LimitUnit string

	// Sample makes n operations as Run does, and on rank 0 records each of them.
	// nil if single operations have no figure.
	Sample func(ctx context.Context, n int, h *Histogram) error
}

// Defaults of [Options] that all tests share.
const (
	DefaultRepeats  = 5
	DefaultDuration = 200 * time.Millisecond

	// A run that lasts for one such part of the duration tells how many operations
	// fit into it. A shorter one may have lasted that long by accident.
	tellingPart = 4
	boldest     = 64 // times more operations than before are tried next

	sampleCap = 1 << 20 // operations of a distribution
)

// Measure warms up, runs the repeats with the limit next to each, then samples
// single operations. On rank 0 it returns the result, on others nil.
func (l *Loop) Measure(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	if o.WarmUp > 0 {
		if _, err := l.run(ctx, w, o.WarmUp); err != nil {
			return nil, l.failed("warm-up", err)
		}
	}
	n, err := l.iterations(ctx, w, o)
	if err != nil {
		return nil, l.failed("choice of iterations", err)
	}
	res := l.Result
	res.Iterations, res.Pinned = n, o.Pinned
	var limits []float64
	for range repeats(o) {
		v, err := l.run(ctx, w, n)
		if err != nil {
			return nil, l.failed("repeat", err)
		}
		res.Repeats = append(res.Repeats, v)
		if l.Limit != nil && w.Job.Rank() <= 1 {
			v, err := l.Limit()
			if err != nil {
				return nil, l.failed("limit of the machine", err)
			}
			limits = append(limits, v)
		}
	}
	var h *Histogram
	if l.Sample != nil {
		h = new(Histogram)
		if err := w.Job.Barrier(ctx); err != nil {
			return nil, l.failed("distribution", err)
		}
		if err := l.Sample(ctx, min(n, sampleCap), h); err != nil {
			return nil, l.failed("distribution", err)
		}
	}
	if w.Job.Rank() != 0 {
		return nil, nil
	}
	l.conclude(&res, limits, h)
	return []report.Result{res}, nil
}

func repeats(o Options) int {
	if o.Repeats > 0 {
		return o.Repeats
	}
	return DefaultRepeats
}

func (l *Loop) failed(part string, err error) error {
	return fmt.Errorf("%s: %s: %w", l.Result.Test, part, err)
}

func (l *Loop) run(ctx context.Context, w *World, n int) (float64, error) {
	if err := w.Job.Barrier(ctx); err != nil {
		return 0, err
	}
	return l.Run(ctx, n)
}

// iterations returns the operations of one repeat, the same on every rank:
// those asked for, or as many as fit into the duration.
func (l *Loop) iterations(ctx context.Context, w *World, o Options) (int, error) {
	if o.Iterations > 0 {
		return o.Iterations, nil
	}
	want := o.Duration
	if want <= 0 {
		want = DefaultDuration
	}
	n := 1
	for {
		start := time.Now()
		if _, err := l.run(ctx, w, n); err != nil {
			return 0, err
		}
		took := max(time.Since(start), 1)
		enough := took >= want/tellingPart
		times := float64(want) / float64(took)
		if !enough {
			times = max(2, min(times/2, boldest))
		}
		next := max(1, int(float64(n)*times))
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
func (l *Loop) conclude(res *report.Result, limits []float64, h *Histogram) {
	res.Value = Median(res.Repeats)
	res.Low, res.High = Confidence(res.Repeats)
	if len(limits) > 0 {
		ratios := make([]float64, len(limits))
		for i, limit := range limits {
			ratios[i] = res.Repeats[i] / limit
		}
		res.Limit = &report.Limit{Name: l.LimitName, Unit: l.LimitUnit, Value: Median(limits), Ratio: Median(ratios), Ratios: ratios}
	}
	if h != nil && h.Count() > 0 {
		res.Distribution = h.Distribution()
	}
}
