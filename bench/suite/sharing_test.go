package suite

import (
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/report"
)

// TestSharedCores: repeats on a shared core do not count, if others show that it was shared.
func TestSharedCores(t *testing.T) {
	posted := bar{required: 5.5, aim: 3, figure: toLimit(ours("posted", 8), lockedExchangeLimit)}
	repeats := func(whole, shared int) report.Result {
		n := whole + shared
		r := result("posted", 8, 50)
		r.Repeats, r.Drifts, r.Lines = slices.Repeat([]float64{50}, n), slices.Repeat([]float64{1}, n), slices.Repeat([]float64{near}, n)
		r.Widths = append(slices.Repeat([]float64{3.8}, whole), slices.Repeat([]float64{2}, shared)...)
		return comparedEach(r, lockedExchangeLimit, append(slices.Repeat([]float64{5}, whole), slices.Repeat([]float64{7}, shared)...))
	}
	other := changed(result("bind_invalidate", 4096, 50), func(r *report.Result) { r.Widths = five(3.8) })
	for name, c := range map[string]struct {
		results []report.Result
		want    outcome
		value   float64
		open    bool
		shared  int
	}{
		"whole":                    {[]report.Result{repeats(20, 0)}, met, 5, false, 0},
		"shared most of the time":  {[]report.Result{repeats(5, 100)}, met, 5, false, 100},
		"shared all the time":      {[]report.Result{repeats(0, 20)}, missed, 7, false, 0},
		"whole by chance":          {[]report.Result{repeats(4, 20)}, missed, 7, false, 0},
		"whole for another figure": {[]report.Result{repeats(4, 20), other}, notMeasured, 0, true, 20},
		"widths not measured":      {[]report.Result{changed(repeats(2, 3), func(r *report.Result) { r.Widths = nil })}, missed, 7, true, 0},
	} {
		rep := &report.Report{Results: c.results}
		v := check(posted, c.results...)
		if v.outcome != c.want || v.open != c.open || v.all != nil && v.all.value != c.value {
			t.Errorf("%s: %v, seen %+v, open %v; want %v, %v, %v", name, v.outcome, v.all, v.open, c.want, c.value, c.open)
		}
		if n, _ := shared(rep); n != c.shared {
			t.Errorf("%s: %d shared repeats, want %d", name, n, c.shared)
		}
		var table strings.Builder
		if err := checkAll(rep).write(&table); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(table.String(), "used the other thread of a core"); got != (c.shared > 0) {
			t.Errorf("%s: the table reports shared cores: %v\n%s", name, got, table.String())
		}
	}
}
