// Package report contains the results of measurements. It writes them as JSON with a published schema, as CSV with the
// same columns, or as a table for people, and compares reports.
package report

import "time"

// version names the format of a report. It changes with the schema.
const version = "softnd-bench/1"

// Report contains the results of one run.
type Report struct {
	Name string `json:"-"` // of the file, for people; "" if it was not read from one

	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	Command []string  `json:"command"`
	Machine Machine   `json:"machine"`
	Results []Result  `json:"results"`
}

// Machine describes the machine of a run.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"` // that the run was allowed to use
	Kernel    string `json:"kernel"`
	System    string `json:"system"` // GOOS/GOARCH
	Go        string `json:"go"`
	Softnd    string `json:"softnd"` // version or revision of the build
}

// Result is one figure: one test at one size, with its settings.
type Result struct {
	Test     string `json:"test"`     // write_lat, send_bw, ...
	Provider string `json:"provider"` // softnd, softnd-c (ranks in C), softnd-go-c (rank 0 in Go, rank 1 in C), softnd-c-go, or a peer: ucx, libfabric, openmpi, mpich
	Settings

	Unit    string    `json:"unit"`   // ns, MB/s, msg/s, ops/s, B, %, ratio
	Better  string    `json:"better"` // less or more
	Value   float64   `json:"value"`  // the median of the repeats
	Repeats []float64 `json:"repeats"`
	Low     float64   `json:"low"`  // 95 % confidence interval of the median
	High    float64   `json:"high"` //

	// One for each repeat, in the order of Repeats, if a limit was measured.
	Drifts []float64 `json:"drifts,omitempty"` // of the limit and the line: the greater of before and after ÷ the less
	Widths []float64 `json:"widths,omitempty"` // of the core, if the figure depends on it: independent instructions in the time of one after the other
	Lines  []float64 `json:"lines,omitempty"`  // half round trip of a cache line in ns, if there are two ranks

	Distribution *Distribution `json:"distribution,omitempty"` // of single operations
	Limit        *Limit        `json:"limit,omitempty"`        // the limit of the machine, in the same run
	Note         string        `json:"note,omitempty"`
}

// Settings are the settings that a result depends on. A zero value means that the setting does not apply.
type Settings struct {
	Size          int    `json:"size"` // bytes of one operation
	Iterations    int    `json:"iterations"`
	Depth         int    `json:"depth,omitempty"` // operations outstanding
	Pairs         int    `json:"pairs,omitempty"` // queue pairs on one completion queue
	Ranks         int    `json:"ranks,omitempty"`
	Hosts         int    `json:"hosts,omitempty"`    // on which the ranks run, if there are several
	Mode          string `json:"mode,omitempty"`     // polling or event
	Executor      string `json:"executor,omitempty"` // auto or target
	Memory        string `json:"memory,omitempty"`   // arena or private
	Bidirectional bool   `json:"bidirectional,omitempty"`
	Pinned        bool   `json:"pinned"`
}

// Distribution describes single operations, in the unit of the result.
type Distribution struct {
	Count  int64   `json:"count"`
	Min    float64 `json:"min"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99,omitempty"` // these three are omitted if too few operations were measured
	P999   float64 `json:"p99.9,omitempty"`
	P9999  float64 `json:"p99.99,omitempty"`
	Max    float64 `json:"max"`
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stddev"`
}

// Known returns d without the percentiles of which less than one operation is beyond: they would repeat the maximum.
func (d *Distribution) Known() *Distribution {
	known := *d
	for _, p := range []struct {
		least int64
		value *float64
	}{{100, &known.P99}, {1000, &known.P999}, {10000, &known.P9999}} {
		if d.Count < p.least {
			*p.value = 0
		}
	}
	return &known
}

// Limit is a figure of the machine itself, measured between the repeats of a result, and the ratio of the result to it:
// Result.Value ÷ Value, for times and rates alike.
type Limit struct {
	Name  string  `json:"name"` // raw_line (half round trip), memcpy (of the size)
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Ratio float64 `json:"ratio"` // the median of the ratios of the repeats

	Ratios []float64 `json:"ratios,omitempty"` // of each repeat to the limit next to it; may be omitted
}
