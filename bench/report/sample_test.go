package report

import (
	"time"
)

// sample returns a report with a result that has all fields, one with only the required fields, and one of another
// test.
func sample() *Report {
	full := Result{
		Test: "write_lat", Provider: "softnd",
		Settings: Settings{
			Size: 65536, Iterations: 1000, Depth: 16, Pairs: 64, Ranks: 4, Mode: "event", Executor: "target",
			Memory: "private", Bidirectional: true, Pinned: true,
		},
		Unit: "ns", Better: "less", Value: 4321.5, Repeats: []float64{4300, 4321.5, 4400}, Low: 4300, High: 4400,
		Distribution: &Distribution{
			Count: 1000, Min: 4100, P50: 4320, P90: 4500, P99: 5000, P999: 12500, P9999: 99999, Max: 1.5e6, Mean: 4400, StdDev: 21.5,
		},
		Limit: &Limit{Name: "memcpy", Unit: "ns", Value: 2500, Ratio: 1.728, Ratios: []float64{1.72, 1.728, 1.76}},
		Note:  "one, \"two\"; three",
	}
	least := Result{
		Test: "write_lat", Provider: "ucx", Settings: Settings{Size: 8, Iterations: 100000},
		Unit: "ns", Better: "less", Value: 61.25, Repeats: []float64{61.25}, Low: 61.25, High: 61.25,
	}
	rate := Result{
		Test: "send_bw", Provider: "softnd",
		Settings: Settings{Size: 1 << 20, Iterations: 100, Depth: 8, Mode: "polling", Executor: "auto", Memory: "arena", Pinned: true},
		Unit:     "MB/s", Better: "more", Value: 12345, Repeats: []float64{12000, 12345, 12500}, Low: 12000, High: 12500,
		Limit: &Limit{Name: "memcpy", Unit: "MB/s", Value: 13000, Ratio: 0.9496},
	}
	return &Report{
		Version: version,
		Time:    time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Command: []string{"ndbench", "suite", "--quick"},
		Machine: Machine{
			Processor: "Example(R) Processor 9000", Cores: 2, Kernel: "6.18.44", System: "linux/amd64", Go: "go1.26.8", Softnd: "unknown",
		},
		Results: []Result{full, least, rate},
	}
}
