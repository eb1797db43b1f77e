package endpoint

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/progress"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestSleepingWaitSeesPosts: a sleeping wait executes requests that another goroutine posts, and
// completes those that only time ends, although no peer rings.
func TestSleepingWaitSeesPosts(t *testing.T) {
	p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: 50 * time.Millisecond}}})
	for _, test := range []struct {
		name string
		post order
		want nd.Status
	}{
		{"a large Write", order{Do: doWrite, Parts: mine(0, 100_000), Far: atFar(p.b, 0)}, nd.Success},
		{"a Send without a receive", order{Do: doSend, Parts: mine(0, 8)}, nd.IOTimeout},
	} {
		result := p.a.start(order{Do: doWait, Queue: initiatorQueue, N: 1})
		proctest.Eventually(t, "the wait sleeps", func() bool { return p.a.provider.waiters.Sleeping() == 1 })
		time.Sleep(20 * time.Millisecond) // it arms its doorbell before it sleeps
		p.a.must(test.post)
		if r := <-result; len(r.Results) != 1 || r.Results[0].Status != test.want {
			t.Errorf("%s ended with %+v", test.name, r)
		}
	}
}

// TestModerationChecksInterval as often after seconds as at first, so that delayed events are
// not late.
func TestModerationChecksInterval(t *testing.T) {
	t.Parallel()
	p := newPair(t, setup{})
	q := p.a.queues[initiatorQueue].(*completionQueue)
	if err := q.ModerateInterrupts(proctest.Timeout, -1); err != nil {
		t.Fatal(err)
	}
	p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: atFar(p.b, 0)})
	time.Sleep(progress.Recent + 500*time.Millisecond)
	proctest.Eventually(t, "the engine checks the clock", q.provider.deferred.IsRecent)
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8))
}

// TestDeferredWorkBacksOff, for example the end of a region with a bound window.
func TestDeferredWorkBacksOff(t *testing.T) {
	t.Parallel()
	p := newPair(t, setup{}).a.provider
	var tries atomic.Int32
	var over atomic.Bool
	p.runOrDefer(func() bool { tries.Add(1); return over.Load() })
	proctest.Eventually(t, "the deferred work runs often", func() bool { return tries.Load() > 10 })
	time.Sleep(progress.Recent)
	time.Sleep(100 * time.Millisecond)
	before := tries.Load()
	time.Sleep(time.Second)
	if n := tries.Load() - before; n > 100 {
		t.Errorf("deferred work ran %d times in a second", n)
	}
	over.Store(true)
	proctest.Eventually(t, "the deferred work is done", func() bool { return p.deferred.IsEmpty() })
}
