package traffic

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// A byte that changes after the peer's access has ended is found at the end of the connection, too.
func TestCloseFindsALateByte(t *testing.T) {
	job, err := softnd.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	for _, late := range []bool{false, true} {
		l := &Link{Rand: rand.New(rand.NewPCG(1, 2)), Job: job}
		s := &session{Link: l, ctx: t.Context()}
		l.try(func() { s.fail(s.open()) })
		if l.Broken != nil {
			t.Fatal(l.Broken)
		}
		if late {
			s.shared.Bytes()[0]++
		}
		if l.try(s.close); (l.Broken != nil) != late {
			t.Errorf("late byte %t: %v", late, l.Broken)
		}
	}
}

// held is an endpoint whose peer is in the middle of a copy, so that only Flush waits for the results.
type held struct {
	nd.Endpoint
	end     error
	flushed bool
}

func (h *held) Err() error { return h.end }

func (h *held) Connector() nd.Connector { return refusing{} }

func (h *held) Close() error {
	h.end = nd.Canceled
	return nil
}

func (h *held) Flush(context.Context) error {
	h.end, h.flushed = nd.Canceled, true
	return nil
}

type refusing struct{ nd.Connector }

func (refusing) Disconnect(context.Context) error { return nd.Canceled }

type emptyQueue struct{ nd.CompletionQueue }

func (emptyQueue) Poll([]nd.Result) int { return 0 }

// A silent request whose result may follow has not succeeded.
func TestFinishKnowsWhichRequestsSucceeded(t *testing.T) {
	flushed := map[bool]int{}
	for seed := range uint64(40) {
		ep := &held{}
		s := &session{Link: &Link{Rand: rand.New(rand.NewPCG(seed, 0))}, ep: ep, cq: emptyQueue{}, srq: struct{ nd.SharedReceiveQueue }{}}
		s.inbox[0] = struct{ nd.MemoryRegion }{}
		s.pending = []request{{silent: true, done: func(ok bool) {
			if flushed[ep.flushed]++; ok != ep.flushed {
				t.Errorf("seed %d: flushed %t, success %t", seed, ep.flushed, ok)
			}
		}}}
		s.finish()
	}
	if flushed[true] == 0 || flushed[false] == 0 {
		t.Errorf("flushed or not: %v", flushed)
	}
}
