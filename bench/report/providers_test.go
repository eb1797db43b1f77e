package report

import (
	"bytes"
	"strings"
	"testing"
)

const sideBySide = `Example(R) Processor 9000, 2 cores, kernel 6.18.44, linux/amd64, go1.26.8
softnd unknown, 2026-03-04 05:06 UTC, ndbench suite --quick

test         size     softnd               95 %  of limit    mpich          95 %        ucx            95 %  of limit  better
send_lat      8 B    61.2 ns  *    55.1–67.4 ns    1.20 ×  90.0 ns  81.0–99.0 ns          –                            less
send_lat   64 KiB    9.00 µs       8.10–9.90 µs    1.50 ×  8.00 µs  7.20–8.80 µs          –                            less
write_bw    1 MiB  12.3 GB/s  *  11.1–13.6 GB/s   0.950 ×        –                9.00 GB/s  8.10–9.90 GB/s   0.700 ×  more
barrier   8 ranks          –                                     –                   100 ns     90.0–110 ns            less
* the best of its row, by more than the intervals
`

// providers returns a report in which a provider has two figures for a row, a row has one provider, and a provider
// lacks the first test.
func providers() *Report {
	r := sample()
	r.Results = nil
	add := func(test, provider string, size, ranks int, unit, better string, value, ratio float64) {
		one := Result{Test: test, Provider: provider, Unit: unit, Better: better, Value: value,
			Repeats: []float64{value, value, value}, Low: value * 0.9, High: value * 1.1}
		one.Size, one.Ranks = size, ranks
		if ratio > 0 {
			one.Limit = &Limit{Name: "raw_line", Unit: unit, Value: value / ratio, Ratio: ratio}
		}
		r.Results = append(r.Results, one)
	}
	add("send_lat", "mpich", 8, 2, "ns", "less", 90, 0)
	add("send_lat", "softnd", 8, 2, "ns", "less", 70, 1.4)
	add("send_lat", "softnd", 8, 2, "ns", "less", 61.25, 1.2)
	add("send_lat", "softnd", 64<<10, 2, "ns", "less", 9000, 1.5)
	add("send_lat", "mpich", 64<<10, 2, "ns", "less", 8000, 0)
	add("write_bw", "softnd", 1<<20, 2, "MB/s", "more", 12345, 0.95)
	add("write_bw", "ucx", 1<<20, 2, "MB/s", "more", 9000, 0.7)
	add("barrier", "ucx", 0, 8, "ns", "less", 100, 0)
	return r
}

func TestProvidersSideBySide(t *testing.T) {
	var b bytes.Buffer
	if err := providers().WriteProviders(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != sideBySide {
		t.Errorf("got\n%s\nwant\n%s", b.String(), sideBySide)
	}
}

// TestNoStarWithoutAnInterval: a star needs enough repeats to know the noise.
func TestNoStarWithoutAnInterval(t *testing.T) {
	r := providers()
	for i := range r.Results {
		r.Results[i].Repeats = r.Results[i].Repeats[:2]
	}
	var b bytes.Buffer
	if err := r.WriteProviders(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "*"); n != 1 {
		t.Errorf("%d stars, and that of the legend is one:\n%s", n, b.String())
	}
}

func TestBestKeepsOneFigureOfEachProvider(t *testing.T) {
	best := providers().Best()
	if len(best.Results) != 7 {
		t.Errorf("%d figures, want 7", len(best.Results))
	}
	for _, r := range best.Results {
		if r.Provider == "softnd" && r.Size == 8 && r.Value != 61.25 {
			t.Errorf("the best of 70 and 61.25 ns is %v", r.Value)
		}
	}
}
