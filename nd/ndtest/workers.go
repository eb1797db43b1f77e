package ndtest

import (
	"context"
	"errors"
	"sync"

	"github.com/softnd/softnd/nd"
)

// errCrew ends the workers of a crew of which one has failed.
var errCrew = errors.New("another worker has failed")

// crew runs f in n goroutines and returns what waits for them. Each worker is a side of its own,
// without a link to the other half; what it has created lives until the half ends. When one
// fails, the calls of the others are canceled, and waiting for them fails this half.
func (s *side) crew(n int, f func(i int, w *side)) (join func()) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	workers := make([]side, n)
	var running sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		*w = *s
		w.ctx, w.link, w.last, w.failures, w.notes = ctx, nil, nil, nil, nil
		w.stash = make(map[nd.CompletionQueue][]nd.Result)
		running.Go(func() {
			defer func() {
				switch e := recover().(type) {
				case nil:
				case stop:
					cancel(errCrew)
				default:
					panic(e)
				}
			}()
			f(i, w)
		})
	}
	s.atEnd(func() {
		cancel(errCrew)
		running.Wait()
		for i := range workers {
			workers[i].tidy()
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

// release closes what this worker has created so far.
func (s *side) release() {
	s.tidy()
	s.last = nil
}
