package suite

import (
	"cmp"
	"fmt"
	"math"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// softnd is the provider of softnd's own results.
const softnd = "softnd"

// Names of the limits in the reports of package measure.
const (
	rawLineLimit        = "raw_line"
	rawRoundTripLimit   = "raw_round_trip"
	rawLineNoiseLimit   = "raw_line_noise"
	lockedExchangeLimit = "locked_exchange"
	rawSwitchLimit      = "raw_switch"
	memcpyLimit         = "memcpy"
)

// leastRepeats is how many steady repeats a figure needs to count.
const leastRepeats = 5

// figure is the number that a bar is about.
type figure struct {
	of    []which // results that it is taken from
	limit string  // that it is a ratio to, or ""
	seen  func(v *view) (seen, error)
}

// seen is a figure with the 95 % confidence interval of the median.
type seen struct {
	value, low, high float64
	repeats          int
}

// view is a report as far as it was measured at one distance of the cores.
type view struct {
	rep *report.Report
	at  *distance // nil: at any
}

// sample is one repeat of a result.
type sample struct{ value, ratio float64 }

// which names results. A zero number or an empty text stands for any.
type which struct {
	test             string
	size             int
	ranks, pairs     int
	depth            int
	executor, memory string
	events           bool // results of event mode
	once             bool // the figure is counted, not timed: one repeat will do
}

func (w which) String() string {
	s := w.test
	if w.size > 0 {
		s += fmt.Sprintf(" of %d bytes", w.size)
	}
	if w.ranks > 0 {
		s += fmt.Sprintf(" with %d ranks", w.ranks)
	}
	if w.pairs > 0 {
		s += fmt.Sprintf(" and %d queue pairs", w.pairs)
	}
	if w.depth > 0 {
		s += fmt.Sprintf(" at depth %d", w.depth)
	}
	if w.executor != "" {
		s += ", executor " + w.executor
	}
	if w.memory != "" {
		s += ", " + w.memory + " memory"
	}
	return s
}

func (w which) atDepth(depth int) which {
	w.depth = depth
	return w
}

func (w which) matches(r *report.Result) bool {
	return r.Provider == softnd && r.Test == w.test && !r.Bidirectional && (r.Mode != "event" || w.events) &&
		(w.size == 0 || r.Size == w.size) &&
		(w.ranks == 0 || r.Ranks == w.ranks) &&
		(w.pairs == 0 || r.Pairs == w.pairs) &&
		(w.depth == 0 || r.Depth == w.depth) &&
		(w.executor == "" || r.Executor == w.executor) &&
		(w.memory == "" || r.Memory == w.memory)
}

// least is how many steady repeats the figure needs.
func (w which) least() int {
	if w.once {
		return 1
	}
	return leastRepeats
}

// find returns the one result that w names. A report that holds several does not
// say which of them counts.
func (w which) find(rep *report.Report) (*report.Result, error) {
	var found *report.Result
	for i := range rep.Results {
		r := &rep.Results[i]
		if !w.matches(r) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%v: more than one result in the report", w)
		}
		found = r
	}
	if found == nil {
		return nil, fmt.Errorf("%v: no result in the report", w)
	}
	return found, nil
}

// samples returns the steady repeats of a result, as far as the view has them.
func (v *view) samples(w which) (r *report.Result, steady []sample, err error) {
	if r, err = w.find(v.rep); err != nil {
		return nil, nil, err
	}
	for i, value := range r.Repeats {
		if i < len(r.Drifts) && r.Drifts[i] > measure.Steady {
			continue
		}
		if v.at != nil && (i >= len(r.Lines) || !v.at.has(r.Lines[i])) {
			continue
		}
		s := sample{value: value}
		if r.Limit != nil && i < len(r.Limit.Ratios) {
			s.ratio = r.Limit.Ratios[i]
		}
		steady = append(steady, s)
	}
	if least := w.least(); len(steady) < least {
		return nil, nil, fmt.Errorf("%v: too few steady repeats (%d of %d, want %d)", w, len(steady), len(r.Repeats), least)
	}
	return r, steady, nil
}

// value is what was measured in the given unit, times a factor.
func value(w which, unit string, factor float64) figure {
	return figure{of: []which{w}, seen: func(v *view) (seen, error) {
		r, steady, err := v.samples(w)
		if err != nil {
			return seen{}, err
		}
		if r.Unit != unit {
			return seen{}, fmt.Errorf("%v: unit %q, want %q", w, r.Unit, unit)
		}
		return measured(steady, r.Unit == "%", func(s sample) float64 { return s.value * factor })
	}}
}

// toLimit is the ratio to what the machine can do.
func toLimit(w which, limit string) figure {
	return figure{of: []which{w}, limit: limit, seen: func(v *view) (seen, error) {
		_, steady, err := v.compared(w, limit)
		if err != nil {
			return seen{}, err
		}
		return measured(steady, false, func(s sample) float64 { return s.ratio })
	}}
}

// beyondLimit is a ratio of two measurements, divided by the same ratio of the
// limit where that is above 1. Slowness of the bare machine does not count.
func beyondLimit(w which, limit string) figure {
	return figure{of: []which{w}, seen: func(v *view) (seen, error) {
		_, steady, err := v.compared(w, limit)
		if err != nil {
			return seen{}, err
		}
		return measured(steady, false, func(s sample) float64 { return min(s.value, s.ratio) })
	}}
}

// compared is samples of a result that was compared with that limit.
func (v *view) compared(w which, limit string) (*report.Result, []sample, error) {
	r, steady, err := v.samples(w)
	switch {
	case err != nil:
		return nil, nil, err
	case r.Limit == nil:
		return nil, nil, fmt.Errorf("%v: not compared with %s", w, limit)
	case r.Limit.Name != limit:
		return nil, nil, fmt.Errorf("%v: compared with %s, want %s", w, r.Limit.Name, limit)
	}
	return r, steady, nil
}

// quotient is one figure in relation to another. Its interval is as wide as
// those of both together.
func quotient(of, by figure) figure {
	return figure{of: append(of.of, by.of...), seen: func(v *view) (seen, error) {
		a, errOf := of.seen(v)
		b, errBy := by.seen(v)
		if err := cmp.Or(errOf, errBy); err != nil { // one of them, because the table has one line for it
			return seen{}, err
		}
		return seen{a.value / b.value, a.low / b.high, a.high / b.low, min(a.repeats, b.repeats)}, nil
	}}
}

// measured refuses what no measurement can have found.
func measured(steady []sample, mayBeZero bool, figure func(sample) float64) (seen, error) {
	values := make([]float64, len(steady))
	for i, s := range steady {
		v := figure(s)
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && !mayBeZero {
			return seen{}, fmt.Errorf("invalid value %v: want a positive number", v)
		}
		values[i] = v
	}
	s := seen{value: median.Of(values), repeats: len(values)}
	s.low, s.high = median.Interval(values)
	return s, nil
}
