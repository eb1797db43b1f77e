package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/report"
)

func sample() *report.Report {
	posted := func(depth int, ns float64) report.Result {
		return report.Result{Test: "posted", Provider: "softnd", Settings: report.Settings{Size: 8, Depth: depth}, Unit: "ns", Better: "less",
			Value: ns, Low: ns - 1, High: ns + 1, Repeats: []float64{ns}, Limit: &report.Limit{Name: "locked_exchange", Unit: "ns", Value: 5, Ratio: ns / 5}}
	}
	return &report.Report{
		Machine: report.Machine{Processor: "P", Cores: 2, Kernel: "6", System: "linux/amd64", Go: "go1"},
		Results: []report.Result{posted(1, 23.46), posted(16, 19.9),
			{Test: "msg_rate", Provider: "softnd", Settings: report.Settings{Size: 8}, Unit: "msg/s", Better: "more", Value: 34.51e6}},
	}
}

func TestFill(t *testing.T) {
	for name, want := range map[string]string{
		"posted size=8 depth=1":            "23 ns",
		"posted depth=16":                  "20 ns",
		"posted size=8 depth=1 show=ratio": "4.7",
		"posted size=8 depth=1 show=limit": "5 ns",
		"posted size=8 depth=1 show=range": "22.5–24.5 ns",
		"msg_rate":                         "35 M msg/s",
		"machine":                          "P, 2 cores, kernel 6, linux/amd64, go1",
	} {
		before, after := "It takes <!--figure "+name+"-->", "<!--/--> here.\n"
		got, changes, err := fill("one\n"+before+"7 ns"+after, sample())
		if err != nil || got != "one\n"+before+want+after {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
		if len(changes) != 1 || changes[0] != (change{2, name, "7 ns", want}) {
			t.Errorf("%s: changes %+v", name, changes)
		}
		if _, changes, _ := fill(got, sample()); len(changes) != 0 {
			t.Errorf("%s: the second time, too, %+v changes", name, changes)
		}
	}
}

func TestFillRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no such test":    "x <!--figure write_lat-->1<!--/-->",
		"two of them":     "x <!--figure posted size=8-->1<!--/-->",
		"a setting":       "x <!--figure posted deep=1-->1<!--/-->",
		"no number":       "x <!--figure posted depth=x-->1<!--/-->",
		"no such show":    "x <!--figure posted depth=1 show=all-->1<!--/-->",
		"no limit":        "x <!--figure msg_rate show=ratio-->1<!--/-->",
		"no end":          "x <!--figure posted depth=1-->1 ns",
		"no name":         "x <!--figure -->1<!--/-->",
		"a line's start":  "one\n<!--figure posted depth=1-->1<!--/--> ns",
		"no end, another": "x <!--figure posted depth=1-->1 <!--figure msg_rate-->2<!--/-->",
	} {
		if got, _, err := fill(text, sample()); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestPage: a check writes nothing, and the next run what differs.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const text = "It takes <!--figure posted depth=1-->99 ns<!--/-->\n"
	read := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := page(path, sample(), true); err != nil || read() != text {
		t.Errorf("after a check: %q, %v", read(), err)
	}
	if err := page(path, sample(), false); err != nil || !strings.Contains(read(), ">23 ns<") {
		t.Errorf("%q, %v", read(), err)
	}
}

func TestBenchmarks(t *testing.T) {
	found := benchmarks(`goos: linux
BenchmarkHotPath/Write8-2         	  198859	        27.50 ns/op
BenchmarkHotPath/Write8-2         	  198859	        29.50 ns/op
BenchmarkHotPath/Receive8Send8x16-2         	   10174	       599.9 ns/op	        37.49 ns/message
BenchmarkHotPath/BindInvalidate-2           	  103201	        58.35 ns/op	       0 B/op	       0 allocs/op
PASS
`)
	want := map[string]float64{"hotpath_write8": 28.5, "hotpath_receive8send8x16": 37.49, "hotpath_bindinvalidate": 58.35}
	if len(found) != len(want) {
		t.Fatalf("%+v", found)
	}
	for _, r := range found {
		if r.Value != want[r.Test] {
			t.Errorf("%s: %v, want %v", r.Test, r.Value, want[r.Test])
		}
	}
}

// TestLeaveOutRepeats: a result without its repeats can be read.
func TestLeaveOutRepeats(t *testing.T) {
	rep := sample()
	rep.Machine.Softnd, rep.Results = "v0", rep.Results[:1]
	r := &rep.Results[0]
	five := []float64{23, 23, 23.46, 24, 24}
	r.Repeats, r.Drifts, r.Lines, r.Widths, r.Limit.Ratios = five, five, five, five, five
	leaveOutRepeats(r)
	var text strings.Builder
	if err := rep.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	if _, err := report.ReadJSON(strings.NewReader(text.String())); err != nil {
		t.Error(err)
	}
}
