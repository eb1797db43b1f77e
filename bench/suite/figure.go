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

// minRepeats is the number of steady repeats that a figure needs.
const minRepeats = 5

// figure is the number that is compared with a bar.
type figure struct {
	of       []selector // results that it is computed from
	limit    string     // of which it is a ratio, or ""
	estimate func(v *view) (estimate, error)
}

// estimate is a figure with the 95 % confidence interval of the median.
type estimate struct {
	value, low, high float64
	repeats          int
}

// view is a report, restricted to the repeats at one distance of the cores.
type view struct {
	rep *report.Report
	at  *distance // nil means any
}

// sample is one repeat of a result.
type sample struct{ value, ratio float64 }

// selector selects results. A zero number or an empty text matches any.
type selector struct {
	test             string
	size             int
	ranks, pairs     int
	depth            int
	executor, memory string
	events           bool // results of event mode
	once             bool // the figure is counted, not timed: one repeat is enough
}

func (w selector) String() string {
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

func (w selector) atDepth(depth int) selector {
	w.depth = depth
	return w
}

func (w selector) matches(r *report.Result) bool {
	return r.Provider == softnd && r.Test == w.test && !r.Bidirectional && (r.Mode != "event" || w.events) &&
		(w.size == 0 || r.Size == w.size) &&
		(w.ranks == 0 || r.Ranks == w.ranks) &&
		(w.pairs == 0 || r.Pairs == w.pairs) &&
		(w.depth == 0 || r.Depth == w.depth) &&
		(w.executor == "" || r.Executor == w.executor) &&
		(w.memory == "" || r.Memory == w.memory)
}

// least returns the number of steady repeats that the figure needs.
func (w selector) least() int {
	if w.once {
		return 1
	}
	return minRepeats
}

// find returns the only result that matches. If a report contains several, it is unclear which one counts.
func (w selector) find(rep *report.Report) (*report.Result, error) {
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

// samples returns the steady repeats of a result in the view, without those whose cores were shared.
func (v *view) samples(w selector) (r *report.Result, steady []sample, err error) {
	if r, err = w.find(v.rep); err != nil {
		return nil, nil, err
	}
	whole := wholeCores(v.rep)
	for i, value := range r.Repeats {
		if i < len(r.Drifts) && r.Drifts[i] > measure.Steady || i < len(r.Widths) && r.Widths[i] < whole {
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
		return nil, nil, fmt.Errorf("%v: too few steady repeats on whole cores (%d of %d, want %d)", w, len(steady), len(r.Repeats), least)
	}
	return r, steady, nil
}

// value is the measured value in the given unit, times a factor.
func value(w selector, unit string, factor float64) figure {
	return figure{of: []selector{w}, estimate: func(v *view) (estimate, error) {
		r, steady, err := v.samples(w)
		if err != nil {
			return estimate{}, err
		}
		if r.Unit != unit {
			return estimate{}, fmt.Errorf("%v: unit %q, want %q", w, r.Unit, unit)
		}
		return measured(steady, r.Unit == "%", func(s sample) float64 { return s.value * factor })
	}}
}

// toLimit is the ratio to the limit of the machine.
func toLimit(w selector, limit string) figure {
	return figure{of: []selector{w}, limit: limit, estimate: func(v *view) (estimate, error) {
		_, steady, err := v.compared(w, limit)
		if err != nil {
			return estimate{}, err
		}
		return measured(steady, false, func(s sample) float64 { return s.ratio })
	}}
}

// beyondLimit is a ratio of two measurements, divided by the same ratio of the limit if that is above 1. Slowness of
// the bare machine does not count.
func beyondLimit(w selector, limit string) figure {
	return figure{of: []selector{w}, estimate: func(v *view) (estimate, error) {
		_, steady, err := v.compared(w, limit)
		if err != nil {
			return estimate{}, err
		}
		return measured(steady, false, func(s sample) float64 { return min(s.value, s.ratio) })
	}}
}

// compared is samples of a result that was compared with this limit.
func (v *view) compared(w selector, limit string) (*report.Result, []sample, error) {
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

// quotient is the ratio of two figures. Its interval is as wide as those of both together.
func quotient(of, by figure) figure {
	return figure{of: append(of.of, by.of...), estimate: func(v *view) (estimate, error) {
		a, errOf := of.estimate(v)
		b, errBy := by.estimate(v)
		if err := cmp.Or(errOf, errBy); err != nil { // one of them, because the table has one line for it
			return estimate{}, err
		}
		return estimate{a.value / b.value, a.low / b.high, a.high / b.low, min(a.repeats, b.repeats)}, nil
	}}
}

// measured estimates a figure from its repeats. It refuses values that no measurement can have.
func measured(steady []sample, mayBeZero bool, figure func(sample) float64) (estimate, error) {
	values := make([]float64, len(steady))
	for i, s := range steady {
		v := figure(s)
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && !mayBeZero {
			return estimate{}, fmt.Errorf("invalid value %v: want a positive number", v)
		}
		values[i] = v
	}
	s := estimate{value: median.Of(values), repeats: len(values)}
	s.low, s.high = median.Interval(values)
	return s, nil
}
