package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var binary = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Size is a number of bytes for people: 8 B, 64 KiB, 1.5 MiB.
func Size(n int) string {
	v, unit := scaled(float64(n), 1024, binary)
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return digits(v) + " " + unit
}

// Figure is a value with its unit for people, in three digits: 1.23 µs,
// 12.3 GB/s, 34.5 M msg/s.
func Figure(v float64, unit string) string {
	switch unit {
	case "ns":
		v, unit = scaled(v, 1000, []string{"ns", "µs", "ms", "s"})
	case "MB/s":
		v, unit = scaled(v, 1000, []string{"MB/s", "GB/s", "TB/s"})
	case "msg/s", "ops/s":
		v, unit = scaled(v, 1000, []string{unit, "k " + unit, "M " + unit, "G " + unit})
	case "B":
		return Size(int(math.Round(v)))
	case "ratio":
		return digits(v)
	}
	return digits(v) + " " + unit
}

// Range is two values with their unit for people: 60.1–62.3 ns, 980 ns–1.02 µs.
func Range(low, high float64, unit string) string {
	from, to := Figure(low, unit), Figure(high, unit)
	_, unitFrom, _ := strings.Cut(from, " ")
	if _, unitTo, _ := strings.Cut(to, " "); unitFrom == unitTo {
		from = strings.TrimSuffix(from, " "+unitFrom)
	}
	return from + "–" + to
}

// scaled takes the first unit that leaves v below the step to the next one.
func scaled(v, step float64, units []string) (float64, string) {
	i := 0
	for i < len(units)-1 && math.Round(v) >= step {
		v /= step
		i++
	}
	return v, units[i]
}

// digits keeps three of them.
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

// Words are the settings but for size and iterations, for people. The usual is
// left out: polling, auto, arena, pinned.
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
	add(s.Mode == "event", "events")
	add(s.Executor != "" && s.Executor != "auto", "%s executes", s.Executor)
	add(s.Memory == "private", "private memory")
	add(s.Bidirectional, "both ways")
	add(!s.Pinned, "not pinned")
	return strings.Join(words, ", ")
}
