package measure

import (
	"context"

	"github.com/softnd/softnd/bench/report"
)

// runBarrier measures the barrier of all ranks of the job.
func runBarrier(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	barriers := func(n int) error {
		for range n {
			if err := w.Job.Barrier(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	l := &loop{result: timed(w, o, "barrier", 0), run: onAll(nsPerOp, barriers), sample: sampleOnAll(w, barriers)}
	l.againstMeeting(w)
	return l.measure(ctx, w, o)
}
