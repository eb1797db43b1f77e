package report

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// noisy returns a report of n results of five repeats each, with 3 % of noise, and each result multiplied by its
// factor.
func noisy(seed uint64, n int, better string, factor func(i int) float64) *Report {
	random := rand.New(rand.NewPCG(seed, 0))
	r := sample()
	r.Results = nil
	for i := range n {
		one := Result{
			Test: "write_lat", Provider: "softnd", Settings: Settings{Size: 1 << i, Iterations: int(seed)},
			Unit: "ns", Better: better,
		}
		for range 5 {
			one.Repeats = append(one.Repeats, 100*factor(i)*(1+0.03*random.NormFloat64()))
		}
		r.Results = append(r.Results, one)
	}
	return r
}

func asBefore(int) float64 { return 1 }

func mustCompare(t *testing.T, old, new *Report) *comparison {
	t.Helper()
	c, err := compare(old, new)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNoiseIsNoChange(t *testing.T) {
	const runs = 400
	alarms := 0
	for seed := range uint64(runs) {
		c := mustCompare(t, noisy(2*seed, 20, "less", asBefore), noisy(2*seed+1, 20, "less", asBefore))
		if c.count(improved)+c.count(worsened) > 0 {
			alarms++
		}
	}
	if alarms > runs*5/100 {
		t.Errorf("%d of %d comparisons found a change where there is none", alarms, runs)
	}
}

func TestCompareFindsChangeInNoise(t *testing.T) {
	const runs, at = 200, 7
	found := 0
	for seed := range uint64(runs) {
		slower := func(i int) float64 {
			if i == at {
				return 1.2
			}
			return 1
		}
		c := mustCompare(t, noisy(2*seed, 20, "less", asBefore), noisy(2*seed+1, 20, "less", slower))
		if c.changes[at].outcome == worsened {
			found++
		}
	}
	if found < runs*9/10 {
		t.Errorf("a change of 20 %% was found in %d of %d comparisons", found, runs)
	}
}

func TestCompareReportsDirection(t *testing.T) {
	twice := func(int) float64 { return 2 }
	for _, c := range []struct {
		better string
		before func(int) float64
		after  func(int) float64
		want   string
	}{
		{"less", asBefore, twice, worsened},
		{"less", twice, asBefore, improved},
		{"more", asBefore, twice, improved},
		{"more", twice, asBefore, worsened},
	} {
		got := mustCompare(t, noisy(1, 1, c.better, c.before), noisy(2, 1, c.better, c.after))
		if v := got.changes[0].outcome; v != c.want || got.count(c.want) != 1 {
			t.Errorf("%s is better: %s, want %s", c.better, v, c.want)
		}
	}
}

func one(change func(*Result)) *Report {
	r := noisy(1, 1, "less", asBefore)
	r.Results[0].Repeats = []float64{100, 101, 102, 103, 104}
	change(&r.Results[0])
	return r
}

func TestComparePrefersRatios(t *testing.T) {
	with := func(ratios ...float64) func(*Result) {
		return func(r *Result) {
			r.Limit = &Limit{Name: "raw_line", Unit: "ns", Value: 90, Ratio: 1.12, Ratios: ratios}
		}
	}
	ratios := []float64{1.10, 1.11, 1.12, 1.13, 1.14}
	halfSpeed := func(r *Result) {
		with(ratios...)(r)
		for i := range r.Repeats {
			r.Repeats[i] *= 2
		}
	}
	c := mustCompare(t, one(with(ratios...)), one(halfSpeed)).changes[0]
	if c.compared != "ratio" || c.outcome != unchanged {
		t.Errorf("a slower machine: compared the %s, found it %s", c.compared, c.outcome)
	}
	c = mustCompare(t, one(with(ratios...)), one(with())).changes[0]
	if c.compared != "value" {
		t.Errorf("ratios in one report only: compared the %s", c.compared)
	}
}

func TestOutcomesAtEdges(t *testing.T) {
	repeats := func(v ...float64) func(*Result) { return func(r *Result) { r.Repeats = v } }
	for _, c := range []struct {
		name     string
		old, new func(*Result)
		want     string
	}{
		{"two repeats", repeats(100, 101), repeats(200, 201, 202, 203), unclear},
		{"the same figure always", repeats(5, 5, 5), repeats(5, 5, 5), unchanged},
		{"another figure always", repeats(100, 100, 100), repeats(110, 110, 110), worsened},
		{"a certain but small change", repeats(100, 100, 100), repeats(101, 101, 101), unchanged},
		{"from nothing", repeats(0, 0, 0), repeats(1, 1, 1), worsened},
		{"to nothing", repeats(1, 1, 1), repeats(0, 0, 0), improved},
		{"nothing", repeats(0, 0, 0), repeats(0, 0, 0), unchanged},
		{"a large change in larger noise", repeats(100, 150, 220), repeats(120, 180, 250), unchanged},
	} {
		if got := mustCompare(t, one(c.old), one(c.new)).changes[0].outcome; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWelchAgreesWithTheTables(t *testing.T) {
	// Two samples of five, whose means differ by t standard errors: 8 degrees of freedom.
	for _, c := range []struct{ t, want float64 }{{2.306, 0.05}, {3.355, 0.01}, {5.041, 0.001}} {
		shift := c.t // each sample's mean has a squared standard error of 1/2
		at := func(by float64) func(*Result) {
			return func(r *Result) {
				r.Repeats = []float64{100 + by - 2, 100 + by - 1, 100 + by, 100 + by + 1, 100 + by + 2}
			}
		}
		got := mustCompare(t, one(at(0)), one(at(shift))).changes[0].chance
		if got < c.want*0.998 || got > c.want*1.002 {
			t.Errorf("t = %v: chance %v, want %v", c.t, got, c.want)
		}
	}
}

func TestResultsAreMatched(t *testing.T) {
	r := sample()
	old, new := sample(), sample()
	old.Results = append(r.Results, Result{Test: "read_lat", Provider: "softnd", Unit: "ns", Better: "less", Repeats: []float64{1}})
	new.Results = []Result{r.Results[2], r.Results[0], r.Results[0]}
	new.Results[0].Iterations = 77
	new.Results[2].Depth++
	c := mustCompare(t, old, new)
	if got := fmt.Sprint(labels(c)); got != "[send_bw 1048576 write_lat 65536] [write_lat 8 read_lat 0] [write_lat 65536]" {
		t.Errorf("matched, only old, only new: %s", got)
	}
	old.Results = []Result{r.Results[1]}
	if _, err := compare(old, new); err == nil {
		t.Error("reports with nothing in common were compared")
	}
	old.Results = []Result{new.Results[0]}
	old.Results[0].Better = "less"
	if _, err := compare(old, new); err == nil {
		t.Error("reports with opposite directions were compared")
	}
}

func labels(c *comparison) string {
	name := func(all []Result) string {
		var names []string
		for _, r := range all {
			names = append(names, fmt.Sprint(r.Test, " ", r.Size))
		}
		return "[" + strings.Join(names, " ") + "]"
	}
	var both []Result
	for _, one := range c.changes {
		both = append(both, one.new)
	}
	return name(both) + " " + name(c.onlyOld) + " " + name(c.onlyNew)
}

const comparisonTable = `old: softnd unknown on Example(R) Processor 9000, 2 cores, kernel 6.18.44, linux/amd64, go1.26.8
new: softnd abc on Example(R) Processor 9000, 1 core, kernel 6.18.44, linux/amd64, go1.26.8
The machines differ, so not every change is one of softnd.
2 compared: 0 better, 1 worse, 0 same, 1 unclear

test       provider    size  settings                                                                         compared             old      new   change  by chance
write_lat  softnd    64 KiB  depth 16, 64 pairs, 4 ranks, events, target executes, private memory, both ways  ratio to memcpy     1.73     2.13  +23.3 %    < 0.001  worse
write_lat  ucx          8 B  not pinned                                                                       value            61.2 ns  61.2 ns   +0.0 %             unclear: fewer than 3 repeats

only in the old report
test     provider   size  settings     median
send_bw  softnd    1 MiB  depth 8   12.3 GB/s

only in the new report
test     provider   size  settings     median
read_bw  softnd    1 MiB  depth 8   12.3 GB/s
`

func TestComparisonTable(t *testing.T) {
	old, new := sample(), sample()
	new.Machine.Softnd, new.Machine.Cores = "abc", 1
	new.Results[0].Limit.Ratios = []float64{2.12, 2.13, 2.14}
	new.Results[2].Test = "read_bw"
	var b bytes.Buffer
	if changed, err := Compare(&b, old, new); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if b.String() != comparisonTable {
		t.Errorf("got\n%s\nwant\n%s", b.String(), comparisonTable)
	}
}

// TestNothingToCompare: if no results match, the error names the differences.
func TestNothingToCompare(t *testing.T) {
	of := func(change func(*Result)) *Report {
		r := Result{Test: "write_lat", Provider: "softnd", Unit: "ns", Better: "less", Value: 1, Repeats: []float64{1}, Low: 1, High: 1}
		r.Size, r.Ranks, r.Pinned = 8, 2, true
		change(&r)
		return &Report{Results: []Result{r}}
	}
	old := of(func(*Result) {})
	for want, new := range map[string]*Report{
		"the old report has the tests write_lat, the new one read_lat": of(func(r *Result) { r.Test = "read_lat" }),
		"size 8 and 64, pinned true and false":                         of(func(r *Result) { r.Size, r.Pinned = 64, false }),
		"provider softnd and ucx":                                      of(func(r *Result) { r.Provider = "ucx" }),
		"the new one 0":                                                {},
	} {
		if _, err := compare(old, new); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}
