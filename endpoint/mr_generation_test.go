package endpoint

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// TestTokenReusedDuringRequest revokes a token after a part of a request was moved, and then
// binds its index until the same token is valid again. The request must not continue under the
// later bind.
func TestTokenReusedDuringRequest(t *testing.T) {
	t.Parallel()
	const size = 4 * quantum
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			for _, verb := range []verb{doWrite, doRead, doSend} {
				for _, whose := range []string{"of the requester", "of the responder"} {
					t.Run(fmt.Sprintf("%v, private %v/%s/%s", executor, private, verb, whose), func(t *testing.T) {
						p := newPair(t, setup{Executors: [2]Executor{executor, executor}, Private: [2]bool{private, private}, Both: sideOptions{Size: size}})
						a, b := p.a, p.b
						a.provider.engine.stop() // a request continues only when the test drives it
						b.provider.engine.stop()
						source, sink, owner := a, b, b
						if verb == doRead {
							source, sink = b, a
						}
						if whose == "of the requester" {
							owner = a
						}
						from, to := source.regionAt(0).bytes(), sink.regionAt(0).bytes()
						for i := range to {
							from[i], to[i] = 0x11, 0xee
						}
						far := p.b.memory
						comesRound := owner.roundOfRegion
						if verb != doSend && owner == b {
							far, comesRound = b.roundOfWindow(t)
						}
						if verb == doSend {
							p.b.must(order{Do: doReceive, Parts: mine(0, size)})
						}
						p.a.must(order{Do: verb, Parts: mine(0, size), Far: far})
						for bytes.IndexByte(to, 0x11) < 0 {
							b.endpointAt(0).(*queuePair).progress()
							a.endpointAt(0).(*queuePair).progress()
						}
						comesRound(t)
						var results [1]nd.Result
						proctest.Eventually(t, "the request ends", func() bool {
							b.endpointAt(0).(*queuePair).progress()
							return a.queues[initiatorQueue].Poll(results[:]) == 1
						})
						if s := results[0].Status; s == nd.Success || bytes.IndexByte(to, 0xee) < 0 {
							t.Errorf("the request ends with %v, and %d of %d bytes have arrived", s, bytes.Count(to, []byte{0x11}), size)
						}
					})
				}
			}
		}
	}
}

// roundOfRegion deregisters the first region, and registers it until the local token is valid
// again.
func (s *side) roundOfRegion(t *testing.T) {
	r := s.regionAt(0).mr.(*memoryRegion).region
	mem, first := r.Bytes(), localToken(r)
	for {
		if err := r.Deregister(); err != nil {
			t.Fatal(err)
		}
		if !r.EndInvalidation() {
			t.Fatal("the region is in use between two parts of a request")
		}
		if err := r.Register(mem, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite, nil); err != nil {
			t.Fatal(err)
		}
		if localToken(r) == first {
			return
		}
	}
}

// roundOfWindow binds a window to all of the first region. comesRound invalidates it, and binds
// it until its token is valid again.
func (s *side) roundOfWindow(t *testing.T) (d nd.WindowDescriptor, comesRound func(*testing.T)) {
	mw, err := s.adapter.CreateMemoryWindow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ep, r, w := s.endpointAt(0).(*queuePair), s.regionAt(0).mr.(*memoryRegion).region, mw.(*memoryWindow).window
	bind := func(t *testing.T) nd.WindowDescriptor {
		if !w.Bind(r, r.Bytes(), window.Read|window.Write, ep.number) {
			t.Fatal("the window cannot be bound")
		}
		return w.Descriptor()
	}
	d = bind(t)
	return d, func(t *testing.T) {
		for first := true; first || w.Descriptor().Token != d.Token; first = false {
			if _, done, ok := w.Invalidate(ep.number); !ok || !done {
				t.Fatal("the window is in use between two parts of a request")
			}
			bind(t)
		}
	}
}

func localToken(r *window.Region) nd.Token { local, _ := r.Tokens(); return local }
