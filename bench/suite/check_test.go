package suite

import (
	"math"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// result is one with all that a figure needs to count.
func result(test string, size int, v float64) report.Result {
	return report.Result{Test: test, Provider: measure.Provider, Unit: "ns", Better: "less", Value: v, Low: v, High: v,
		Repeats:  []float64{v, v, v, v, v},
		Settings: report.Settings{Size: size, Pairs: 1, Ranks: 2, Executor: "auto", Memory: "arena", Mode: "polling", Pinned: true}}
}

func compared(r report.Result, limit string, ratio float64) report.Result {
	r.Limit = &report.Limit{Name: limit, Unit: "ns", Value: r.Value / ratio, Ratio: ratio}
	return r
}

func changed(r report.Result, f func(*report.Result)) report.Result {
	f(&r)
	return r
}

func TestOutcomes(t *testing.T) {
	less := Bar{Required: 1.35, Aim: 1.15, seen: toLimit(ours("write_lat", 8), measure.RawLine)}
	more := Bar{Required: 0.8, Aim: 0.95, More: true, seen: toLimit(ours("write_lat", 8), measure.Memcpy)}
	for _, c := range []struct {
		bar   Bar
		ratio float64
		want  Outcome
	}{
		{less, 0.9, AimMet}, {less, 1.15, AimMet}, {less, 1.16, Met}, {less, 1.35, Met}, {less, 1.36, Missed},
		{more, 0.95, AimMet}, {more, 0.94, Met}, {more, 0.8, Met}, {more, 0.79, Missed},
	} {
		limit := measure.RawLine
		if c.bar.More {
			limit = measure.Memcpy
		}
		rep := &report.Report{Results: []report.Result{compared(result("write_lat", 8, 50), limit, c.ratio)}}
		if v := c.bar.judge(rep); v.Outcome != c.want || v.Seen != c.ratio {
			t.Errorf("ratio %v with more better %v: %v, seen %v; want %v", c.ratio, c.bar.More, v.Outcome, v.Seen, c.want)
		}
	}
}

// TestNotMeasured: whatever is missing or does not fit is never a pass.
func TestNotMeasured(t *testing.T) {
	good := compared(result("write_lat", 8, 50), measure.RawLine, 1)
	bar := Bar{Required: 1.35, Aim: 1.15, seen: toLimit(ours("write_lat", 8), measure.RawLine)}
	if v := bar.judge(&report.Report{Results: []report.Result{good}}); v.Outcome != AimMet {
		t.Fatalf("the good one: %v (%s)", v.Outcome, v.Why)
	}
	for name, r := range map[string]report.Result{
		"another test":     changed(good, func(r *report.Result) { r.Test = "send_lat" }),
		"another provider": changed(good, func(r *report.Result) { r.Provider = "ucx" }),
		"another size":     changed(good, func(r *report.Result) { r.Size = 16 }),
		"more pairs":       changed(good, func(r *report.Result) { r.Pairs = 64 }),
		"another executor": changed(good, func(r *report.Result) { r.Executor = "target" }),
		"private memory":   changed(good, func(r *report.Result) { r.Memory = "private" }),
		"event mode":       changed(good, func(r *report.Result) { r.Mode = "event" }),
		"both ways":        changed(good, func(r *report.Result) { r.Bidirectional = true }),
		"four repeats":     changed(good, func(r *report.Result) { r.Repeats = r.Repeats[:4] }),
		"no limit":         changed(good, func(r *report.Result) { r.Limit = nil }),
		"another limit":    compared(result("write_lat", 8, 50), measure.Memcpy, 1),
		"below the limit":  compared(result("write_lat", 8, 50), measure.RawLine, 0.89),
		"a ratio of 0":     compared(result("write_lat", 8, 50), measure.RawLine, 0),
		"no number":        compared(result("write_lat", 8, 50), measure.RawLine, math.NaN()),
		"infinite":         compared(result("write_lat", 8, 50), measure.RawLine, math.Inf(1)),
		"negative":         compared(result("write_lat", 8, 50), measure.RawLine, -1),
	} {
		v := bar.judge(&report.Report{Results: []report.Result{r}})
		if v.Outcome != NotMeasured || v.Why == "" || v.Seen != 0 {
			t.Errorf("%s: %v, seen %v (%s)", name, v.Outcome, v.Seen, v.Why)
		}
	}
	if v := bar.judge(&report.Report{Results: []report.Result{good, good}}); v.Outcome != NotMeasured {
		t.Errorf("two figures: %v", v.Outcome)
	}
}

func TestEmptyReportPassesNothing(t *testing.T) {
	verdicts := Check(&report.Report{})
	if len(verdicts) != len(Bars) || Count(verdicts, NotMeasured) != len(Bars) {
		t.Errorf("%d bars, %d verdicts, of which %d say that nothing was measured", len(Bars), len(verdicts), Count(verdicts, NotMeasured))
	}
}

func TestFigures(t *testing.T) {
	one, many := result("send_lat", 8, 100), result("send_lat", 8, 110)
	many.Pairs = 64
	counted := changed(result("arena_memory", 0, 3<<20), func(r *report.Result) { r.Unit, r.Ranks, r.Repeats = "B", 64, r.Repeats[:1] })
	idle := changed(result("blocked", 0, 0), func(r *report.Result) { r.Unit, r.Mode = "%", "event" })
	rep := &report.Report{Results: []report.Result{one, many, counted, idle}}
	for name, c := range map[string]struct {
		figure
		want float64
	}{
		"a quotient":     {manyPairs("send_lat"), 1.1},
		"another scale":  {times(inMiB, value(which{test: "arena_memory", ranks: 64, once: true}, "B")), 3},
		"nothing at all": {value(which{test: "blocked", events: true}, "%"), 0},
	} {
		if got, err := c.figure(rep); err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
	for name, f := range map[string]figure{
		"another unit":       value(ours("send_lat", 8), "msg/s"),
		"half of a quotient": manyPairs("write_lat"),
		"one repeat":         value(which{test: "arena_memory", ranks: 64}, "B"),
	} {
		if got, err := f(rep); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBars: each has an aim that is not easier than what is required, and a name
// of its own.
func TestBars(t *testing.T) {
	seen := map[string]bool{}
	for i := range Bars {
		b := &Bars[i]
		if seen[b.Name] || b.Name == "" {
			t.Errorf("the name %q is taken", b.Name)
		}
		seen[b.Name] = true
		if !b.clears(b.Aim, b.Required) || b.clears(b.Required, b.Aim) {
			t.Errorf("%s: required %v, aim %v", b.Name, b.Required, b.Aim)
		}
	}
}

func TestTable(t *testing.T) {
	bar := &Bar{Name: "a name", Unit: "ns", Required: 35, Aim: 20}
	rate := &Bar{Name: "a rate", Unit: "M/s", Required: 27, Aim: 45, More: true}
	var text strings.Builder
	err := Write(&text, []Verdict{
		{Bar: bar, Outcome: Met, Seen: 33.333}, {Bar: rate, Outcome: Missed, Seen: 1234.5}, {Bar: bar, Outcome: NotMeasured, Why: "nobody has"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `measure  seen      required  aim
a name   33.3 ns   ≤ 35 ns   ≤ 20 ns   met
a rate   1234 M/s  ≥ 27 M/s  ≥ 45 M/s  MISSED
a name   -         ≤ 35 ns   ≤ 20 ns   NOT MEASURED: nobody has
`
	var lines []string
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimRight(line, " \n")+"\n")
	}
	if got := strings.Join(lines, ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestRuns: each names a test, with as many ranks as that takes.
func TestRuns(t *testing.T) {
	tests := map[string]measure.Test{}
	for _, test := range measure.Tests() {
		tests[test.Name] = test
	}
	for _, list := range [][]Run{Quick(), Thorough()} {
		for _, r := range list {
			test, ok := tests[r.Test]
			if !ok || test.Ranks != 0 && test.Ranks != r.Ranks {
				t.Errorf("%s with %d ranks: the test takes %d", r.Test, r.Ranks, test.Ranks)
			}
			if o := r.Options; o.Repeats < leastRepeats || o.Duration == 0 || o.Executor == "" {
				t.Errorf("%s has the options %+v", r.Test, o)
			}
		}
	}
}
