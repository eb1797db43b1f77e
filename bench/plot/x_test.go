package plot

import (
	"testing"

	"github.com/softnd/softnd/bench/report"
)

func TestX(t *testing.T) {
	for _, f := range []string{"/tmp/r.png", "/tmp/r.svg"} {
		if err := Save(f, sample()); err != nil {
			t.Fatal(err)
		}
	}
	r := sample()
	s := sample()
	s.Machine.Kernel = "7.0"
	r.Results = r.Results[:len(r.Results)/2]
	Save("/tmp/one.png", r)
	Save("/tmp/two.png", r, s)
}

// sample has latencies and bandwidths of four providers at the powers of two from
// 8 B to 1 MiB.
func sample() *report.Report {
	r := &report.Report{
		Version: report.Version,
		Machine: report.Machine{
			Processor: "Example(R) Processor 9000", Cores: 2, Kernel: "6.18.44", System: "linux/amd64", Go: "go1.26.8", Softnd: "unknown",
		},
	}
	providers := []string{"ucx", "softnd", "libfabric", "openmpi"}
	for _, unit := range []string{"ns", "MB/s"} {
		for i, provider := range providers {
			for size := 8; size <= 1<<20; size *= 2 {
				r.Results = append(r.Results, result(provider, unit, size, float64(1+i)))
			}
		}
	}
	return r
}

// result takes 60 ns and a 10th of a nanosecond for each byte, times slow.
func result(provider, unit string, size int, slow float64) report.Result {
	took := 60 + 0.1*float64(size)
	one := report.Result{
		Test: "write_lat", Provider: provider, Settings: report.Settings{Size: size, Pinned: true, Depth: 16},
		Unit: unit, Better: "less", Value: took * slow,
		Limit: &report.Limit{Name: "memcpy", Unit: unit, Value: took * 0.9, Ratio: slow},
	}
	if unit == "MB/s" {
		one.Test, one.Better = "write_bw", "more"
		one.Value = 1000 * float64(size) / took / slow
		one.Limit.Value = 1000 * float64(size) / took * 1.1
	}
	return one
}
