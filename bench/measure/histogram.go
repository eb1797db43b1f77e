package measure

import (
	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/softnd/softnd/bench/report"
)

// histogram collects the figures of single operations, in tenths of their unit. The zero value is ready for use.
type histogram struct {
	h *hdr.Histogram
}

const (
	histogramParts  = 10
	histogramMax    = 60e9 * histogramParts // a minute; a longer time counts as one
	histogramDigits = 3
)

// record adds one operation.
func (h *histogram) record(figure float64) {
	if h.h == nil {
		h.h = hdr.New(1, histogramMax, histogramDigits)
	}
	if err := h.h.RecordValue(int64(min(figure*histogramParts+0.5, histogramMax))); err != nil {
		panic(err) // a value that is out of range although it was clamped
	}
}

// count returns the number of operations recorded.
func (h *histogram) count() int64 {
	if h.h == nil {
		return 0
	}
	return h.h.TotalCount()
}

// distribution returns the distribution of the recorded operations.
func (h *histogram) distribution() *report.Distribution {
	at := func(percent float64) float64 { return float64(h.h.ValueAtPercentile(percent)) / histogramParts }
	return &report.Distribution{
		Count: h.count(),
		Min:   float64(h.h.Min()) / histogramParts,
		P50:   at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99),
		Max:    float64(h.h.Max()) / histogramParts,
		Mean:   h.h.Mean() / histogramParts,
		StdDev: h.h.StdDev() / histogramParts,
	}
}
