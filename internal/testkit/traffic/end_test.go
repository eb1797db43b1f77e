package traffic

import (
	"context"
	"errors"
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
	refusal error // of Disconnect
	flushed bool
}

func (h *held) Err() error { return h.end }

func (h *held) Connector() nd.Connector { return refusing{err: h.refusal} }

func (h *held) Close() error {
	h.end = nd.Canceled
	return nil
}

func (h *held) Flush(context.Context) error {
	h.end, h.flushed = nd.Canceled, true
	return nil
}

type refusing struct {
	nd.Connector
	err error
}

func (r refusing) Disconnect(context.Context) error { return r.err }

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

// An error of Disconnect must name the peer.
func TestFinishReportsADisconnectThatNamesNoRank(t *testing.T) {
	for text, want := range map[string]bool{"the peer has failed": true, "rank 1 has failed": false} {
		broken := false
		for seed := range uint64(40) {
			l := &Link{Rand: rand.New(rand.NewPCG(seed, 0)), Job: new(softnd.Job), Peer: 1}
			s := &session{Link: l, ep: &held{refusal: errors.New(text)}, cq: emptyQueue{}}
			l.try(s.finish)
			broken = broken || l.Broken != nil
		}
		if broken != want {
			t.Errorf("Disconnect fails with %q: reported %t", text, broken)
		}
	}
}

// A peer that hears descriptors only is not asked to stop the use of a grant: the grant ends, and others follow.
func TestWildGrantEnds(t *testing.T) {
	job, err := softnd.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	l := &Link{Rand: rand.New(rand.NewPCG(1, 2)), Job: job, Wild: true}
	s := &session{Link: l, ctx: t.Context()}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.grant.live = true // of the region's own token
	for range 100 {
		if s.useGrant(); !s.grant.live {
			return
		}
	}
	t.Errorf("the grant does not end: %+v", s.grant)
}
