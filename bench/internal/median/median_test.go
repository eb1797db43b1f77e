package median

import (
	"math"
	"testing"
)

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := Of(tc.values); got != tc.want {
			t.Errorf("Of(%v) = %v, want %v", tc.values, got, tc.want)
		}
	}
	if got := Of(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

// TestInterval: the ranks of the order statistics are those in tables of the sign test.
func TestInterval(t *testing.T) {
	for _, tc := range []struct{ n, low, high int }{
		{1, 1, 1}, {2, 1, 2}, {5, 1, 5}, {6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {11, 2, 10}, {12, 3, 10}, {20, 6, 15}, {30, 10, 21}, {100, 40, 61},
	} {
		values := make([]float64, tc.n)
		for i := range values {
			values[i] = float64((i*7+3)%tc.n + 1) // 1 to n in some order, unless 7 divides n
		}
		if low, high := Interval(values); low != float64(tc.low) || high != float64(tc.high) {
			t.Errorf("of %d values: from the %v. to the %v., want %d and %d", tc.n, low, high, tc.low, tc.high)
		}
	}
}
