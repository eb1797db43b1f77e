package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// afterAll calls close when all ranks are done. A rank that closes early breaks the work of the others. After an error,
// it does not wait for other ranks.
func afterAll(ctx context.Context, w *World, err error, close func() error) error {
	if err == nil {
		err = w.Job.Barrier(ctx)
	}
	return errors.Join(err, close())
}

// newRegion returns a region of the arena or of the process's own memory, with all permissions.
func newRegion(ctx context.Context, ad nd.Adapter, size int, private bool) (nd.MemoryRegion, error) {
	if !private {
		return ad.Allocate(ctx, size, access)
	}
	buf := aligned(size)
	touch(buf)
	return ad.Register(ctx, buf, access)
}

// touch makes the kernel allocate the pages of buf.
func touch(buf []byte) {
	const page = 4096
	for i := 0; i < len(buf); i += page {
		buf[i] = 1
	}
}

// pattern fills memory with data. Processors copy zeros faster: twice as fast on Zen 5.
func pattern(buf []byte) {
	for i := range buf {
		buf[i] = byte(i) | 1
	}
}

// timed returns the result of a loop that measures nanoseconds. The test adds the kind of memory and how completions
// are awaited.
func timed(w *World, o Options, test string, size int) report.Result {
	res := newResult(test, "ns", "less", "", Options{})
	res.Settings = report.Settings{Size: size, Ranks: w.Job.Size(), Executor: o.Executor}
	if res.Executor == "" {
		res.Executor = "auto"
	}
	return res
}

func memoryName(private bool) string {
	if private {
		return "private"
	}
	return "arena"
}

// onRank0 returns the run of an operation that rank 0 makes while the others wait. op makes it n times.
func onRank0(w *World, op func(n int) error) func(context.Context, int) (float64, error) {
	return func(ctx context.Context, n int) (float64, error) {
		if w.Job.Rank() != 0 {
			return 0, nil
		}
		return onAll(nsPerOp, op)(ctx, n)
	}
}

// onAll returns the run of an operation that all ranks make together. op makes it n times.
func onAll(figure func(time.Duration, int) float64, op func(n int) error) func(context.Context, int) (float64, error) {
	return func(_ context.Context, n int) (float64, error) {
		if err := op(leadIn); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := op(n); err != nil {
			return 0, err
		}
		return figure(max(time.Since(start), 1), n), nil
	}
}

// sampleOnRank0 returns the sample of an operation that rank 0 makes while the others wait.
func sampleOnRank0(w *World, op func(n int) error) func(context.Context, int, *histogram) error {
	return func(ctx context.Context, n int, h *histogram) error {
		if w.Job.Rank() != 0 {
			return nil
		}
		return sampleOnAll(w, op)(ctx, n, h)
	}
}

// sampleOnAll returns the sample of an operation that all ranks make together.
func sampleOnAll(w *World, op func(n int) error) func(context.Context, int, *histogram) error {
	return func(_ context.Context, n int, h *histogram) error {
		if err := op(leadIn); err != nil {
			return err
		}
		if w.Job.Rank() != 0 {
			return op(n)
		}
		clock := newClock()
		for range n {
			start := clock.now()
			if err := op(1); err != nil {
				return err
			}
			h.record(clock.ns(start, clock.now()))
		}
		return nil
	}
}

// gather gives every rank the values of all.
func gather(ctx context.Context, w *World, v float64) ([]float64, error) {
	blobs, err := w.Job.Exchange(ctx, binary.NativeEndian.AppendUint64(nil, math.Float64bits(v)))
	all := make([]float64, len(blobs))
	for i, b := range blobs {
		if len(b) != 8 {
			return nil, fmt.Errorf("measure: exchange: rank %d sent %d bytes, want 8", i, len(b))
		}
		all[i] = math.Float64frombits(binary.NativeEndian.Uint64(b))
	}
	return all, err
}
