package peers

import (
	"math"
	"strings"
	"testing"
)

// fiHead is the first line of programs of libfabric.
const fiHead = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"

func TestParse(t *testing.T) {
	const ucxHead = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
	mpi := func(text string) (float64, error) {
		found, err := parseMPI("mpiexec.some", text)
		return found.ns, err
	}
	for _, tc := range []struct {
		name  string
		parse func(string) (float64, error)
		text  string
		ns    float64
	}{
		{"ucx", parseUCX, ucxHead + "4000,0.05,0.05,0.05,160.0,150.0,21000000,20000000\n", 50},
		{"ucx, padded", parseUCX, ucxHead + " 200,90.1,100.2,100.2,9000.0,9000.0,10000,10000\n", 100_000},
		{"ucx, with a warning", parseUCX, "[1.5] sys.c:1 UCX WARN slow\n" + ucxHead + "[1.6] a:2 UCX WARN slow\n" +
			"10,1,1,1,1,1,1,1000\n", 1e6},
		{"ucx, other columns", parseUCX, "iterations,overall_mr,more\n10,1000,7\n", 1e6},
		{"libfabric, more digits in the rate", parsePingpong, fiHead + "64k  2k  =2k  250m  0.02s  13107.20  5.01  0.20\n", 5000},
		{"libfabric, more digits in the time", parsePingpong, fiHead + "8  100  =100  1.5k  0.49s  0.00  2441.50  0.00\n", 2_441_500},
		{"libfabric, fraction of a kilobyte", parsePingpong, fiHead + "1.5k  9  =9  27k  0.02s  1536.00  1.01  0.99\n", 1000},
		{"mpi", mpi, "figure,100,71.250\n", 71.25},
		{"mpi, with words of the launcher", mpi, "WARNING: no such thing\n\nfigure,7,1000000.000\n", 1e6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns, err := tc.parse(tc.text)
			if err != nil || math.Abs(ns-tc.ns) > tc.ns*1e-9 {
				t.Errorf("%v ns, %v; want %v ns", ns, err, tc.ns)
			}
		})
	}
	for _, tc := range []struct {
		name  string
		parse func(string) (float64, error)
		text  string
		want  []string // words that the error must contain
	}{
		{"ucx, nothing", parseUCX, "", []string{"ucx_perftest", `""`, "iterations"}},
		{"ucx, rubbish", parseUCX, "hello\nworld\n", []string{"ucx_perftest", `"hello"`, "iterations"}},
		{"ucx, no figures", parseUCX, ucxHead, []string{"ucx_perftest", "overall_mr", "a line of figures"}},
		{"ucx, a complaint instead", parseUCX, ucxHead + "[2.5] run.c:3 UCX ERROR No such device\n", []string{"No such device"}},
		{"ucx, no such column", parseUCX, "iterations,avg\n1,2\n", []string{`"iterations,avg"`, "overall_mr"}},
		{"ucx, too few", parseUCX, ucxHead + "4000,0.05\n", []string{`"4000,0.05"`, "8 figures"}},
		{"ucx, zero", parseUCX, ucxHead + "1,1,1,1,1,1,1,0\n", []string{`"1,1,1,1,1,1,1,0"`, "a rate"}},
		{"libfabric, rubbish", parsePingpong, "hello\n", []string{"fi_pingpong", `"hello"`, "bytes"}},
		{"libfabric, no figures", parsePingpong, fiHead, []string{"fi_pingpong", "8 figures"}},
		{"libfabric, too few", parsePingpong, fiHead + "8 20k\n", []string{`"8 20k"`, "8 figures"}},
		{"libfabric, no size", parsePingpong, fiHead + "x 1 =1 1 0.1s 1.0 2.0 3.0\n", []string{`"x 1`, "a size"}},
		{"libfabric, zeros", parsePingpong, fiHead + "8 1 =1 1 0.1s 0.00 0.00 0.0\n", []string{"usec/xfer"}},
		{"mpi, rubbish", mpi, "hello\n", []string{"mpiexec.some", `"hello"`, "figure,ITERATIONS"}},
		{"mpi, half a line", mpi, "figure,100,\n", []string{`"figure,100,"`, "figure,ITERATIONS"}},
		{"mpi, zero", mpi, "figure,100,0.000\n", []string{`"figure,100,0.000"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.parse(tc.text)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v does not name %s", err, want)
				}
			}
		})
	}
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		f    Figure
		ns   float64
		want float64
		unit string
	}{
		{Figure{"write_lat", 8, 2}, 60, 60, "ns"},
		{Figure{"barrier", 0, 16}, 9000, 9000, "ns"},
		{Figure{"send_bw", 1 << 20, 2}, 100_000, 10_485.76, "MB/s"},
		{Figure{"msg_rate", 8, 2}, 40, 25e6, "msg/s"},
	} {
		unit, _ := tc.f.unit()
		if got := tc.f.in(tc.ns); math.Abs(got-tc.want) > 1e-6 || unit != tc.unit {
			t.Errorf("%s: %v ns are %v %s, want %v %s", tc.f, tc.ns, got, unit, tc.want, tc.unit)
		}
	}
}

func TestFigures(t *testing.T) {
	o, err := Options{Sizes: []int{8, 64}, ranks: []int{2, 4}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(figures(o)); n != 4*2+2+2 {
		t.Errorf("%d figures of all tests: %v", n, figures(o))
	}
	o.Tests = []string{"barrier", "posted"}
	if got := figures(o); len(got) != 3 || got[0] != (Figure{"posted", 8, 2}) || got[2] != (Figure{"barrier", 0, 4}) {
		t.Errorf("figures of %v: %v", o.Tests, got)
	}
	for _, o := range []Options{{Sizes: []int{0}}, {ranks: []int{1}}, {Repeats: -1}} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestWaysOfUCXBySize: active messages of package uct have a header, and short ones a maximum size.
func TestWaysOfUCXBySize(t *testing.T) {
	for size, want := range map[int]int{1: 2, 8: 3, 92: 3, 93: 2} {
		if ways := ucx(new(session), Figure{"send_lat", size, 2}); len(ways) != want {
			t.Errorf("%d ways to send %d B, want %d", len(ways), size, want)
		}
	}
}
