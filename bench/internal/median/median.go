// Package median computes medians and their confidence intervals.
package median

import (
	"math"
	"slices"
)

// Of returns the median of values, NaN if there are none.
func Of(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	half := len(s) / 2
	if len(s)%2 == 1 {
		return s[half]
	}
	return (s[half-1] + s[half]) / 2
}

// Interval returns a 95 % confidence interval of the median, NaN if there are no values. It is computed from order
// statistics, so it assumes nothing about the distribution of the values. Fewer than six values do not suffice for 95 %. The
// interval is then from the least to the greatest, which is 93.75 % for five values.
func Interval(values []float64) (low, high float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	// The true median lies below the k-th least value if fewer than k of n values
	// lie below it: a binomial tail with probability 1/2.
	const bothTails = 0.05
	k, tail, term := 0, 0.0, math.Pow(0.5, float64(n))
	for k < n/2 && 2*(tail+term) <= bothTails {
		tail += term
		term *= float64(n-k) / float64(k+1)
		k++
	}
	k = max(k, 1)
	return s[k-1], s[n-k]
}
