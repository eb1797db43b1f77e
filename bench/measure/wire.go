package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// wire is one connection between ranks 0 and 1, with one queue for all results.
type wire struct {
	cq    nd.CompletionQueue
	ep    nd.Endpoint
	found [64]nd.Result
}

const wireDepth = 256 // of the completion queue

func connectWire(ctx context.Context, w *World) (*wire, error) {
	cq, err := w.Job.Adapter().CreateCompletionQueue(ctx, wireDepth)
	if err != nil {
		return nil, err
	}
	ep, err := w.Job.Connect(ctx, 1-w.Job.Rank(), nd.EndpointConfig{Receive: cq, Initiator: cq})
	if err != nil {
		return nil, errors.Join(err, cq.Close())
	}
	return &wire{cq: cq, ep: ep}, nil
}

func (w *wire) close() error { return errors.Join(w.ep.Close(), w.cq.Close()) }

// afterAll closes what connects this rank with others when all are done with
// it: a rank that closes early breaks the others' work. Where something has
// failed nobody is waited for.
func afterAll(ctx context.Context, w *World, err error, close func() error) error {
	if err == nil {
		err = w.Job.Barrier(ctx)
	}
	return errors.Join(err, close())
}

// take polls until n results have come.
func (w *wire) take(n int) error {
	for n > 0 {
		got := w.cq.Poll(w.found[:])
		if err := allSucceeded(w.found[:got]); err != nil {
			return errors.Join(err, w.ep.Err())
		}
		n -= got
	}
	return nil
}

func allSucceeded(results []nd.Result) error {
	for _, r := range results {
		if r.Status != nd.Success {
			return fmt.Errorf("measure: %v: %w", r.RequestType, r.Status)
		}
	}
	return nil
}

// newRegion makes a region of the arena or of the process's own memory, with
// every right.
func newRegion(ctx context.Context, ad nd.Adapter, size int, private bool) (nd.MemoryRegion, error) {
	if !private {
		return ad.Allocate(ctx, size, regionRights)
	}
	return ad.Register(ctx, presentMemory(size), regionRights)
}

// presentMemory is memory whose pages exist.
func presentMemory(size int) []byte {
	const page = 4096
	buf := make([]byte, size)
	for i := 0; i < size; i += page {
		buf[i] = 1
	}
	return buf
}

// sizesOf returns the sizes asked for, or else the test's own.
func sizesOf(o Options, own ...int) []int {
	if o.Sizes != nil {
		return o.Sizes
	}
	return own
}

// timed is the result of a loop that gives nanoseconds.
func timed(w *World, o Options, test string, size int) report.Result {
	memory := "arena"
	if o.Private {
		memory = "private"
	}
	return report.Result{Test: test, Provider: "softnd", Unit: "ns", Better: "less",
		Settings: report.Settings{Size: size, Ranks: w.Job.Size(), Executor: o.Executor, Memory: memory, Mode: "polling"}}
}

// onRank0 makes a Run of something that one rank does while the others rest.
func onRank0(w *World, run func(n int) (time.Duration, error)) func(context.Context, int) (float64, error) {
	return func(_ context.Context, n int) (float64, error) {
		if w.Job.Rank() != 0 {
			return 0, nil
		}
		took, err := run(n)
		return NsPerOp(took, n), err
	}
}

// sampleOnRank0 makes a Sample of something that one rank does while the others rest.
func sampleOnRank0(w *World, op func() error) func(context.Context, int, *Histogram) error {
	return func(_ context.Context, n int, h *Histogram) error {
		if w.Job.Rank() != 0 {
			return nil
		}
		return sample(n, h, op)
	}
}

// sample records each of n operations.
func sample(n int, h *Histogram, op func() error) error {
	clock := NewClock()
	for range n {
		start := clock.Now()
		if err := op(); err != nil {
			return err
		}
		h.Record(clock.Ns(start, clock.Now()))
	}
	return nil
}

// sampleTogether makes n operations on every rank, and records those of rank 0.
func sampleTogether(w *World, n int, h *Histogram, op func() error) error {
	if w.Job.Rank() == 0 {
		return sample(n, h, op)
	}
	for range n {
		if err := op(); err != nil {
			return err
		}
	}
	return nil
}
