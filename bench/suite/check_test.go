package suite

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// near and far are the lines of a host that moves its cores.
const (
	near = 60
	far  = 300
)

// result returns a result with five steady repeats between near cores.
func result(test string, size int, v float64) report.Result {
	return report.Result{Test: test, Provider: softnd, Unit: "ns", Better: "less", Value: v, Low: v, High: v,
		Repeats: five(v), Drifts: five(1.1), Lines: five(near),
		Settings: report.Settings{Size: size, Pairs: 1, Ranks: 2, Executor: "auto", Memory: "arena", Mode: "polling", Pinned: true}}
}

func five(v float64) []float64 { return []float64{v, v, v, v, v} }

func compared(r report.Result, limit string, ratio float64) report.Result {
	return comparedEach(r, limit, five(ratio))
}

func comparedEach(r report.Result, limit string, ratios []float64) report.Result {
	ratio := median.Of(ratios)
	r.Limit = &report.Limit{Name: limit, Unit: "ns", Value: r.Value / ratio, Ratio: ratio, Ratios: ratios}
	return r
}

func changed(r report.Result, f func(*report.Result)) report.Result {
	f(&r)
	return r
}

var line = bar{required: 1.35, aim: 1.15, figure: toLimit(ours("write_lat", 8), rawLineLimit)}

func check(b bar, results ...report.Result) checkedBar {
	rep := &report.Report{Results: results}
	near, far := distances(rep)
	return b.check(rep, near, far)
}

func TestOutcomes(t *testing.T) {
	more := bar{required: 0.8, aim: 0.95, more: true, figure: toLimit(ours("write_lat", 8), memcpyLimit)}
	for _, c := range []struct {
		bar   bar
		ratio float64
		want  outcome
	}{
		{line, 0.89, suspect}, {line, 0.9, aimMet}, {line, 1.15, aimMet}, {line, 1.16, met}, {line, 1.35, met}, {line, 1.36, missed},
		{more, 0.95, aimMet}, {more, 0.94, met}, {more, 0.8, met}, {more, 0.79, missed},
	} {
		v := check(c.bar, compared(result("write_lat", 8, 50), c.bar.limit, c.ratio))
		if v.outcome != c.want || v.all.value != c.ratio {
			t.Errorf("ratio %v with more better %v: %v, seen %v; want %v", c.ratio, c.bar.more, v.outcome, v.all, c.want)
		}
	}
}

// TestInterval: the median decides a bar, unless the interval is too wide.
func TestInterval(t *testing.T) {
	for name, c := range map[string]struct {
		ratios []float64
		want   outcome
		open   bool
	}{
		"narrow, below the bar":     {[]float64{1.2, 1.3, 1.3, 1.34, 1.4}, met, true},
		"narrow, above the bar":     {[]float64{1.3, 1.3, 1.4, 1.4, 1.4}, missed, true},
		"wide, around the bar":      {[]float64{1, 1.2, 1.3, 1.4, 1.8}, noisy, true},
		"wide, but not at the bar":  {[]float64{1.4, 1.5, 2, 3, 4}, missed, false},
		"clear of the bar":          {[]float64{1.2, 1.2, 1.2, 1.25, 1.3}, met, false},
		"one interruption of seven": {[]float64{1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 9}, aimMet, false},
	} {
		r := result("write_lat", 8, 50)
		r.Repeats, r.Drifts, r.Lines = slices.Repeat([]float64{50}, len(c.ratios)), slices.Repeat([]float64{1}, len(c.ratios)), slices.Repeat([]float64{near}, len(c.ratios))
		if v := check(line, comparedEach(r, rawLineLimit, c.ratios)); v.outcome != c.want || v.open != c.open {
			t.Errorf("%s: %v, open %v; want %v, %v", name, v.outcome, v.open, c.want, c.open)
		}
	}
}

// TestDistances checks that figures of near cores and of far ones are
// compared separately, and that the worse of the two counts.
func TestDistances(t *testing.T) {
	both := func(ratioNear, ratioFar float64) report.Result {
		r := result("write_lat", 8, 50)
		r.Repeats, r.Drifts = append(five(70), five(300)...), append(five(1), five(1)...)
		r.Lines = append(five(near), five(far)...)
		return comparedEach(r, rawLineLimit, append(five(ratioNear), five(ratioFar)...))
	}
	for _, c := range []struct {
		near, far float64
		want      outcome
	}{{1.1, 1.1, aimMet}, {1.3, 1.1, met}, {1.5, 1.1, missed}, {1.1, 1.5, missed}, {1.1, 0.5, suspect}} {
		v := check(line, both(c.near, c.far))
		if v.outcome != c.want || v.near == nil || v.far == nil || v.near.value != c.near || v.far.value != c.far {
			t.Errorf("near %v, far %v: %v, seen %v and %v; want %v", c.near, c.far, v.outcome, v.near, v.far, c.want)
		}
	}
	// A result without lines is checked as a whole, and asked for again if that does not decide.
	noise := comparedEach(changed(result("alloc_noise", 8, 1.3), func(r *report.Result) { r.Lines = nil }), rawLineNoiseLimit, []float64{1, 1, 1.3, 90, 110})
	noise.Repeats = []float64{1, 1, 1.3, 90, 110}
	wide := bar{required: 5, aim: 2, figure: beyondLimit(ours("alloc_noise", 8), rawLineNoiseLimit)}
	if v := check(wide, noise, both(1.1, 1.1)); v.outcome != noisy || !v.open {
		t.Errorf("noise beside two distances: %v, open %v; want %v, open", v.outcome, v.open, noisy)
	}
	// A distance whose interval holds the bar is asked for again, and does not count before it decides.
	for _, c := range []struct {
		near, far float64
		held      int
		want      outcome
	}{{1.4, 1.1, 0, aimMet}, {1.1, 1.4, 5, aimMet}, {1.4, 1.5, 0, missed}} {
		r := both(c.near, c.far)
		r.Limit.Ratios[c.held], r.Limit.Ratios[c.held+1] = 1.3, 1.3
		if v := check(line, r); v.outcome != c.want || !v.open || len(v.undecided) != 1 {
			t.Errorf("near %v, far %v, one undecided: %v, open %v, undecided %q; want %v", c.near, c.far, v.outcome, v.open, v.undecided, c.want)
		}
	}
	v := check(line, changed(both(1.1, 1.1), func(r *report.Result) {
		for i := range 4 {
			r.Drifts[5+i] = 2
		}
	}))
	if v.far != nil || v.outcome != aimMet {
		t.Errorf("one steady repeat of far cores counts: %v, %v", v.far, v.outcome)
	}
}

// TestSingleDistance checks that the noise of one distance is not taken for two.
func TestSingleDistance(t *testing.T) {
	r := result("write_lat", 8, 50)
	r.Repeats, r.Drifts, r.Lines = nil, nil, nil
	for i := range 20 {
		r.Repeats, r.Drifts, r.Lines = append(r.Repeats, 50), append(r.Drifts, 1), append(r.Lines, near*(1+float64(i)/10))
	}
	if near, far := distances(&report.Report{Results: []report.Result{r}}); near != nil || far != nil {
		t.Errorf("lines from 60 to 174 ns are at the distances %v and %v", near, far)
	}
	r.Lines[19] = 10000
	if near, _ := distances(&report.Report{Results: []report.Result{r}}); near != nil {
		t.Errorf("a single line makes a distance of its own, above %v", near)
	}
}

// TestNotMeasured checks that a missing or unsuitable figure is never a pass.
func TestNotMeasured(t *testing.T) {
	good := compared(result("write_lat", 8, 50), rawLineLimit, 1)
	if v := check(line, good); v.outcome != aimMet {
		t.Fatalf("the good one: %v (%s)", v.outcome, v.why)
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
		"four are steady":  changed(good, func(r *report.Result) { r.Drifts = []float64{1, 1, 1, 1, 1.3} }),
		"no limit":         changed(good, func(r *report.Result) { r.Limit = nil }),
		"another limit":    compared(result("write_lat", 8, 50), memcpyLimit, 1),
		"a ratio of 0":     compared(result("write_lat", 8, 50), rawLineLimit, 0),
		"no number":        compared(result("write_lat", 8, 50), rawLineLimit, math.NaN()),
		"infinite":         compared(result("write_lat", 8, 50), rawLineLimit, math.Inf(1)),
		"negative":         compared(result("write_lat", 8, 50), rawLineLimit, -1),
	} {
		if v := check(line, r); v.outcome != notMeasured || v.why == "" || v.all != nil {
			t.Errorf("%s: %v, seen %v (%s)", name, v.outcome, v.all, v.why)
		}
	}
	if v := check(line, good, good); v.outcome != notMeasured {
		t.Errorf("two figures: %v", v.outcome)
	}
}

func TestEmptyReportPassesNothing(t *testing.T) {
	c := checkAll(&report.Report{})
	if len(c.checked) != len(bars) || c.count(notMeasured) != len(bars) || c.err() == nil {
		t.Errorf("%d bars, %d results, of which %d say that nothing was measured: %v", len(bars), len(c.checked), c.count(notMeasured), c.err())
	}
}

func TestFigures(t *testing.T) {
	one, many := compared(result("send_lat", 8, 100), rawLineLimit, 1.1), compared(result("send_lat", 8, 500), rawLineLimit, 1.21)
	many.Pairs = 64
	counted := changed(result("arena_memory", 0, 3<<20), func(r *report.Result) {
		r.Unit, r.Ranks, r.Repeats, r.Drifts, r.Lines = "B", 64, r.Repeats[:1], nil, nil
	})
	idle := changed(result("blocked", 0, 0), func(r *report.Result) { r.Unit, r.Mode, r.Drifts, r.Lines = "%", "event", nil, nil })
	noise := compared(changed(result("alloc_noise", 8, 30), func(r *report.Result) { r.Unit = "ratio" }), rawLineNoiseLimit, 2)
	calm := compared(changed(result("alloc_noise", 16, 3), func(r *report.Result) { r.Unit = "ratio" }), rawLineNoiseLimit, 6)
	rep := &report.Report{Results: []report.Result{one, many, counted, idle, noise, calm}}
	for name, c := range map[string]struct {
		figure
		want float64
	}{
		"a quotient of ratios":     {manyPairs("send_lat"), 1.1},
		"another scale":            {value(selector{test: "arena_memory", ranks: 64, once: true}, "B", inMiB), 3},
		"nothing at all":           {value(selector{test: "blocked", events: true}, "%", 1), 0},
		"beyond a noisy machine":   {beyondLimit(ours("alloc_noise", 8), rawLineNoiseLimit), 2},
		"beyond a machine at rest": {beyondLimit(ours("alloc_noise", 16), rawLineNoiseLimit), 3},
	} {
		if got, err := c.estimate(&view{rep: rep}); err != nil || math.Abs(got.value-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
	for name, f := range map[string]figure{
		"another unit":       value(ours("send_lat", 8), "msg/s", 1),
		"half of a quotient": manyPairs("write_lat"),
		"one repeat":         value(selector{test: "arena_memory", ranks: 64}, "B", 1),
	} {
		if got, err := f.estimate(&view{rep: rep}); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got, err := value(selector{test: "arena_memory", once: true}, "B", 1).estimate(&view{rep, &distance{0, 100, 60}}); err == nil {
		t.Errorf("a figure without a line has a distance: %v", got)
	}
}

// TestBars checks that each bar has an aim that is not easier than the required figure, a unique name, and a run that
// measures it.
func TestBars(t *testing.T) {
	names := map[string]bool{}
	for i := range bars {
		b := &bars[i]
		if names[b.name] || b.name == "" {
			t.Errorf("the name %q is taken", b.name)
		}
		names[b.name] = true
		if !b.clears(b.aim, b.required) || b.clears(b.required, b.aim) {
			t.Errorf("%s: required %v, aim %v", b.name, b.required, b.aim)
		}
		for _, w := range b.of {
			if !slices.ContainsFunc(planOf(true).runs, func(r Run) bool { return r.measures(w) }) {
				t.Errorf("%s: no run measures %v", b.name, w)
			}
		}
		if b.unit == "ns" || b.unit == "µs" || strings.HasSuffix(b.unit, "/s") {
			t.Errorf("%s: %v %s is a figure of one machine", b.name, b.required, b.unit)
		}
	}
}

func TestTable(t *testing.T) {
	percent := &bar{name: "a name", unit: "%", required: 35, aim: 20}
	rate := &bar{name: "a rate", required: 27, aim: 45, more: true, figure: toLimit(ours("msg_rate", 8), rawLineLimit)}
	c := &results{nearLine: 60, farLine: 300, rep: &report.Report{}, checked: []checkedBar{
		{bar: percent, outcome: met, all: &estimate{value: 33.333, low: 30, high: 40}},
		{bar: rate, outcome: missed, all: &estimate{value: 1234.5, low: 1000, high: 2000}, near: &estimate{value: 7}},
		{bar: percent, outcome: notMeasured, why: "no repeats"},
	}}
	c.rep.Results = []report.Result{changed(compared(result("msg_rate", 8, 1), rawLineLimit, 2), func(r *report.Result) { r.Provider = UCX })}
	var text strings.Builder
	if err := c.write(&text); err != nil {
		t.Fatal(err)
	}
	const want = `The distance of the cores changed: near, where a cache line takes 60.0 ns, and far, where it takes 300 ns.

measure  seen    95 % from  to    near  far  UCX  required  aim
a name   33.3 %  30 %       40 %                  ≤ 35 %    ≤ 20 %  met
a rate   1234    1000       2000  7          2    ≥ 27      ≥ 45    MISSED
a name   -                                        ≤ 35 %    ≤ 20 %  NOT MEASURED: no repeats
`
	var lines []string
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimRight(line, " \n")+"\n")
	}
	if got := strings.Join(lines, ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPlans: each run names a test, and has its number of ranks.
func TestPlans(t *testing.T) {
	tests := map[string]measure.Test{}
	for _, test := range measure.Tests() {
		tests[test.Name] = test
	}
	for _, p := range []plan{planOf(true), planOf(false)} {
		for _, r := range p.runs {
			test, ok := tests[r.Test]
			if !ok || test.Ranks != 0 && test.Ranks != r.Ranks {
				t.Errorf("%s with %d ranks: the test takes %d", r.Test, r.Ranks, test.Ranks)
			}
			if o := r.Options; o.Repeats < minRepeats || o.Duration == 0 || o.Executor == "" {
				t.Errorf("%s has the options %+v", r.Test, o)
			}
		}
	}
}

// TestRounds: a long run is made once, and extra rounds consist of the runs whose bars are undecided.
func TestRounds(t *testing.T) {
	p := plan{rounds: 2, extra: 1}
	undecided := compared(result("write_lat", 8, 50), rawLineLimit, 1)
	undecided.Limit.Ratios = []float64{1, 1.2, 1.3, 1.4, 1.8}
	decided := compared(result("bind_invalidate", 4096, 50), lockedExchangeLimit, 9)
	c := checkAll(&report.Report{Results: []report.Result{undecided, decided}})
	lat, bind := pinned("write_lat", measure.Options{Pairs: 1}), pinned("bind_invalidate", measure.Options{Pairs: 1})
	for _, x := range []struct {
		round int
		run   Run
		want  bool
	}{{0, lat, true}, {1, bind, true}, {2, bind, false}, {2, lat, true}, {0, once(lat), true}, {1, once(lat), false}, {2, once(lat), true}} {
		if got := p.wants(x.round, x.run, c); got != x.want {
			t.Errorf("round %d, %s, once %v: %v", x.round, x.run.Test, x.run.once, got)
		}
	}
}

// TestMeasure: every job runs in the first round, failed jobs are named, and rounds continue while a bar is open.
func TestMeasure(t *testing.T) {
	jobs := map[int]int{} // by round
	between := 0
	found, err := Measure(true, func(round int, r Run) ([]report.Result, error) {
		jobs[round]++
		if r.Test == "posted" && round == 1 {
			return nil, errors.New("no memory")
		}
		if r.Test != "write_lat" {
			return nil, nil
		}
		pairs := changed(result("write_lat", 8, 50), func(x *report.Result) { x.Pairs = r.Options.Pairs })
		return []report.Result{compared(pairs, rawLineLimit, 1)}, nil
	}, func() []report.Result {
		between++
		return []report.Result{{Test: "write_lat", Provider: UCX}}
	})
	if err == nil || err.Error() != "suite: posted with 2 ranks: no memory" {
		t.Errorf("error %v", err)
	}
	if len(found) != 3 || found[2].Provider != UCX || between != 1 {
		t.Errorf("results %+v after %d calls of between", found, between)
	}
	p := planOf(true)
	if n := len(found[0].Repeats); n != 5*p.rounds {
		t.Errorf("%d repeats of a decided figure, want those of %d rounds", n, p.rounds)
	}
	if len(jobs) != p.rounds+p.extra || jobs[1] != len(p.runs) || jobs[2] >= jobs[1] {
		t.Errorf("jobs by round: %v, of %d", jobs, len(p.runs))
	}
}
