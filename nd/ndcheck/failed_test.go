//go:build linux

package ndcheck_test

import (
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// The silent requests of an endpoint that has failed have results, which make room in its queue.
func TestFullQueueAfterFailure(t *testing.T) {
	const depth = 4
	for name, end := range map[string]func(s *side){
		"by the peer": func(s *side) {
			s.barrier()
			for s.ep.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		},
		"by a Flush": func(s *side) { s.must(s.ep.Flush(s.ctx)); s.barrier() },
	} {
		t.Run(name, func(t *testing.T) {
			expectRule(t, "", watch(t, nd.EndpointConfig{InitiatorDepth: depth}, 64, func(s *side) { s.barrier(); s.must(s.ep.Close()); s.barrier() }, func(s *side) {
				end(s)
				var posted int
				var err error
				for ; err == nil; posted++ {
					err = s.ep.Send(1, nd.SGL{}, nd.SilentSuccess)
				}
				if !errors.Is(err, nd.NoMoreEntries) {
					s.must(err)
				}
				for range posted - 1 {
					s.mustBe(s.init, nd.Canceled)
				}
				s.barrier()
			}))
		})
	}
}

// A message that has failed has invalidated nothing: the owner, which has closed the endpoint of the window, is named.
func TestFailedInvalidation(t *testing.T) {
	t.Parallel() // it waits for the ReceiveTimeout
	found := except("N503", watch(t, nd.EndpointConfig{}, 64, func(s *side) {
		s.second()
		s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
		s.barrier()
		s.must(s.ep.Close())
		s.barrier()
		s.barrier()
	}, func(s *side) {
		ep := s.second()
		d := s.get()
		s.must(s.ep.SendAndInvalidate(1, nd.SGL{}, d.Token, 0))
		s.mustBe(s.init, nd.IOTimeout)
		s.barrier()
		s.barrier()
		s.ep = ep
		s.writeTo(d, 0)
	}))
	expectRule(t, "N101", found)
	if len(found) == 1 && found[0].OtherRank != 0 {
		t.Error(found)
	}
}
