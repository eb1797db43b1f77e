package report

import "github.com/softnd/softnd/bench/internal/median"

// Pool adds the repeats of more results to those of the same test, provider and settings, and appends the other
// results. A distribution remains that of the first.
func Pool(all, more []Result) []Result {
	for _, r := range more {
		merged := false
		for i := range all {
			if keyOf(all[i]) == keyOf(r) {
				all[i].add(r)
				merged = true
				break
			}
		}
		if !merged {
			all = append(all, r)
		}
	}
	return all
}

// add adds the repeats of another result. It keeps the values that belong to each repeat only if both results have
// them.
func (r *Result) add(other Result) {
	limits := append(r.limits(), other.limits()...)
	drifts, lines, widths := concat(r.Drifts, other.Drifts), concat(r.Lines, other.Lines), concat(r.Widths, other.Widths)
	r.Iterations = max(r.Iterations, other.Iterations)
	r.Repeats = concat(r.Repeats, other.Repeats)
	r.Value = median.Of(r.Repeats)
	r.Low, r.High = median.Interval(r.Repeats)
	r.Drifts, r.Lines, r.Widths = drifts, lines, widths
	if r.Limit == nil || other.Limit == nil || len(limits) != len(r.Repeats) {
		r.Limit = nil
		return
	}
	l := *r.Limit
	l.Ratios = concat(l.Ratios, other.Limit.Ratios)
	l.Value, l.Ratio = median.Of(limits), median.Of(l.Ratios)
	r.Limit = &l
}

// limits returns the limit of the machine next to each repeat.
func (r *Result) limits() (limits []float64) {
	if r.Limit == nil {
		return nil
	}
	for i, ratio := range r.Limit.Ratios {
		limits = append(limits, r.Repeats[i]/ratio)
	}
	return limits
}

func concat(a, b []float64) []float64 {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	return append(a[:len(a):len(a)], b...)
}
