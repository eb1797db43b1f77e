package measure

import (
	"context"
	"errors"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// runMRLat measures how long it takes to register memory of the process and to
// end that, and to allocate memory of the arena and to free it, by size.
func runMRLat(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	return measureRegions(ctx, w, o, "mr_lat", regionsForLatency, turns.latency)
}

// runMRRate measures how often the same can be done in a second, with many
// regions at a time.
func runMRRate(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	return measureRegions(ctx, w, o, "mr_rate", regionsForRate, turns.rate)
}

const (
	regionsForLatency = 16
	regionsForRate    = 256
	mostAllocated     = 64 << 20 // bytes of all regions of the arena that exist at a time
)

type measureTurns func(t turns, ctx context.Context, w *World, o Options, do, undo report.Result) ([]report.Result, error)

func measureRegions(ctx context.Context, w *World, o Options, test string, regions int, how measureTurns) (found []report.Result, err error) {
	o.WarmUp = min(o.WarmUp, regionsForLatency) // of the large ones, more would take seconds
	if o.Depth > 0 {
		regions = o.Depth
	}
	for _, size := range sizes(o, 4<<10, 64<<10, 1<<20, 16<<20, 64<<20) {
		for _, kind := range []struct {
			private  bool
			regions  int
			do, undo string
			open     func(*regionSet) (turns, error)
		}{
			{true, regions, "_register", "_deregister", (*regionSet).registering},
			{false, min(regions, max(mostAllocated/size, 1)), "_allocate", "_free", (*regionSet).allocating},
		} {
			set := &regionSet{ctx: ctx, adapter: w.Job.Adapter(), size: size, regions: make([]nd.MemoryRegion, kind.regions)}
			t, err := kind.open(set)
			if err != nil {
				return nil, errors.Join(err, set.close())
			}
			do, undo := timed(w, o, test+kind.do, size), timed(w, o, test+kind.undo, size)
			do.Memory, undo.Memory = memoryName(kind.private), memoryName(kind.private)
			r, err := how(t, ctx, w, o, do, undo)
			if err := errors.Join(err, set.close()); err != nil {
				return nil, err
			}
			found = append(found, r...)
		}
	}
	return found, nil
}

// regionSet is regions of one size.
type regionSet struct {
	ctx     context.Context
	adapter nd.Adapter
	size    int
	buf     []byte // all of them register the same
	regions []nd.MemoryRegion
}

// registering registers private memory, again and again in the same regions.
func (s *regionSet) registering() (turns, error) {
	s.buf = aligned(s.size)
	touch(s.buf)
	for i := range s.regions {
		var err error
		if s.regions[i], err = s.adapter.CreateMemoryRegion(s.ctx); err != nil {
			return turns{}, err
		}
	}
	return turns{
		objects: len(s.regions),
		do:      func(i int) error { return s.regions[i].Register(s.ctx, s.buf, access) },
		undo:    func(i int) error { return s.regions[i].Deregister(s.ctx) },
	}, nil
}

// allocating makes regions with memory, and lets them go.
func (s *regionSet) allocating() (turns, error) {
	return turns{
		objects: len(s.regions),
		do: func(i int) (err error) {
			s.regions[i], err = s.adapter.Allocate(s.ctx, s.size, access)
			return err
		},
		undo: func(i int) error {
			mr := s.regions[i]
			s.regions[i] = nil
			return mr.Close()
		},
	}, nil
}

func (s *regionSet) close() (err error) {
	for _, mr := range s.regions {
		if mr != nil {
			err = errors.Join(err, mr.Close())
		}
	}
	return err
}
