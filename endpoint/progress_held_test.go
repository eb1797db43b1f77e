package endpoint

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// TestLockedEndpointKeepsThreadsIdle: neither the engine nor a wait spins while another goroutine
// holds an endpoint, because that goroutine needs the processor more.
func TestLockedEndpointKeepsThreadsIdle(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		var used, held time.Duration
		for range 5 { // the work of the runtime takes long on a busy machine
			if used, held = useWhileHeld(t, waiting); used <= held/4 {
				break
			}
		}
		if used > held/4 {
			t.Errorf("waiting %v: the process used %v of processor time in the %v in which the endpoint was held", waiting, used, held)
		}
	}
}

// useWhileHeld returns the processor time that the process uses while an endpoint is held.
func useWhileHeld(t *testing.T, waiting bool) (used, held time.Duration) {
	t.Helper()
	const hold = 500 * time.Millisecond
	p := newPair(t, setup{})
	s := p.b
	ep := s.endpointAt(0).(*queuePair)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if waiting {
		go func() {
			ended <- s.provider.WaitFor(ctx, statuspage.Call{}, func() bool { return false })
		}()
		proctest.Eventually(t, "the wait sleeps", func() bool { return s.provider.waiters.Sleeping() > 0 })
	} else {
		close(ended)
	}
	ep.mu.Lock()
	s.provider.engine.wake()
	s.provider.waiters.Wake()
	began, before := time.Now(), processorTime(t)
	time.Sleep(hold)
	used, held = processorTime(t)-before, time.Since(began)
	ep.mu.Unlock()
	cancel()
	<-ended
	return used, held
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
