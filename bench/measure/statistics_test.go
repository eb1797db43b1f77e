package measure

import (
	"math"
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		name      string
		got, want float64
	}{
		{"ns", nsPerOp(time.Microsecond, 10), 100},
		{"per second", perSecond(2*time.Second, 10), 5},
		{"MB/s", mbPerSecond(time.Second, 3, 1e6), 3},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.got, tc.want)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.record(float64(i+1) / 10)
	}
	d := h.distribution()
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > want/500 {
			t.Errorf("%s is %v, want about %v", name, got, want)
		}
	}
	if d.Count != 1000 {
		t.Errorf("%d recorded", d.Count)
	}
	near("min", d.Min, 0.1)
	near("p50", d.P50, 50)
	near("p90", d.P90, 90)
	near("p99", d.P99, 99)
	near("p99.9", d.P999, 99.9)
	near("max", d.Max, 100)
	near("mean", d.Mean, 50.05)
	h.record(math.Inf(1))
	if d := h.distribution(); d.Max < 59e9 {
		t.Errorf("a time above the maximum counts as %v", d.Max)
	}
}

func TestClockAgreesWithTheMonotonicOne(t *testing.T) {
	c := newClock()
	begin, from := sample()
	time.Sleep(5 * time.Millisecond)
	end, to := sample()
	took := end.Sub(begin)
	if ns := c.ns(from, to); ns < 0.9*5e6 || ns > 1.1*float64(took.Nanoseconds()) {
		t.Errorf("%v were %v ns", took, ns)
	}
}
