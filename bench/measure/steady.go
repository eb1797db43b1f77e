package measure

import (
	"cmp"
	"context"
	"math"
	"slices"
)

const (
	// Steady is the greatest drift of a repeat that counts: the limits before and after it differ by no more than this
	// factor. If the host moves a virtual core, a cache line changes by a factor of 3 to 6.
	Steady = 1.25

	// maxTries bounds the number of repeats for each wanted one.
	maxTries = 3
)

// moment is what the machine achieves next to a repeat, on rank 0. width is 0 if it was not measured.
type moment struct{ limit, line, width float64 }

// repeat is one repeat of a loop, and the machine next to it, on rank 0.
type repeat struct {
	moment               // mean of before and after; of the widths the less
	value, drift float64 // of the moments before and after, the greater divided by the less
}

// repeats makes repeats until enough of them are steady, or there are too many. It returns all of them, in order.
func (l *loop) repeats(ctx context.Context, w *World, want, n int) (made []repeat, err error) {
	before, err := l.momentNow(w, l.within)
	if err != nil {
		return nil, l.failed("limit of the machine", err)
	}
	for steady := 0; ; {
		v, err := l.runTogether(ctx, w, n)
		if err != nil {
			return nil, l.failed("repeat", err)
		}
		after, err := l.momentNow(w, false)
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
		decided, err := agree(ctx, w, 0, steady >= want || len(made) >= maxTries*want)
		if err != nil {
			return nil, l.failed("repeat", err)
		}
		if decided.enough {
			return made, nil
		}
	}
}

// momentNow measures the machine now, unless skip is set.
func (l *loop) momentNow(w *World, skip bool) (now moment, err error) {
	if l.limit == nil || skip || w.ranks().Rank() > 1 {
		return now, nil
	}
	if w.ranks().Size() == 2 && w.wire == nil && !l.within {
		if now.line, err = w.machine().rawLine(); err != nil {
			return now, err
		}
	}
	if l.width != nil {
		if now.width, err = l.width(); err != nil {
			return now, err
		}
	}
	now.limit, err = l.limit(now.line)
	return now, err
}

func between(value float64, before, after moment) repeat {
	return repeat{
		moment: moment{math.Sqrt(before.limit * after.limit), math.Sqrt(before.line * after.line), min(before.width, after.width)},
		value:  value,
		drift:  max(drift(before.limit, after.limit), drift(before.line, after.line)),
	}
}

// drift returns the greater of two figures divided by the less, 1 if there are none.
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
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(beyondSteady(made[a].drift), beyondSteady(made[b].drift)) })
	order = order[:min(want, len(order))]
	slices.Sort(order)
	kept := make([]repeat, len(order))
	for i, n := range order {
		kept[i] = made[n]
	}
	return kept
}

// beyondSteady returns the same for all steady drifts: to choose among them would be to choose the repeats.
func beyondSteady(drift float64) float64 { return max(drift, Steady) }
