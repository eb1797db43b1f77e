package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// defaultBlocked is how long a rank waits by default.
const defaultBlocked = time.Second

// runBlocked measures the cost of a rank that waits while nothing happens: the processor time of all threads of its
// process, in percent of one core. The highest cost of all ranks counts.
func runBlocked(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	lasting := o.Duration
	if lasting <= 0 {
		lasting = defaultBlocked
	}
	for _, way := range []struct {
		test string
		wait func(ctx context.Context, w *World, lasting time.Duration) error
	}{
		{"blocked", waitForNothing},
		{"blocked_barrier", waitInBarrier},
	} {
		res := timed(w, o, way.test, 0)
		res.Unit, res.Mode = "%", "event"
		res.Note = fmt.Sprintf("blocked for %v", lasting)
		l := &loop{result: res, run: func(ctx context.Context, _ int) (float64, error) {
			cost, err := processorShare(func() error { return way.wait(ctx, w, lasting) })
			if err != nil {
				return 0, err
			}
			all, err := gather(ctx, w, cost)
			if err != nil {
				return 0, err
			}
			return slices.Max(all), nil
		}}
		o.Iterations, o.WarmUp = 1, 0
		r, err := l.measure(ctx, w, o)
		if err != nil {
			return nil, err
		}
		found = append(found, r...)
	}
	return found, nil
}

// waitForNothing waits for a result on a connection without requests.
func waitForNothing(ctx context.Context, w *World, lasting time.Duration) error {
	cq, err := w.Job.Adapter().CreateCompletionQueue(ctx, 1)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	var found [1]nd.Result
	if _, err = cq.Wait(limited, found[:]); errors.Is(err, nd.Canceled) && ctx.Err() == nil {
		err = nil
	}
	return errors.Join(err, cq.Close())
}

// waitInBarrier waits for rank 0, which sleeps before it calls Barrier. Rank 0's sleep is outside of the barrier, but
// costs nothing either.
func waitInBarrier(ctx context.Context, w *World, lasting time.Duration) error {
	if w.Job.Rank() == 0 {
		time.Sleep(lasting)
	}
	return w.Job.Barrier(ctx)
}

// processorShare returns the processor time that the process uses during f, in
// percent of the time that passes.
func processorShare(f func() error) (float64, error) {
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	passed := time.Since(start)
	after, err := processorTime()
	return 100 * float64(after-before) / float64(passed), err
}

// processorTime returns the time that all threads of this process have used so far, in user mode and in the kernel.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("measure: processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
