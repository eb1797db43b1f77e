package ndtest

import (
	"context"
	"errors"
	"sync"

	"github.com/softnd/softnd/nd"
)

// errWorkerFailed cancels the other workers when one has failed.
var errWorkerFailed = errors.New("another worker of this side has failed")

// workers runs f in n goroutines and returns a function that waits for them. Each worker is a side of
// its own without a link to the other side. Its objects live until this side ends, or until it calls
// releaseAll. If a worker fails, the contexts of the others end, and join fails this side.
func (s *side) workers(n int, f func(i int, w *side)) (join func()) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	workers := make([]side, n)
	var running sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		*w = *s
		w.ctx, w.link, w.cleanups, w.failures, w.notes = ctx, nil, nil, nil, nil
		w.stash = make(map[nd.CompletionQueue][]nd.Result)
		running.Go(func() {
			defer func() {
				switch e := recover().(type) {
				case nil:
				case stop:
					cancel(errWorkerFailed)
				default:
					panic(e)
				}
			}()
			f(i, w)
		})
	}
	s.cleanup(func() {
		cancel(errWorkerFailed)
		running.Wait()
		for i := range workers {
			workers[i].runCleanups()
		}
	})
	return func() {
		running.Wait()
		for i := range workers {
			s.failures = append(s.failures, workers[i].failures...)
			s.notes = append(s.notes, workers[i].notes...)
		}
		if ctx.Err() != nil {
			panic(stop{})
		}
	}
}

// releaseAll closes the objects that this side or worker has created so far.
func (s *side) releaseAll() {
	s.runCleanups()
	s.cleanups = nil
}
