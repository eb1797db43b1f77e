package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var binary = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Figure formats a value with its unit for people, in three digits: 1.23 µs, 12.3 GB/s, 34.5 M msg/s, 1.50 KiB. Whole numbers
// of B, KiB, MiB, GiB or TiB have no decimals: 64 KiB.
func Figure(v float64, unit string) string {
	switch unit {
	case "ns":
		v, unit = scaled(v, 1000, []string{"ns", "µs", "ms", "s"})
	case "MB/s":
		v, unit = scaled(v, 1000, []string{"MB/s", "GB/s", "TB/s"})
	case "msg/s", "ops/s":
		v, unit = scaled(v, 1000, []string{unit, "k " + unit, "M " + unit, "G " + unit})
	case "B":
		v, unit = scaled(math.Round(v), 1024, binary)
		if v == math.Trunc(v) {
			return fmt.Sprintf("%.0f %s", v, unit)
		}
	case "ratio":
		return digits(v)
	}
	return digits(v) + " " + unit
}

// Range formats two values with their unit for people: 60.1–62.3 ns, 980 ns–1.02 µs.
func Range(low, high float64, unit string) string {
	from, to := Figure(low, unit), Figure(high, unit)
	_, unitFrom, _ := strings.Cut(from, " ")
	if _, unitTo, _ := strings.Cut(to, " "); unitFrom == unitTo {
		from = strings.TrimSuffix(from, " "+unitFrom)
	}
	return from + "–" + to
}

// scaled converts v to the first unit in which it is below step, the factor from one unit to the next.
func scaled(v, step float64, units []string) (float64, string) {
	i := 0
	for i < len(units)-1 && math.Round(v) >= step {
		v /= step
		i++
	}
	return v, units[i]
}

// digits formats v with three digits.
func digits(v float64) string {
	size := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case size < 0.01 || size >= 1e6:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	after := 3
	for next := 0.9995; after > 0 && size >= next; next *= 10 { // 0.9995 is 1.00, not 1.000
		after--
	}
	return strconv.FormatFloat(v, 'f', after, 64)
}

// Words formats the settings for people, without size and iterations. It omits the usual settings: polling, auto, arena,
// pinned.
func (s Settings) Words() string {
	var words []string
	add := func(applies bool, format string, args ...any) {
		if applies {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(s.Depth > 0, "depth %d", s.Depth)
	add(s.Pairs > 1, "%d pairs", s.Pairs)
	add(s.Ranks > 2, "%d ranks", s.Ranks)
	add(s.Hosts > 1, "between hosts")
	add(s.Mode == "event", "events")
	add(s.Executor != "" && s.Executor != "auto", "%s executes", s.Executor)
	add(s.Memory == "private", "private memory")
	add(s.Bidirectional, "both ways")
	add(!s.Pinned && s.Hosts < 2, "not pinned") // ranks on several hosts never are
	return strings.Join(words, ", ")
}
