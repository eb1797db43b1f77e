package measure

import (
	"context"

	"github.com/softnd/softnd/bench/report"
)

// runBarrier measures the barrier of all ranks of the job.
func runBarrier(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	res := timed(w, o, "barrier", 0)
	res.Memory = ""
	barrier := func() error { return w.Job.Barrier(ctx) }
	l := &Loop{Result: res, Run: onAll(NsPerOp, barrier), Sample: sampleOnAll(w, barrier)}
	return l.Measure(ctx, w, o)
}
