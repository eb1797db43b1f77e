package measure

import (
	"cmp"
	"context"
	"math"
	"slices"
)

const (
	// Steady is the greatest drift of a repeat that counts. The limits measured
	// before and after it differ by no more than this factor. Where the host
	// moves a virtual core, a cache line changes by a factor of 3 to 6.
	Steady = 1.25

	// mostTries bounds how many repeats are made for each that is wanted.
	mostTries = 3
)

// moment is what the machine does beside a repeat, on rank 0.
type moment struct{ limit, line float64 }

// repeat is one repeat of a loop with what the machine did beside it, on rank 0.
type repeat struct {
	moment               // mean of before and after
	value, drift float64 // of the moments before and after, the greater divided by the less
}

// repeats makes repeats until enough of them are steady, or too many have been
// made. All of them are returned, in the order made.
func (l *loop) repeats(ctx context.Context, w *World, want, n int) (made []repeat, err error) {
	before, err := l.beside(w, l.within)
	if err != nil {
		return nil, l.failed("limit of the machine", err)
	}
	for steady := 0; ; {
		v, err := l.runTogether(ctx, w, n)
		if err != nil {
			return nil, l.failed("repeat", err)
		}
		after, err := l.beside(w, false)
		if err != nil {
			return nil, l.failed("limit of the machine", err)
		}
		if l.within {
			before = after
		}
		made = append(made, between(v, before, after))
		before = after
		if made[len(made)-1].drift <= Steady {
			steady++
		}
		if len(made) < want {
			continue
		}
		if l.limit == nil {
			return made, nil
		}
		decided, err := agree(ctx, w, 0, steady >= want || len(made) >= mostTries*want)
		if err != nil {
			return nil, l.failed("repeat", err)
		}
		if decided.enough {
			return made, nil
		}
	}
}

// beside measures what the machine does at this moment, unless that is skipped.
func (l *loop) beside(w *World, skip bool) (now moment, err error) {
	if l.limit == nil || skip || w.Job.Rank() > 1 {
		return now, nil
	}
	if w.Job.Size() == 2 && !l.within {
		if now.line, err = w.limits.rawLine(); err != nil {
			return now, err
		}
	}
	now.limit, err = l.limit(now.line)
	return now, err
}

func between(value float64, before, after moment) repeat {
	return repeat{
		moment: moment{math.Sqrt(before.limit * after.limit), math.Sqrt(before.line * after.line)},
		value:  value,
		drift:  max(drift(before.limit, after.limit), drift(before.line, after.line)),
	}
}

// drift is the greater of two figures divided by the less, 1 where there are none.
func drift(a, b float64) float64 {
	if a == b {
		return 1
	}
	return max(a, b) / min(a, b)
}

// steadiest returns the repeats with the least drift, in the order made.
func steadiest(made []repeat, want int) []repeat {
	order := make([]int, len(made))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(steps(made[a].drift), steps(made[b].drift)) })
	order = order[:min(want, len(order))]
	slices.Sort(order)
	kept := make([]repeat, len(order))
	for i, n := range order {
		kept[i] = made[n]
	}
	return kept
}

// steps takes all that is steady for equal: to choose among that would be to
// choose the repeats.
func steps(drift float64) float64 { return max(drift, Steady) }
