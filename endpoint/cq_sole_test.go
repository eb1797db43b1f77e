package endpoint

import (
	"runtime"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestCQBecomesShared: a queue of one endpoint gets a second endpoint or a Notify
// while results are added and taken. Each result appears once, in the order of posting.
func TestCQBecomesShared(t *testing.T) {
	for name, meddle := range map[string]func(t *testing.T, s *side, q *completionQueue){
		"another endpoint": func(t *testing.T, s *side, q *completionQueue) {
			ep, err := s.adapter.CreateEndpoint(t.Context(), nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
			if err != nil {
				t.Fatal(err)
			}
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		},
		"resize": func(t *testing.T, s *side, q *completionQueue) {
			for depth := range 50 {
				if err := q.Resize(100 + depth); err != nil {
					t.Fatal(err)
				}
			}
		},
		"notify": func(t *testing.T, s *side, q *completionQueue) {
			if err := q.Notify(t.Context(), nd.NotifyAny); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			s := p.a
			q := s.queues[initiatorQueue].(*completionQueue)
			if q.soleEndpoint != s.endpointAt(0) {
				t.Fatal("the queue's only endpoint does not have it to itself")
			}
			ctx := proctest.Context(t)
			done := make(chan struct{})
			var crew sync.WaitGroup
			crew.Go(func() {
				m := s.regionAt(0)
				here := nd.One(nd.SGE{Buffer: m.cut(0, 8), Token: m.mr.LocalToken()})
				var results [8]nd.Result
				posted, taken := uint64(0), uint64(0)
				for over := false; !over || taken < posted; {
					select {
					case <-done:
						over = true
					case <-ctx.Done():
						t.Errorf("%d of %d results have come", taken, posted)
						return
					default:
					}
					for !over && posted-taken < uint64(posted%7)+1 {
						if err := s.endpointAt(0).Write(posted, here, p.b.memory.Address, p.b.memory.Token, 0); err != nil {
							t.Error(err)
							return
						}
						posted++
					}
					for _, r := range results[:q.Poll(results[:])] {
						if r.Status != nd.Success || r.RequestContext != taken {
							t.Errorf("result %d is %v", taken, r)
							return
						}
						taken++
					}
				}
			})
			for range 100 {
				runtime.Gosched() // let the posting goroutines run
			}
			meddle(t, s, q)
			close(done)
			crew.Wait()
			if q.soleEndpoint != nil {
				t.Error("the queue is one endpoint's still")
			}
		})
	}
}
