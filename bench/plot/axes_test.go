package plot

import (
	"math"
	"strings"
	"testing"

	gonum "gonum.org/v1/plot"
)

func labels(ticks []gonum.Tick) string {
	var all []string
	for _, t := range ticks {
		if t.Label != "" {
			all = append(all, t.Label)
		}
	}
	return strings.Join(all, " ")
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		name  string
		ticks []gonum.Tick
		want  string
	}{
		{"all powers", sizeTicks([]int{8, 64, 256}), "8 B 16 B 32 B 64 B 128 B 256 B"},
		{"sizes between powers", sizeTicks([]int{9, 500}), "8 B 16 B 32 B 64 B 128 B 256 B 512 B"},
		{"each second power", sizeTicks([]int{8, 1 << 20}), "8 B 32 B 128 B 512 B 2 KiB 8 KiB 32 KiB 128 KiB 512 KiB"},
		{"one decade", timeTicks(math.Log10(30), math.Log10(250)), "50 ns 100 ns 200 ns"},
		{"many decades", timeTicks(1.5, 6.5), "100 ns 1 µs 10 µs 100 µs 1 ms"},
		{"below a nanosecond", timeTicks(-1, 0), "0.1 ns 0.2 ns 0.5 ns 1 ns"},
		{"seconds", timeTicks(9, 10), "1 s 2 s 5 s 10 s"},
		{"up to 11", evenTicks(11), "0 2 4 6 8 10 12"},
		{"up to 0.5", evenTicks(0.5), "0 0.1 0.2 0.3 0.4 0.5"},
		{"up to 45", evenTicks(45), "0 10 20 30 40 50"},
	} {
		if got := labels(c.ticks); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestCloseTimesHaveNamesAroundThem(t *testing.T) {
	for _, c := range []struct{ low, high, from, to float64 }{
		{41, 45, 20, 50},
		{50, 50, 20, 100},
		{95, 101, 50, 200},
		{100, 100, 50, 200},
		{0.3, 0.4, 0.2, 0.5},
	} {
		from, to := timeRange(math.Log10(c.low), math.Log10(c.high))
		if math.Abs(from-math.Log10(c.from)) > 1e-9 || math.Abs(to-math.Log10(c.to)) > 1e-9 {
			t.Errorf("%v to %v: from %v to %v, want %v to %v", c.low, c.high, math.Pow(10, from), math.Pow(10, to), c.from, c.to)
		}
		if got := timeTicks(from, to); got[0].Label == "" || got[len(got)-1].Label == "" {
			t.Errorf("%v to %v: no names at the ends: %v", c.low, c.high, got)
		}
	}
}

// TestPanelTop: a limit far above the providers leaves the panel, a close one does not.
func TestPanelTop(t *testing.T) {
	for _, c := range []struct{ provider, limit, want float64 }{
		{10e3, 0, 10},
		{10e3, 9e3, 10},
		{10e3, 19e3, 19},
		{10e3, 90e3, 20},
	} {
		p := panel{unit: "MB/s", lines: []line{{provider: "ucx", points: points(c.provider, 1)}}}
		if c.limit > 0 {
			p.lines = append(p.lines, line{limit: true, points: points(c.limit)})
		}
		if got := p.top(kinds["MB/s"]); got != c.want {
			t.Errorf("%v MB/s with a limit of %v: up to %v GB/s, want %v", c.provider, c.limit, got, c.want)
		}
	}
}

// points are at 8 B, 16 B and so on.
func points(values ...float64) map[int]*point {
	all := map[int]*point{}
	for i, v := range values {
		all[8<<i] = &point{values: []float64{v}, low: v, high: v}
	}
	return all
}
