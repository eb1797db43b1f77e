package endpoint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// forge makes a third process set the hazards of both endpoints of a pair: they name the tokens
// of a region.
func (p *pair) forge(x *side) {
	local, remote := x.regionAt(0).mr.LocalToken(), x.regionAt(0).mr.RemoteToken()
	a, b := p.a.endpointAt(0).(*queuePair), p.a.endpointAt(0).(*queuePair).conn.peerQP
	a.localQP.Hazard.Store(uint64(local)<<32 | uint64(remote))
	b.Hazard.Store(uint64(remote)<<32 | uint64(local))
}

// TestForgedHazardCleared sets the hazards of two idle endpoints as a third process can,
// once. Both processes live, so only they can end the waits for these hazards.
func TestForgedHazardCleared(t *testing.T) {
	for _, processes := range []bool{false, true} {
		for name, call := range map[string]order{
			"flush":          {Do: doFlush},
			"close region":   {Do: doCloseRegion},
			"deregister":     {Do: doDeregister},
			"close endpoint": {Do: doCloseEndpoint},
		} {
			t.Run(setup{Processes: processes}.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				p := newPair(t, setup{Processes: processes})
				p.forge(p.a)
				p.a.must(call)
				far := p.a.endpointAt(0).(*queuePair).conn.peerQP
				proctest.Eventually(t, "both hazards are clear", func() bool {
					return far.Hazard.Load() == 0 && p.a.endpointAt(0).(*queuePair).localQP.Hazard.Load() == 0
				})
			})
		}
	}
}

// TestDrainEndsWithContext stops the peer's process with a hazard that names tokens of this process.
// Calls that wait for it end with their contexts, and have their effect when the peer continues.
func TestDrainEndsWithContext(t *testing.T) {
	p := newPair(t, setup{Processes: true})
	a := p.a
	r, ep := a.regionAt(0).mr, a.endpointAt(0)
	w := a.windowAt(p.a.must(order{Do: doWindow}).N)
	p.a.must(order{Do: doBind, Len: 64, Flags: nd.AllowRead})
	p.a.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
	p.b.process.Stop()
	far := ep.(*queuePair).conn.peerQP
	for _, c := range []struct {
		name  string
		token nd.Token
		end   func(context.Context) error
	}{
		{"window.Close", w.RemoteToken(), w.Close},
		{"endpoint.Flush", r.LocalToken(), ep.Flush},
		{"region.Close", r.LocalToken(), r.Close},
	} {
		far.Hazard.Store(uint64(c.token))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if err := c.end(ctx); !errors.Is(err, nd.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s returns %v while a peer is in the middle of a copy, want Canceled", c.name, err)
		}
		cancel()
		far.Hazard.Store(0)
		if err := c.end(t.Context()); err != nil {
			t.Errorf("%s after the copy: %v", c.name, err)
		}
	}
	p.b.process.Resume()
}
