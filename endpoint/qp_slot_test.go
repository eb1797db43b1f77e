package endpoint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// fullQueue returns an endpoint whose initiator queue is full of Sends that wait for receives.
func fullQueue(t *testing.T, flags nd.OpFlags) (p *pair, depth int) {
	t.Helper()
	p = newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: NoLimit}}})
	for {
		err := p.a.endpointAt(0).Send(uint64(depth), nd.SGL{}, flags)
		if errors.Is(err, nd.NoMoreEntries) {
			return p, depth
		}
		p.a.good(err)
		depth++
	}
}

// A wait for a slot ends when another goroutine takes a result, whether it spins or sleeps then.
func TestWaitSlotEndsWithAResultTaken(t *testing.T) {
	for name, pause := range map[string]time.Duration{"spins": 0, "sleeps": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			p, depth := fullQueue(t, 0)
			ep := p.a.endpointAt(0)
			for range depth {
				p.b.must(order{Do: doReceive})
			}
			short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := ep.WaitSlot(short); !errors.Is(err, nd.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("with %d results to take: %v, want Canceled", depth, err)
			}
			waited := soon(func() error { return ep.WaitSlot(t.Context()) })
			time.Sleep(pause)
			p.a.results(initiatorQueue, 1)
			if err := <-waited; err != nil {
				t.Error(err)
			}
			p.a.good(ep.Send(1, nd.SGL{}, 0))
			wantStatus(t, ep.Send(2, nd.SGL{}, 0), nd.NoMoreEntries)
		})
	}
}

// A request without a result frees its slot when it succeeds. No goroutine polls.
func TestWaitSlotEndsWithASilentSuccess(t *testing.T) {
	p, _ := fullQueue(t, nd.SilentSuccess)
	waited := soon(func() error { return p.a.endpointAt(0).WaitSlot(t.Context()) })
	stays(t, func() {}, waited)
	p.b.must(order{Do: doReceive})
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// A wait for a slot submits deferred requests, which would never free theirs.
func TestWaitSlotSubmitsDeferred(t *testing.T) {
	p := newPair(t, setup{})
	p.b.must(order{Do: doReceive})
	ep := p.a.endpointAt(0).(*queuePair)
	for ep.hasQueueSlot() {
		p.a.good(ep.Send(0, nd.SGL{}, nd.Defer|nd.SilentSuccess))
	}
	p.a.good(ep.WaitSlot(p.a.ctx))
}

func TestWaitSlotEndsWithTheEndpoint(t *testing.T) {
	p, _ := fullQueue(t, 0)
	ep := p.a.endpointAt(0)
	waited := soon(func() error { return ep.WaitSlot(t.Context()) })
	stays(t, func() {}, waited)
	p.a.good(ep.Close())
	wantStatus(t, <-waited, nd.ConnectionInvalid)
}

func TestWaitSlotAllocatesNothing(t *testing.T) {
	p := newPair(t, setup{})
	ep := p.a.endpointAt(0)
	if n := testing.AllocsPerRun(100, func() { p.a.good(ep.WaitSlot(t.Context())) }); n != 0 {
		t.Errorf("%v allocations with free slots", n)
	}
}
