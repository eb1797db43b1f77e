package report

import (
	"math"
	"slices"
)

// welch returns the chance that two samples of the same mean differ as much as these. It is Welch's t-test, which does
// not assume that both are equally noisy.
func welch(a, b []float64) float64 {
	meanA, errA := mean(a)
	meanB, errB := mean(b)
	if meanA == meanB {
		return 1
	}
	if errA+errB == 0 {
		return 0
	}
	t := math.Abs(meanA-meanB) / math.Sqrt(errA+errB)
	free := (errA + errB) * (errA + errB) / (errA*errA/float64(len(a)-1) + errB*errB/float64(len(b)-1))
	return student(t, free)
}

// mean returns the mean, and the square of its standard error.
func mean(x []float64) (mean, squared float64) {
	n := float64(len(x))
	for _, v := range x {
		mean += v / n
	}
	for _, v := range x {
		squared += (v - mean) * (v - mean) / (n - 1) / n
	}
	return mean, squared
}

// student returns the chance that a t of this many degrees of freedom is farther from zero. With t = √free · tan(x) the
// density becomes cos(x)^(free-1) between 0 and π/2, which has no tail to cut off.
func student(t, free float64) float64 {
	density := func(x float64) float64 { return math.Pow(math.Max(math.Cos(x), 0), free-1) }
	from := math.Atan(t / math.Sqrt(free))
	return simpson(density, from, math.Pi/2) / simpson(density, 0, math.Pi/2)
}

// simpson integrates f by Simpson's rule.
func simpson(f func(float64) float64, from, to float64) float64 {
	const steps = 200
	h := (to - from) / steps
	sum := f(from) + f(to)
	for i := 1; i < steps; i++ {
		sum += f(from+float64(i)*h) * float64(2+2*(i%2))
	}
	return sum * h / 3
}

// holm corrects the chances of several tests for their number. It multiplies the least chance by it, and the next by
// one less. None may be below the one before it.
func holm(tests []*delta) {
	tests = slices.Clone(tests)
	slices.SortStableFunc(tests, func(a, b *delta) int {
		switch {
		case a.chance < b.chance:
			return -1
		case a.chance > b.chance:
			return 1
		}
		return 0
	})
	least := 0.0
	for i, t := range tests {
		least = max(least, min(1, t.chance*float64(len(tests)-i)))
		t.chance = least
	}
}
