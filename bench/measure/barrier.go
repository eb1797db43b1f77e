package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd/bench/report"
)

// runBarrier measures the barrier of all ranks of the job.
func runBarrier(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	res := timed(w, o, "barrier", 0)
	res.Memory = ""
	l := &Loop{Result: res,
		Run: func(ctx context.Context, n int) (float64, error) {
			start := time.Now()
			for range n {
				if err := w.Job.Barrier(ctx); err != nil {
					return 0, err
				}
			}
			return NsPerOp(time.Since(start), n), nil
		},
		Sample: func(ctx context.Context, n int, h *Histogram) error {
			return sampleTogether(w, n, h, func() error { return w.Job.Barrier(ctx) })
		},
	}
	return l.Measure(ctx, w, o)
}
