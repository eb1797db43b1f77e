package measure

import (
	"context"
	"errors"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// runMRLat measures how long it takes to register and deregister private memory, and to allocate and free arena memory,
// by size.
func runMRLat(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	return measureRegions(ctx, w, o, "mr_lat", regionsForLatency, reversible.latency)
}

// runMRRate measures how often this is possible per second, with many regions at a time.
func runMRRate(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	return measureRegions(ctx, w, o, "mr_rate", regionsForRate, reversible.rate)
}

const (
	regionsForLatency = 16
	regionsForRate    = 256
	maxAllocated      = 64 << 20 // bytes of all regions of the arena that exist at a time
)

type measureRegionsFunc func(t reversible, ctx context.Context, w *World, o Options, do, undo report.Result) ([]report.Result, error)

func measureRegions(ctx context.Context, w *World, o Options, test string, regions int, how measureRegionsFunc) (found []report.Result, err error) {
	o.WarmUp = min(o.WarmUp, regionsForLatency) // of the large ones, more would take seconds
	if o.Depth > 0 {
		regions = o.Depth
	}
	for _, size := range sizes(o, 4<<10, 64<<10, 1<<20, 16<<20, 64<<20) {
		for _, kind := range []struct {
			private  bool
			regions  int
			do, undo string
			open     func(*regionSet) (reversible, error)
		}{
			{true, regions, "_register", "_deregister", (*regionSet).registering},
			{false, min(regions, max(maxAllocated/size, 1)), "_allocate", "_free", (*regionSet).allocating},
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
	buf     []byte // all regions register it
	regions []nd.MemoryRegion
}

// registering registers and deregisters the same private memory in each of the regions.
func (s *regionSet) registering() (reversible, error) {
	s.buf = aligned(s.size)
	touch(s.buf)
	for i := range s.regions {
		var err error
		if s.regions[i], err = s.adapter.CreateMemoryRegion(s.ctx); err != nil {
			return reversible{}, err
		}
	}
	return reversible{
		objects: len(s.regions),
		do:      func(i int) error { return s.regions[i].Register(s.ctx, s.buf, access) },
		undo:    func(i int) error { return s.regions[i].Deregister(s.ctx) },
	}, nil
}

// allocating allocates regions with memory, and frees them.
func (s *regionSet) allocating() (reversible, error) {
	return reversible{
		objects: len(s.regions),
		do: func(i int) (err error) {
			s.regions[i], err = s.adapter.Allocate(s.ctx, s.size, access)
			return err
		},
		undo: func(i int) error {
			mr := s.regions[i]
			s.regions[i] = nil
			return mr.Close(s.ctx)
		},
	}, nil
}

func (s *regionSet) close() (err error) {
	for _, mr := range s.regions {
		if mr != nil {
			err = errors.Join(err, mr.Close(s.ctx))
		}
	}
	return err
}
