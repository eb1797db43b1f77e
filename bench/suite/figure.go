package suite

import (
	"errors"
	"fmt"
	"math"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// leastRepeats is how many repeats a figure needs to count.
const leastRepeats = 5

// leastRatio is how little a transfer can take of the time of the cache line
// that it has to move: 1, but for the noise.
const leastRatio = 0.9

// figure finds the number that a bar is about in a report, or says why it is
// not there.
type figure func(*report.Report) (float64, error)

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
	return r.Provider == measure.Provider && r.Test == w.test && !r.Bidirectional && (r.Mode != "event" || w.events) &&
		(w.size == 0 || r.Size == w.size) &&
		(w.ranks == 0 || r.Ranks == w.ranks) &&
		(w.pairs == 0 || r.Pairs == w.pairs) &&
		(w.depth == 0 || r.Depth == w.depth) &&
		(w.executor == "" || r.Executor == w.executor) &&
		(w.memory == "" || r.Memory == w.memory)
}

// find returns the one result that w names. Where a report holds several,
// nobody can say which of them counts.
func (w which) find(rep *report.Report) (*report.Result, error) {
	var found *report.Result
	for i := range rep.Results {
		r := &rep.Results[i]
		if !w.matches(r) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%v is there more than once", w)
		}
		found = r
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("no %v", w)
	case len(found.Repeats) < leastRepeats && !w.once:
		return nil, fmt.Errorf("%v has %d repeats, and %d are needed", w, len(found.Repeats), leastRepeats)
	}
	return found, nil
}

// value is what was measured, in the given unit.
func value(w which, unit string) figure {
	return func(rep *report.Report) (float64, error) {
		r, err := w.find(rep)
		if err != nil {
			return 0, err
		}
		if r.Unit != unit {
			return 0, fmt.Errorf("%v is given in %q, not in %q", w, r.Unit, unit)
		}
		return measured(r.Value, r.Unit == "%")
	}
}

// toLimit is the ratio to what the machine can do.
func toLimit(w which, limit string) figure {
	return func(rep *report.Report) (float64, error) {
		r, err := w.find(rep)
		switch {
		case err != nil:
			return 0, err
		case r.Limit == nil:
			return 0, fmt.Errorf("%v was not compared with %s", w, limit)
		case r.Limit.Name != limit:
			return 0, fmt.Errorf("%v was compared with %s, not with %s", w, r.Limit.Name, limit)
		case (limit == measure.RawLine || limit == measure.RawRoundTrip) && r.Limit.Ratio < leastRatio && r.Limit.Ratio > 0:
			return 0, fmt.Errorf("%v took %.2f of what the bare cache line took: the machine was busy with other things", w, r.Limit.Ratio)
		}
		return measured(r.Limit.Ratio, false)
	}
}

// quotient is one figure in relation to another.
func quotient(of, by figure) figure {
	return func(rep *report.Report) (float64, error) {
		a, errOf := of(rep)
		b, errBy := by(rep)
		if err := errors.Join(errOf, errBy); err != nil {
			return 0, err
		}
		return measured(a/b, false)
	}
}

// times is a figure in another scale.
func times(factor float64, of figure) figure {
	return func(rep *report.Report) (float64, error) {
		v, err := of(rep)
		return v * factor, err
	}
}

// measured refuses what no measurement can have found.
func measured(v float64, mayBeZero bool) (float64, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && !mayBeZero {
		return 0, fmt.Errorf("%v is no measurement", v)
	}
	return v, nil
}
