package endpoint

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestSoleEndpointLosesItsQueue: a queue of one endpoint becomes one of several,
// or one that is watched, while results come and are taken. Each of them comes
// once, in the order of posting.
func TestSoleEndpointLosesItsQueue(t *testing.T) {
	for name, meddle := range map[string]func(t *testing.T, s *side, q *CompletionQueue){
		"another endpoint": func(t *testing.T, s *side, q *CompletionQueue) {
			ep, err := s.adapter.CreateEndpoint(t.Context(), nd.EndpointConfig{Receive: q, Initiator: q})
			if err != nil {
				t.Fatal(err)
			}
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		},
		"resize": func(t *testing.T, s *side, q *CompletionQueue) {
			for depth := range 50 {
				if err := q.Resize(100 + depth); err != nil {
					t.Fatal(err)
				}
			}
		},
		"notify": func(t *testing.T, s *side, q *CompletionQueue) {
			if err := q.Notify(t.Context(), nd.NotifyAny); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			s := p.a.local
			q := s.queues[initiatorQueue].(*CompletionQueue)
			if q.sole != s.endpoint(0) {
				t.Fatal("the queue's only endpoint does not have it to itself")
			}
			ctx, cancel := context.WithTimeout(t.Context(), watchdog)
			defer cancel()
			done := make(chan struct{})
			var crew sync.WaitGroup
			crew.Go(func() {
				m := s.region(0)
				here := []nd.SGE{{Buffer: m.cut(0, 8), Token: m.mr.LocalToken()}}
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
						if err := s.endpoint(0).Write(posted, here, p.b.memory.Address, p.b.memory.Token, 0); err != nil {
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
				runtime.Gosched() // to those who post
			}
			meddle(t, s, q)
			close(done)
			crew.Wait()
			if q.sole != nil {
				t.Error("the queue is one endpoint's still")
			}
		})
	}
}

// TestCompletionForgetsNothing: each field of a result goes through a queue, also
// one that is added some day, and comes out whole.
func TestCompletionForgetsNothing(t *testing.T) {
	var from, to nd.Result
	v := reflect.ValueOf(&from).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint((1<<63 + uint64(i+1)<<32) >> (64 - v.Field(i).Type().Bits()))
	}
	from.RequestType &^= detailed // no type is that large
	c := completion{account: &account{context: from.EndpointContext}}
	c.put(&from)
	if c.get(&to); to != from {
		t.Errorf("%v became %v", from, to)
	}
	// And what is brief does not show what its place held before.
	c.brief, c.request = uint64(nd.RequestSend)|5<<32, 6
	if c.get(&to); to != (nd.Result{BytesTransferred: 5, EndpointContext: from.EndpointContext, RequestContext: 6, RequestType: nd.RequestSend}) {
		t.Errorf("a success became %v", to)
	}
}
