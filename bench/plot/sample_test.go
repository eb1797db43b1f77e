package plot_test

import (
	"github.com/softnd/softnd/bench/report"
)

// sample has latencies and bandwidths of four lines at the powers of two from
// 8 B to 1 MiB, and a test of one size.
func sample() *report.Report {
	r := &report.Report{
		Machine: report.Machine{
			Processor: "Example(R) Processor 9000", Cores: 2, Kernel: "6.18.44", System: "linux/amd64", Go: "go1.26.8",
			Softnd: "0123456789abcdef0123456789abcdef01234567+modified",
		},
	}
	targets := report.Settings{Executor: "target", Pinned: true, Depth: 16}
	for size := 8; size <= 1<<20; size *= 2 {
		for i, provider := range []string{"ucx", "softnd", "libfabric"} {
			r.Results = append(r.Results, latency(provider, report.Settings{Pinned: true, Depth: 16}, size, float64(i+1)))
		}
		r.Results = append(r.Results, latency("softnd", targets, size, 3.5), bandwidth("softnd", size))
	}
	r.Results = append(r.Results, report.Result{
		Test: "bind_invalidate", Provider: "softnd", Settings: report.Settings{Size: 64}, Unit: "ns", Better: "less", Value: 90,
	})
	return r
}

// took is 60 ns, and a tenth of a nanosecond for each byte.
func took(size int) float64 { return 60 + 0.1*float64(size) }

func latency(provider string, s report.Settings, size int, slow float64) report.Result {
	s.Size = size
	return report.Result{
		Test: "write_lat", Provider: provider, Settings: s, Unit: "ns", Better: "less", Value: took(size) * slow,
		Limit: &report.Limit{Name: "memcpy", Unit: "ns", Value: took(size) * 0.9, Ratio: slow / 0.9},
	}
}

func bandwidth(provider string, size int) report.Result {
	return report.Result{
		Test: "write_bw", Provider: provider, Settings: report.Settings{Size: size},
		Unit: "MB/s", Better: "more", Value: 1000 * float64(size) / took(size),
	}
}
