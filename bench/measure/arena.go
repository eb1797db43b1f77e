package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// runArenaMemory measures the arena memory of a job in which each rank is connected with every other, with default
// depths. The figure is the memory, including tables, divided by the number of ranks. One count is enough because it
// never differs.
func runArenaMemory(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	before, err := countArena(ctx, w)
	if err != nil {
		return nil, err
	}
	m := &mesh{}
	err = m.connect(ctx, w)
	if err == nil {
		err = w.Job.Barrier(ctx)
	}
	after := int64(0)
	if err == nil {
		after, err = countArena(ctx, w)
	}
	if err := afterAll(ctx, w, err, m.close); err != nil || w.Job.Rank() != 0 {
		return nil, err
	}
	ranks := int64(w.Job.Size())
	res := timed(w, o, "arena_memory", 0)
	res.Unit, res.Pinned, res.Iterations = "B", o.Pinned, 1
	res.Value = float64(after) / float64(ranks)
	res.Low, res.High, res.Repeats = res.Value, res.Value, []float64{res.Value}
	res.Note = fmt.Sprintf("per rank %d B before connecting, then %d B for each of its %d connections", before/ranks, (after-before)/ranks/(ranks-1), ranks-1)
	return []report.Result{res}, nil
}

// countArena returns the allocated bytes of the arena on rank 0. The other ranks wait.
func countArena(ctx context.Context, w *World) (n int64, err error) {
	if err := w.Job.Barrier(ctx); err != nil {
		return 0, err
	}
	if w.Job.Rank() == 0 {
		n, err = arenaBytes(ctx, w.Job.Adapter())
	}
	return n, errors.Join(err, w.Job.Barrier(ctx))
}

const meshDepth = 256 // of the completion queue

// mesh is one rank's connections with all others.
type mesh struct {
	cq  nd.CompletionQueue
	eps []nd.Endpoint // by rank; nil for this rank
}

func (m *mesh) connect(ctx context.Context, w *World) (err error) {
	if m.cq, err = w.Job.Adapter().CreateCompletionQueue(ctx, meshDepth); err != nil {
		return err
	}
	m.eps, err = w.Job.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: m.cq, InitiatorCQ: m.cq})
	return err
}

func (m *mesh) close() (err error) {
	for _, ep := range m.eps {
		if ep != nil {
			err = errors.Join(err, ep.Close())
		}
	}
	if m.cq != nil {
		err = errors.Join(err, m.cq.Close())
	}
	return err
}
