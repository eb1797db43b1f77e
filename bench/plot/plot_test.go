package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/plot"
	"github.com/softnd/softnd/bench/report"
)

func save(t *testing.T, name string, reports ...*report.Report) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := plot.Save(path, reports...); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// texts returns the texts of an SVG in the order in which they are drawn.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var all []string
	d := xml.NewDecoder(bytes.NewReader(svg))
	inside := false
	for {
		switch token, err := d.Token(); token := token.(type) {
		case nil:
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return all
		case xml.StartElement:
			inside = token.Name.Local == "text"
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				all = append(all, string(token))
			}
		}
	}
}

func TestSVGNamesCurves(t *testing.T) {
	got := texts(t, save(t, "a.svg", sample()))
	for _, want := range []string{
		"Latency and bandwidth by size",
		"Example(R) Processor 9000, 2 cores, kernel 6.18.44, linux/amd64, go1.26.8, softnd 0123456789ab+modified",
		"write_lat, depth 16", "write_bw, not pinned",
		"softnd", "softnd, target executes", "ucx", "libfabric", "limit: memcpy",
		"8 B", "512 B", "32 KiB", "512 KiB", "size",
		"100 ns", "1 µs", "100 µs", "time of one operation",
		"10", "bandwidth in GB/s",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if i := slices.IndexFunc(got, func(s string) bool { return strings.Contains(s, "bind_invalidate") }); i >= 0 {
		t.Errorf("a test of one size is drawn: %q", got[i])
	}
}

func TestPNGHasLinesOnWhite(t *testing.T) {
	picture, err := png.Decode(bytes.NewReader(save(t, "a.PNG", sample())))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[color.RGBA]int{}
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			seen[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	white := color.RGBA{R: 255, G: 255, B: 255, A: 255}
	if seen[white] < b.Dx()*b.Dy()*3/4 {
		t.Errorf("%d of %d points are white", seen[white], b.Dx()*b.Dy())
	}
	for _, line := range []color.RGBA{{R: 0x00, G: 0x72, B: 0xb2, A: 255}, {R: 0xd5, G: 0x5e, B: 0x00, A: 255}} {
		if seen[line] < 1000 {
			t.Errorf("%d points of the colour %v", seen[line], line)
		}
	}
}

func TestPlotIsDeterministic(t *testing.T) {
	for name, times := range map[string]int{"a.png": 1, "a.svg": 5} { // a PNG takes long
		first := save(t, name, sample(), sample())
		for range times {
			if !bytes.Equal(first, save(t, name, sample(), sample())) {
				t.Errorf("%s differs from time to time", name)
			}
		}
	}
}

// TestIntervalsAreDrawn: an interval is drawn if it is higher than its mark.
func TestIntervalsAreDrawn(t *testing.T) {
	strokes := func(wide float64) int {
		r := sample()
		for i := range r.Results {
			one := &r.Results[i]
			one.Low, one.High = one.Value/wide, one.Value*wide
		}
		return bytes.Count(save(t, "a.svg", r), []byte("<path"))
	}
	points := 0
	for _, r := range sample().Results {
		if r.Size > 64 || r.Test == "write_lat" {
			points++
		}
	}
	narrow, wide := strokes(1.0001), strokes(1.5)
	if more := wide - narrow; more < points/2*3 || narrow < points {
		t.Errorf("%d strokes with narrow intervals, %d with wide ones of %d points", narrow, wide, points)
	}
}

func TestSeveralReportsAreToldApart(t *testing.T) {
	other := sample()
	other.Machine.Kernel = "7.0"
	other.Results = other.Results[:20]
	got := texts(t, save(t, "a.svg", sample(), other))
	for _, want := range []string{"softnd (1)", "softnd (2)", "ucx (1)", "ucx (2)"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	for _, want := range []string{"1: Example(R) Processor 9000, 2 cores, kernel 6.18.44", "2: Example(R) Processor 9000, 2 cores, kernel 7.0"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	one := sample()
	one.Results = one.Results[len(one.Results)-1:]
	dir := t.TempDir()
	for _, c := range []struct {
		path    string
		reports []*report.Report
		says    string
	}{
		{"a.pdf", []*report.Report{sample()}, ".png or .svg"},
		{"a", []*report.Report{sample()}, ".png or .svg"},
		{"none/a.png", []*report.Report{sample()}, "none"},
		{"a.png", []*report.Report{one}, "two or more sizes"},
		{"a.png", nil, "two or more sizes"},
	} {
		err := plot.Save(filepath.Join(dir, c.path), c.reports...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v does not say %q", c.path, err, c.says)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Lines of several reports have the names of their files.
func TestReportsAreNamed(t *testing.T) {
	named := func(names ...string) []*report.Report {
		var all []*report.Report
		for _, name := range names {
			r := sample()
			r.Name = name
			all = append(all, r)
		}
		return all
	}
	for _, tc := range []struct{ names, want []string }{
		{[]string{"a/old.json", "a/new.json"}, []string{"old", "new"}},
		{[]string{"a/out.json", "b/out.json"}, []string{"a/out.json", "b/out.json"}},
		{[]string{"", ""}, []string{"1", "2"}},
	} {
		got := texts(t, save(t, "a.svg", named(tc.names...)...))
		for _, name := range tc.want {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, name+": ") }) || !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " ("+name+")") }) {
				t.Errorf("%q: no %q in %q", tc.names, name, got)
			}
		}
	}
}
