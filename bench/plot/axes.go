package plot

import (
	"fmt"
	"math"
	"slices"

	gonum "gonum.org/v1/plot"

	"github.com/softnd/softnd/bench/report"
)

// kind is how the figures of a unit are drawn.
type kind struct {
	title string
	axis  string
	log   bool    // a logarithmic axis
	per   float64 // units in one of the axis
}

var kinds = map[string]kind{
	"ns":    {title: "latency", axis: "time of one operation", log: true, per: 1},
	"MB/s":  {title: "bandwidth", axis: "bandwidth in GB/s", per: 1e3},
	"msg/s": {title: "message rate", axis: "million messages a second", per: 1e6},
}

func (k kind) scale(v float64) float64 {
	if k.log {
		return math.Log10(v / k.per)
	}
	return v / k.per
}

// sizeTicks returns ticks at all powers of two. As many of them have labels as fit.
func sizeTicks(sizes []int) []gonum.Tick {
	const room = 11
	first := int(math.Floor(math.Log2(float64(sizes[0]))))
	last := int(math.Ceil(math.Log2(float64(sizes[len(sizes)-1]))))
	step := (last - first + room) / room
	var ticks []gonum.Tick
	for e := first; e <= last; e++ {
		t := gonum.Tick{Value: float64(e)}
		if (e-first)%step == 0 {
			t.Label = report.Figure(math.Ldexp(1, e), "B")
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// timeRange returns a range wide enough for labels on its axis. If the data are close together, it is from a 1, 2 or 5
// to another; otherwise it is a little wider than the data.
func timeRange(low, high float64) (float64, float64) {
	if high-low >= 1 {
		room := 0.05 * (high - low)
		return low - room, high + room
	}
	steps := []float64{0, math.Log10(2), math.Log10(5), 1}
	from, to := math.Floor(low)-1+steps[2], math.Floor(high)+1
	for _, s := range steps {
		if math.Floor(low)+s < low {
			from = math.Floor(low) + s
		}
	}
	for _, s := range slices.Backward(steps) {
		if math.Floor(high)+s > high {
			to = math.Floor(high) + s
		}
	}
	return from, to
}

// timeTicks returns a tick at each first digit between the two powers of ten. The labels are at 1, 2 and 5, or only at
// 1 if these would be too many.
func timeTicks(low, high float64) []gonum.Tick {
	const many = 3 // powers of ten
	var ticks []gonum.Tick
	for e := math.Floor(low); e <= high; e++ {
		for digit := 1.0; digit < 10; digit++ {
			t := gonum.Tick{Value: e + math.Log10(digit)}
			if t.Value < low || t.Value > high {
				continue
			}
			if digit == 1 || high-low < many && (digit == 2 || digit == 5) {
				t.Label = duration(digit, int(e))
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// duration formats digit · 10^e ns.
func duration(digit float64, e int) string {
	units := []string{"ns", "µs", "ms", "s"}
	u := min(max(e, 0)/3, len(units)-1)
	return fmt.Sprintf("%g %s", digit*math.Pow10(e-3*u), units[u])
}

// evenTicks returns ticks from zero to the first multiple above high of 1, 2 or 5 times a power of ten.
func evenTicks(high float64) []gonum.Tick {
	const about = 6
	power := math.Pow10(int(math.Floor(math.Log10(high / about))))
	step := 10 * power
	for _, digit := range []float64{5, 2, 1} {
		if high/(digit*power) <= about {
			step = digit * power
		}
	}
	var ticks []gonum.Tick
	for i := 0.0; ; i++ {
		ticks = append(ticks, gonum.Tick{Value: i * step, Label: fmt.Sprintf("%.4g", i*step)})
		if i*step >= high {
			return ticks
		}
	}
}
